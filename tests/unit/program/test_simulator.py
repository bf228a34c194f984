"""The simulator against programs that are right, and against single faults in them."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from explorer.machine import CPU, H200, Machine
from explorer.program.nodes import Cycle, Drain, Exec, Program, Signal, Step, Wait
from explorer.program.simulator import simulate, trace
from explorer.program.verdict import BadCount, Finished, Hang, Race, Unbalanced, Verdict
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixLag,
    Raster,
    Route,
    StagedStore,
)
from tests.support.programs import (
    edit_role,
    gemm_inputs,
    gemm_kernel,
    gemm_program,
    meaning,
)

SEEDS = range(8)
TILE = {"block_M": 4, "block_N": 4, "block_K": 2}


def verdicts(program: Program) -> list[Verdict]:
    return [trace(program, seed) for seed in SEEDS]


def assert_right(program: Program, m: int, n: int, k: int) -> None:
    inputs = gemm_inputs(m, n, k)
    expected = meaning(gemm_kernel(m, n, k), TILE, inputs)["C"]
    for seed in SEEDS:
        verdict = simulate(program, inputs, seed)
        assert isinstance(verdict, Finished), str(verdict)
        np.testing.assert_allclose(verdict.output("C"), expected, atol=1e-5)


@pytest.mark.parametrize("machine", [CPU, H200])
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize(
    "extensions",
    [
        Extensions(),
        Extensions(launch=Launch(2, Raster.COLUMN)),
        Extensions(launch=Launch(3, Raster.GROUPED, 2), lags=(MatrixLag("mma", 1),)),
        Extensions(staged=(StagedStore("store", "C_stage"),)),
        Extensions(routes=(Route("copy_A", CopyRoute.ASYNC), Route("copy_B", CopyRoute.ASYNC))),
        Extensions(routes=(Route("copy_A", CopyRoute.BULK), Route("copy_B", CopyRoute.ELEMENT))),
        Extensions(routes=(Route("copy_A", CopyRoute.ASYNC), Route("copy_B", CopyRoute.BULK))),
    ],
)
def test_gemm_computes_what_the_kernel_means(
    machine: Machine, consumers: int, extensions: Extensions
) -> None:
    warps = machine.warps_per_group
    program = gemm_program(
        9,
        10,
        7,
        machine,
        consumers=consumers,
        consumer_warps=warps,
        staged=bool(extensions.staged),
        extensions=extensions,
    )
    assert_right(program, 9, 10, 7)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("extra", [0, 1, 2, "depth", "depth+1"])
def test_c01_loops_shorter_than_the_ring_finish(depth: int, extra: int | str) -> None:
    trips = {"depth": depth, "depth+1": depth + 1}.get(str(extra), extra)
    k = 2 * int(trips)
    program = gemm_program(4, 4, k, H200, depth=depth, consumer_warps=8)
    assert_right(program, 4, 4, k)


def test_c01_no_trips_store_the_cleared_accumulator() -> None:
    verdict = simulate(gemm_program(4, 4, 0), gemm_inputs(4, 4, 0))
    assert isinstance(verdict, Finished)
    assert not verdict.output("C").any()


def with_count(program: Program, **counts: int) -> Program:
    return evolve(program, barriers=(evolve(program.barriers[0], **counts),))


@pytest.mark.parametrize("count", [{"empty_count": 257}, {"full_count": 2}])
def test_c03_a_count_above_the_arrivals_hangs(count: dict[str, int]) -> None:
    program = with_count(gemm_program(4, 4, 8, H200, consumer_warps=8), **count)
    assert all(isinstance(verdict, Hang) for verdict in verdicts(program))


@pytest.mark.parametrize("count", [{"empty_count": 8}, {"empty_count": 255}, {"empty_count": 1}])
def test_c03_a_count_below_the_arrivals_is_found(count: dict[str, int]) -> None:
    program = with_count(gemm_program(4, 4, 8, H200, consumer_warps=8), **count)
    assert all(isinstance(verdict, BadCount) for verdict in verdicts(program))


def test_c03_one_of_two_consumers_counted_releases_early() -> None:
    program = gemm_program(4, 4, 16, H200, consumers=2, consumer_warps=4, depth=1)
    broken = with_count(program, empty_count=128)
    assert all(isinstance(verdict, BadCount | Race) for verdict in verdicts(broken))


def lagged(depth: int, lag: int = 1) -> Program:
    extensions = Extensions(lags=(MatrixLag("mma", lag),))
    return gemm_program(4, 4, 10, H200, depth=depth, consumer_warps=4, extensions=extensions)


def test_c14_release_before_the_matrix_op_completes_is_a_race() -> None:
    def early(step: Step) -> list[Step]:
        return [evolve(step, asynchronous=True)] if is_op(step, "mma") else [step]

    program = edit_role(gemm_program(4, 4, 10, H200, consumer_warps=4), "C", early)
    found = verdicts(program)
    assert all(isinstance(verdict, Race) for verdict in found)
    assert {verdict.kind for verdict in found if isinstance(verdict, Race)} <= {
        "overwrite before empty",
        "unordered",
    }


def test_c14_draining_before_the_release_or_delaying_it_is_right() -> None:
    def drained(step: Step) -> list[Step]:
        if not is_op(step, "mma"):
            return [step]
        return [evolve(step, asynchronous=True), Drain(0)]

    plain = gemm_program(4, 4, 10, H200, consumer_warps=4)
    assert_right(edit_role(plain, "C", drained), 4, 4, 10)
    assert_right(lagged(depth=2), 4, 4, 10)
    assert_right(lagged(depth=4, lag=3), 4, 4, 10)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_w12_a_lag_that_fills_the_ring_hangs(depth: int) -> None:
    assert all(isinstance(verdict, Hang) for verdict in verdicts(lagged(depth, lag=depth)))


def is_op(step: Step, name: str) -> bool:
    return isinstance(step, Exec) and step.op.id == name


def test_a_dropped_commit_hangs_the_consumer() -> None:
    program = edit_role(
        gemm_program(4, 4, 8), "P", lambda step: [] if isinstance(step, Signal) else [step]
    )
    for verdict in verdicts(program):
        assert isinstance(verdict, Hang)
        blocked = {each.role: each for each in verdict.blocked}
        assert (blocked["P"].full, blocked["P"].slot, blocked["P"].cycle) == (False, 0, 2)
        assert (blocked["C"].full, blocked["C"].slot, blocked["C"].parity) == (True, 0, 0)


def test_a_dropped_wait_is_a_fault_of_the_side() -> None:
    program = edit_role(
        gemm_program(4, 4, 8), "C", lambda step: [] if isinstance(step, Wait) else [step]
    )
    assert all(isinstance(verdict, Unbalanced) for verdict in verdicts(program))


def closing_first(program: Program, role: str) -> Program:
    """The role signals right after its wait and then works on the slot that it gave away."""

    def edit(step: Step) -> list[Step]:
        match step:
            case Wait(pipeline, full):
                return [step, Signal(pipeline, not full)]
            case Signal():
                return []
            case Exec():
                return [evolve(step, uses=tuple(evolve(u, cycle=Cycle.LAST) for u in step.uses))]
        return [step]

    return edit_role(program, role, edit)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("role", ["P", "C"])
def test_a_signal_before_the_access_is_a_race(role: str, depth: int) -> None:
    program = gemm_program(4, 4, 12, depth=depth)
    found = verdicts(closing_first(program, role))
    assert all(isinstance(verdict, Race) for verdict in found)
    kinds = {verdict.kind for verdict in found if isinstance(verdict, Race)}
    assert ("overwrite before empty" if role == "C" else "use before full") in kinds


@pytest.mark.parametrize("consumers", [1, 2])
def test_c13_one_slot_that_nothing_hands_back_in_time_is_a_race(consumers: int) -> None:
    """Barriers of four slots over a buffer of one: the producer runs ahead of its readers."""
    program = gemm_program(4, 4, 12, consumers=consumers, depth=1)
    assert all(isinstance(verdict, Finished) for verdict in verdicts(program))
    ahead = evolve(program, barriers=(evolve(program.barriers[0], depth=4),))
    found = verdicts(ahead)
    assert all(isinstance(verdict, Race) for verdict in found)


def test_a_shared_buffer_in_no_pipeline_is_a_race() -> None:
    program = gemm_program(4, 4, 8)
    bare = evolve(program, rings=tuple(evolve(ring, levels=()) for ring in program.rings))
    for role in ("P", "C"):
        bare = edit_role(
            bare, role, lambda s: [evolve(s, uses=())] if isinstance(s, Exec) else [s]
        )
    bare = edit_role(bare, "P", lambda s: [] if isinstance(s, Wait | Signal) else [s])
    bare = edit_role(bare, "C", lambda s: [] if isinstance(s, Wait | Signal) else [s])
    assert all(isinstance(verdict, Race) for verdict in verdicts(bare))


def test_verdicts_read_as_one_line() -> None:
    broken = with_count(gemm_program(4, 4, 8), empty_count=2)
    assert str(trace(broken)) == (
        "hang: block 0 role P waits at ab.empty[0] parity 0 cycle 2"
        "; block 0 role C waits at ab.full[0] parity 1 cycle 2"
    )
