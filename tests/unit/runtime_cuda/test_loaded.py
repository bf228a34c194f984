"""What of launching can be told without a device."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from explorer.codegen.cuda import REPORT_WORDS
from explorer.data import dumps, loads
from explorer.errors import EnvironmentFault
from explorer.runtime.cuda.loaded import LaunchError, read_report, verify_shared
from explorer.runtime.cuda.toolchain import WAIT_BOUND_NS
from tests.support.cuda_candidates import DIRECT, SMALL, candidate, gemm_space, source_of


@pytest.fixture(scope="module")
def plan():
    space = gemm_space("gemm", (256, 256, 256))
    schedule = candidate(space, DIRECT, **SMALL, depth_A_B=2)
    return source_of(space, schedule, WAIT_BOUND_NS).plan


def test_a_plan_survives_the_round_trip(plan) -> None:
    assert loads(dumps(plan), type(plan)) == plan


@pytest.mark.parametrize(
    ("dynamic", "static", "limit", "fits"),
    [
        (49152, 16, 232448, True),
        (232448, 64, 232448, False),
        (101120, 256, 101376, True),
        (101120, 257, 101376, False),
    ],
)
def test_dynamic_and_static_shared_memory(plan, dynamic, static, limit, fits) -> None:
    """C18."""
    asked = evolve(plan, shared_bytes=dynamic)
    if fits:
        verify_shared(asked, static, limit)
        return
    with pytest.raises(LaunchError, match=f"{dynamic} B .* {static} B > {limit} B"):
        verify_shared(asked, static, limit)


def test_the_report_says_who_waits_for_what(plan) -> None:
    words = np.zeros((plan.grid_blocks * len(plan.roles), REPORT_WORDS), np.uint32)
    site = next(i for i, s in enumerate(plan.sites) if s.full and s.role == "consumer_0")
    for block in (1, 2):
        words[block * len(plan.roles) + 1] = (site + 1, 1, 0, 0)
    assert read_report(plan, words.ravel()) == (
        "role consumer_0 waits at A_B.full[1] parity 0 in 2 blocks, first 1"
    )
    assert read_report(plan, np.zeros_like(words).ravel()) == ""


def test_without_a_device_the_environment_is_at_fault() -> None:
    cupy = pytest.importorskip("explorer.runtime.cuda.loaded")
    try:
        cupy.device_name()
    except EnvironmentFault as problem:
        assert "\n" not in str(problem)
    else:
        pytest.skip("there is a device")
