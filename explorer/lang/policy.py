"""How TileLang divides a gemm among warps: a hint here, since a schedule decides it."""

from __future__ import annotations

from enum import IntEnum


class GemmWarpPolicy(IntEnum):
    """The values of `T.gemm(policy=...)`."""

    Square = 0
    FullRow = 1
    FullCol = 2
