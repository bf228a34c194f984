"""Matrix descriptors of the four operand layouts, by hand-computed values."""

from __future__ import annotations

import pytest

from explorer.codegen.cuda.matrix import Operand
from explorer.ir.dtypes import dtype
from explorer.memory.tiles import BoxedTile, tile_layout


def layout(rows: int, columns: int) -> BoxedTile:
    return tile_layout(rows, columns, dtype("bfloat16"))


def test_k_major_128_bytes() -> None:
    side = Operand(layout(128, 64), k_major=True)
    assert side.descriptor == 0x4000_0040_0001_0000
    assert [side.k_bytes(step) for step in range(4)] == [0, 32, 64, 96]
    assert side.outer_bytes(64) == 64 * 128


def test_k_major_two_boxes() -> None:
    side = Operand(layout(128, 128), k_major=True)
    assert [side.k_bytes(step) for step in range(3, 6)] == [96, 16384, 16384 + 32]


def test_mn_major_128_bytes() -> None:
    side = Operand(layout(64, 256), k_major=False)
    assert side.descriptor == 0x4000_0040_0200_0000
    assert [side.k_bytes(step) for step in range(3)] == [0, 2048, 4096]
    assert side.outer_bytes(64) == 64 * 128


@pytest.mark.parametrize(("atom", "mode"), [(128, 1), (64, 2), (32, 3)])
def test_the_swizzle_mode(atom: int, mode: int) -> None:
    side = Operand(layout(64, atom // 2), k_major=True)
    assert side.descriptor >> 62 == mode
    assert (side.descriptor >> 32 & 0x3FFF) << 4 == 8 * atom
