"""Rules of copy routes, operand types and layouts, and registers on the h200."""

from __future__ import annotations

import pytest

from explorer.constraints import check
from explorer.machine import H200
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import CopyRoute
from explorer.space import SearchSpace
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    WORKER,
    candidate,
    gemm_space,
    with_routes,
)


def refused(space: SearchSpace, schedule: Schedule) -> dict[str, str]:
    return {v.rule: v.message for v in check(space.kernel, schedule, H200).violations}


def unchecked(space: SearchSpace, title: str, **choices: int) -> Schedule:
    index = [skeleton.title for skeleton in space.skeletons].index(title)
    values = {choice.name: choice.domain[0] for choice in space.choices} | choices
    return space.candidate(values | {"skeleton": index})


def test_a_bulk_route_needs_a_pitch_of_16_bytes() -> None:
    space = gemm_space("gemm", (256, 256, 250))
    schedule = candidate(space, ONE_CONSUMER, **SMALL, depth_A_B=2)
    bulk = with_routes(schedule, {"copy_A_shared": CopyRoute.BULK})
    assert "A has a pitch of 500 B" in refused(space, bulk)["copy-route"]
    assert refused(space, with_routes(schedule, {"copy_A_shared": CopyRoute.ASYNC})) == {}


def test_cp_async_needs_a_pitch_of_4_bytes() -> None:
    space = gemm_space("gemm", (256, 256, 65))
    schedule = candidate(space, ONE_CONSUMER, **SMALL, depth_A_B=2)
    landed = with_routes(schedule, {"copy_A_shared": CopyRoute.ASYNC})
    assert "rows of A are 130 B apart" in refused(space, landed)["copy-route"]


def test_pieces_of_a_staged_store_are_whole_groups_of_columns() -> None:
    space = gemm_space("gemm_nt", (4000, 4000, 4000))
    choices = GOOD | {"block_N": 160, "depth_A_B": 4}
    title = STAGED.replace("staged", "staged in {}")
    candidate(space, title.format(2), **choices)
    found = refused(space, unchecked(space, title.format(3), **choices))
    assert list(found) == ["staged-pieces"]
    assert "160 columns of C_local are not 3 equal pieces" in found["staged-pieces"]


def test_an_asynchronous_route_needs_a_pipeline() -> None:
    space = gemm_space("gemm", (256, 256, 256))
    schedule = candidate(space, WORKER, **SMALL)
    bulk = with_routes(schedule, {"copy_A_shared": CopyRoute.BULK})
    assert "no pipeline waits for it" in refused(space, bulk)["copy-route"]


def test_float64_operands_have_no_instruction() -> None:
    space = gemm_space("gemm_nt", (256, 256, 256), "float64")
    schedule = unchecked(space, ONE_CONSUMER, **SMALL, depth_A_B=1)
    assert "multiplies float64 by float64" in refused(space, schedule)["operand-types"]


@pytest.mark.parametrize(
    ("layout", "kind", "across"),
    [("gemm", "float32", "B_shared"), ("gemm_tt", "float8_e4m3", "A_shared")],
)
def test_only_16_bit_operands_lie_across_the_reduction(
    layout: str, kind: str, across: str
) -> None:
    space = gemm_space(layout, (256, 256, 256), kind)
    schedule = unchecked(space, ONE_CONSUMER, **SMALL, depth_A_B=1)
    assert f"the rows of {across} lie across" in refused(space, schedule)["operand-order"]
    along = gemm_space("gemm_nt", (256, 256, 256), kind)
    assert "operand-order" not in refused(
        along, unchecked(along, ONE_CONSUMER, **SMALL, depth_A_B=1)
    )


def test_the_widest_instruction_fits_the_entry() -> None:
    """C26: 512 threads enter with 128 registers, m64n256 needs 154."""
    space = gemm_space("gemm", (1024, 1024, 1024))
    choices = GOOD | {"warps_producer": 8, "nreg_producer": 24, "nreg_consumer": 224}
    schedule = unchecked(space, DIRECT, **(choices | {"depth_A_B": 4}))
    assert (
        "needs 154 registers at entry, 512 threads have 128"
        in (refused(space, schedule)["register-entry"])
    )


def test_requests_fit_what_the_block_enters_with() -> None:
    """640 threads enter with 96 registers: 61440, though the file has 65536."""
    space = gemm_space("gemm", (1024, 1024, 1024))
    choices = SMALL | {"block_N": 96, "warps_producer": 12, "nreg_producer": 56}
    schedule = unchecked(space, DIRECT, **(choices | {"nreg_consumer": 160, "depth_A_B": 4}))
    assert refused(space, schedule) == {
        "register-pool": "the requests hold 62464 registers, the block enters with 640 threads x "
        "96 = 61440"
    }


@pytest.mark.parametrize(("registers", "legal"), [(24, False), (56, False), (88, True)])
def test_copies_through_threads_need_registers(registers: int, legal: bool) -> None:
    space = gemm_space("gemm", (129, 257, 65))
    choices = SMALL | {"nreg_producer": registers}
    schedule = unchecked(space, ONE_CONSUMER, **choices, depth_A_B=2)
    assert ("register-copies" not in refused(space, schedule)) == legal
