"""Kernels whose buffers share bytes are right on the card."""

from __future__ import annotations

import pytest

from explorer.machine import H200
from explorer.passes import materialize
from explorer.records import Measured
from tests.gpu.support import built, session
from tests.support.cuda_candidates import SMALL, STORER, candidate, gemm_space

pytestmark = pytest.mark.gpu

WORKER = "roles worker; rings none; staged epilogue"
RING = "roles producer+consumer; rings A_shared+B_shared; staged epilogue"
CASES = {
    WORKER: ({"blocks": 0}, {"blocks": 132}),
    RING: tuple(
        {"blocks": 0, "depth_A_B": depth, "lag_gemm_C_local": lag}
        for depth, lag in ((1, 0), (2, 1), (3, 1))
    ),
    STORER: ({"blocks": 0, "depth_C_staging": 1, "depth_A_B": 3},),
}


@pytest.mark.parametrize("sizes", [(2048, 2304, 520), (1000, 1000, 1000)])
@pytest.mark.parametrize("title", CASES)
def test_staging_over_operands(title: str, sizes: tuple[int, int, int]) -> None:
    space = gemm_space("gemm_nt", sizes)
    with session("gemm_nt", sizes) as opened:
        for choices in CASES[title]:
            schedule = candidate(space, title, **(SMALL | choices))
            program = materialize(space.kernel, schedule, H200)
            assert program.sharers("C_staging"), choices
            outcome = opened.measure(built(opened, schedule), repeats=3)
            assert isinstance(outcome, Measured), f"{choices}: {outcome}"
