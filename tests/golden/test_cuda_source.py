"""The CUDA source of small kernels, as text: a change of the emitter shows here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.cuda_candidates import (
    DIRECT,
    SMALL,
    STAGED,
    STORER,
    TURNS_STAGED,
    candidate,
    gemm_space,
    source_of,
)

TINY = SMALL | {"block_M": 128, "block_N": 64, "block_K": 32, "depth_A_B": 2}
CASES = {
    "lagging": (DIRECT, (256, 128, 128), {"lag_gemm_C_local": 1, "blocks": 132}),
    "staged": (STAGED, (256, 128, 128), {"blocks": 132}),
    "storing_role": (STORER, (256, 128, 128), {"depth_C_staging": 2}),
    "turns": (TURNS_STAGED, (256, 128, 128), {"lag_gemm_C_local": 1, "blocks": 132}),
    "odd": (DIRECT, (129, 65, 33), {}),
    "cluster": (DIRECT, (256, 192, 128), {"blocks": 132, "cluster": 2, "cluster_axis": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_source(name: str, golden: Callable[[str, str], None]) -> None:
    title, sizes, choices = CASES[name]
    space = gemm_space("gemm_nt", sizes)
    kernel = source_of(space, candidate(space, title, **(TINY | choices)))
    golden(f"cuda_{name}.cu", kernel.source[kernel.source.index('extern "C"') :])
