"""Failures that users of such tools reported, each with the numbers of the report.

What one part alone decides is tested beside that part; here stands what goes through several.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

import explorer.lang as T
from explorer.constraints import Report, check_parts
from explorer.errors import InputError, KernelError
from explorer.expr import evaluate
from explorer.ir.access import access
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import H200, Machine
from explorer.passes import materialize
from explorer.program.counts import arrivals, role_threads
from explorer.program.events import parity, role_events, slot
from explorer.program.nodes import For, Program
from explorer.program.simulator import simulate
from explorer.program.steps import executed, signals
from explorer.program.verdict import Finished
from explorer.runtime import load_workload
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.copies import Touch, copies_needed
from explorer.schedule.extensions import Extensions, Launch, MatrixTile, Side, SideMode
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.kernels.copy_pipeline import copy_pipeline as tiles_of_copies
from tests.kernels.copy_pipeline import gemm_trips
from tests.kernels.gemm import gemm
from tests.support.cuda_candidates import DIRECT, GOOD, candidate, gemm_space, source_of
from tests.support.fixed_trips import Case, Features, cases, copy_schedule, gemm_schedule, inputs
from tests.unit.constraints.kernels import (
    CONSUMER,
    PRODUCER,
    A,
    C,
    R,
    W,
    base_schedule,
    copy_pipeline,
    report,
)


def rules(found: Report) -> set[str]:
    return {violation.rule for violation in found.violations}


# ---------------------------------------------------------------- loops shorter than the ring


@pytest.mark.parametrize(
    ("depth", "trips"), [(d, n) for d in (1, 3) for n in sorted({0, 1, 2, d, d + 1})]
)
def test_a_loop_of_any_length_finishes(depth: int, trips: int) -> None:
    """A producer warp and eight consumer warps; one trip hung at any depth."""
    kernel = gemm_trips(trips, rows=128)
    ws = gemm_schedule(kernel, H200, depth, Features()).ws
    roles = [WSRole("P", warps_lo=0, warps_hi=1), WSRole("C0", warps_lo=4, warps_hi=12)]
    wide = WSSchedule(12, roles, ws.pipelines, ws.scopes)
    assert check_parts(kernel, wide, Extensions(), H200).ok
    program = materialize(kernel, Schedule(bind(kernel, "h200", {}), wide), H200)
    events = [event for role in ("P", "C0") for event in role_events(program, role)]
    assert len(events) == 4 * trips
    firsts = {event.kind: event for event in reversed(events)}
    if trips:
        assert (firsts["acquire"].parity, firsts["wait"].parity) == (1, 0)
    data = inputs(kernel)
    verdict = simulate(program, data, seed=trips)
    assert isinstance(verdict, Finished), str(verdict)
    np.testing.assert_array_equal(verdict.output("C"), run(kernel, data)["C"])
    assert trips or not verdict.output("C").any()


@pytest.mark.parametrize(("machine", "kind"), [("cpu", "float32"), ("h200", "bfloat16")])
def test_no_reduction_at_all_is_said_in_one_line(machine: str, kind: str) -> None:
    with pytest.raises(InputError, match="size K=0 must be a positive integer"):
        load_workload("gemm").problem({"M": 64, "N": 64, "K": 0}, kind, machine)
    with pytest.raises(KernelError, match="size of 'A' must be at least 1, got 0"):
        gemm(64, 64, 0, kind)


# ---------------------------------------------------------------- arrive counts, phases


def arrivals_by_phase(program: Program) -> dict[str, set[int]]:
    """By barrier side, the different numbers of arrivals that complete its phases in block 0."""
    counts: Counter[tuple[str, bool, int]] = Counter()
    for role in program.roles:
        threads = role_threads(role.role, H200)
        made = {(s.pipeline, s.full): arrivals(s, threads) for s in signals(role.body)}
        for event in role_events(program, role.role.name):
            if event.kind in ("commit", "release"):
                full = event.kind == "commit"
                counts[event.pipeline, full, event.cycle] += made[event.pipeline, full]
    found: dict[str, set[int]] = {}
    for (pipeline, full, _), count in counts.items():
        found.setdefault(f"{pipeline}.{'full' if full else 'empty'}", set()).add(count)
    return found


@pytest.mark.parametrize("case", list(cases(24)), ids=lambda case: f"{case.kind}-{case.trips}")
def test_a_barrier_is_initialised_with_the_arrivals_of_each_phase(case: Case) -> None:
    """A larger count hangs, a smaller one lets a phase complete early."""
    program = case.program()
    for name, found in arrivals_by_phase(program).items():
        barriers = next(b for b in program.barriers if name.startswith(f"{b.pipeline}."))
        stated = barriers.full_count if name.endswith("full") else barriers.empty_count
        assert found == {stated}, name


def test_phases_that_restart_at_a_tile_go_wrong_at_the_second() -> None:
    """Depth 2, three trips, three tiles; a law that restarts differs first at cycle 3."""
    law = [(slot(g, 2), parity(g, 2, full=True)) for g in range(9)]
    assert [at for at, _ in law] == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert [phase for _, phase in law] == [0, 0, 1, 1, 0, 0, 1, 1, 0]
    restarted = [(slot(g % 3, 2), parity(g % 3, 2, full=True)) for g in range(9)]
    assert next(g for g in range(9) if law[g] != restarted[g]) == 3
    program = materialize(*persistent_copy())
    waits = [event for event in role_events(program, "C") if event.kind == "wait"]
    assert [(event.slot, event.parity) for event in waits] == law


def persistent_copy() -> tuple[Kernel, Schedule, Machine]:
    kernel = tiles_of_copies(3, blocks=3)
    return kernel, copy_schedule(kernel, H200, 2, Features(persistent=1)), H200


# ---------------------------------------------------------------- stages and lifetimes


@pytest.mark.parametrize("stage", [0, 1])
def test_one_iteration_in_flight_keeps_a_ring_of_one_slot(stage: int) -> None:
    """num_stages 1: all stages equal is a strict handshake without prologue, at any depth."""
    kernel = copy_pipeline(num_stages=1)
    schedule = base_schedule(
        pipelines=(WSPipeline("buf", ["As"], 1),),
        producer=[A("buf", stage), "cin", C("buf", stage)],
        consumer=[W("buf", stage), "cfr", R("buf", stage), "cout"],
    )
    assert report(schedule, kernel).ok
    program = materialize(kernel, Schedule(bind(kernel, "h200", {}), schedule), H200)
    assert all(isinstance(role.body[0], For) and len(role.body) == 1 for role in program.roles)


@pytest.mark.parametrize(
    ("shift", "place", "copies"), [(0, 1, 1), (1, 0, 1), (1, 2, 2), (2, 2, 3)]
)
def test_versions_last_until_the_last_use(shift: int, place: int, copies: int) -> None:
    """Written at t = 0 and used behind the next write: two versions, not one."""
    write = Touch(kernel=0, time=(0, 1), fresh=True)
    use = Touch(kernel=1, time=(shift, place), fresh=False)
    assert copies_needed([write, use]) == copies


def summing_kernel() -> Kernel:
    """S <- A[0]; three times: acc += S, then S <- the next tile."""

    @T.prim_func
    def summing(a: T.Tensor((4, 64, 64), T.float32), z: T.Tensor((64, 64), T.float32)):
        with T.Kernel(1, threads=128) as bx:
            S = T.alloc_shared((64, 64), T.float32)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.clear(acc, annotations={T.WSID: "clear"})
            T.copy(a[0, 0:64, 0:64], S, annotations={T.WSID: "first"})
            for k in T.Pipelined(3, num_stages=2, annotations={T.WSID: "k"}):
                for i, j in T.Parallel(64, 64, annotations={T.WSID: "add"}):
                    acc[i, j] += S[i, j]
                T.copy(a[k + 1, 0:64, 0:64], S, annotations={T.WSID: "next"})
            T.copy(acc, z, annotations={T.WSID: "out"})

    return summing


def test_a_loop_that_reads_before_it_overwrites_sums_the_first_three_tiles() -> None:
    kernel = summing_kernel()
    body = ["clear", "first", "k", "out"]

    def schedule(depth: int) -> WSSchedule:
        pipelines = [WSPipeline("s", ["S"], depth)] if depth else []
        role = WSRole("C", warps_lo=0, warps_hi=4)
        scopes = [WSScope("k", {"C": ["add", "next"]}), WSScope(WSScope.ROOT, {"C": body})]
        return WSSchedule(4, [role], pipelines, scopes)

    assert check_parts(kernel, schedule(0), Extensions(), H200).ok
    program = materialize(kernel, Schedule(bind(kernel, "h200", {}), schedule(0)), H200)
    data = {"a": np.random.default_rng(0).standard_normal((4, 64, 64)).astype(np.float32)}
    verdict = simulate(program, data, 0)
    assert isinstance(verdict, Finished), str(verdict)
    np.testing.assert_allclose(verdict.output("z"), data["a"][:3].sum(0), rtol=1e-5)


@pytest.mark.parametrize(("sides", "legal"), [(True, True), (False, False)])
def test_one_slot_for_two_groups_of_readers(sides: bool, legal: bool) -> None:
    """Depth 1: both readers hand the slot back on a shared side, or no plain pipeline has it."""

    @T.prim_func
    def twice(x: T.Tensor((256, 64), T.float16), y: T.Tensor((256, 64), T.float16),
              z: T.Tensor((256, 64), T.float16)):  # fmt: skip
        with T.Kernel(1, threads=384) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            g = T.alloc_fragment((64, 64), T.float16)
            for lk in T.Pipelined(4, num_stages=4, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, f, annotations={T.WSID: "one"})
                T.copy(As, g, annotations={T.WSID: "two"})
                T.copy(f, y[lk * 64, 0], annotations={T.WSID: "put_y"})
                T.copy(g, z[lk * 64, 0], annotations={T.WSID: "put_z"})

    roles = [
        WSRole("P", warps_lo=0, warps_hi=1),
        WSRole("C", warps_lo=4, warps_hi=8),
        WSRole("D", warps_lo=8, warps_hi=12),
    ]
    loop = {
        "P": PRODUCER,
        "C": [W("buf"), "one", R("buf"), "put_y"],
        "D": [W("buf"), "two", R("buf"), "put_z"],
    }
    scopes = [WSScope("lk", loop), WSScope(WSScope.ROOT, {role: ["lk"] for role in "PCD"})]
    ws = WSSchedule(12, roles, [WSPipeline("buf", ["As"], 1)], scopes)
    both = (Side("buf", False, SideMode.SHARED, ("C", "D")),) if sides else ()
    found = check_parts(twice, ws, Extensions(sides=both), H200)
    assert found.ok == legal
    assert legal or "pipeline-sides" in rules(found)


# ---------------------------------------------------------------- registers


def test_requests_of_24_and_240_come_with_launch_bounds() -> None:
    space = gemm_space("gemm", (1024, 1024, 1024))
    wide = GOOD | {"nreg_producer": 24, "nreg_consumer": 240, "depth_A_B": 3}
    source = source_of(space, candidate(space, DIRECT, **wide)).source
    assert "__launch_bounds__(384, 1)" in source
    for request in ("setmaxnreg.dec.sync.aligned.u32 24;", "setmaxnreg.inc.sync.aligned.u32 240;"):
        assert request in source


def registers(*requests: int) -> Report:
    """Roles of one warp group each that ask for so many registers."""
    names = ["P", "C", *(f"I{number}" for number in range(len(requests) - 2))]
    roles = [
        WSRole(name, warps_lo=4 * number, warps_hi=4 * number + 4, max_nreg=request)
        for number, (name, request) in enumerate(zip(names, requests, strict=True))
    ]
    scopes = [
        WSScope("lk", {"P": PRODUCER, "C": CONSUMER}),
        WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"], **{name: [] for name in names[2:]}}),
    ]
    return report(base_schedule(num_warps=4 * len(names), roles=roles, scopes=scopes))


def test_the_sum_of_requests_fits_though_the_entry_does_not() -> None:
    """24 + 24 + 224 + 224 is 63488 registers; what the instruction needs at entry is another."""
    assert (24 + 24 + 224 + 224) * 128 == 63488
    assert registers(24, 224, 24, 224).ok


def test_the_largest_equal_budget_of_four_consumer_groups() -> None:
    """160 each is too much for the file: it hung. Of those that fit it, 640 threads enter with
    61440 registers, from which increases are served."""
    for producer, held in ((32, 86016), (24, 84992)):
        found = registers(producer, 160, 160, 160, 160)
        assert f"= {held} registers > 65536" in found.violations[0].message
    legal = [n for n in range(24, 257, 8) if registers(24, n, n, n, n).ok]
    assert max(legal) == 112
    assert rules(registers(24, 120, 120, 120, 120)) == {"register-pool"}
    assert "hold 64512 registers, the block enters with 640 threads x 96 = 61440" in str(
        registers(24, 120, 120, 120, 120)
    )


# ---------------------------------------------------------------- tiles and instructions


def matrix_report(m: int, n: int, k: int, groups: int, shape: tuple[int, int]) -> Report:
    kernel = gemm(4 * m, 4 * n, 4 * k, "bfloat16").at(block_M=m, block_N=n, block_K=k)
    clear, loop, store = (statement.id for statement in kernel.body)
    ws = WSSchedule(
        4 + 4 * groups,
        [
            WSRole("P", warps_lo=0, warps_hi=1),
            WSRole("C", warps_lo=4, warps_hi=4 + 4 * groups),
        ],
        [WSPipeline("ab", ["A_shared", "B_shared"], 2)],
        [
            WSScope(
                loop,
                {
                    "P": [A("ab"), "copy_A_shared", "copy_B_shared", C("ab")],
                    "C": [W("ab"), "gemm_C_local", R("ab")],
                },
            ),
            WSScope(WSScope.ROOT, {"P": [loop], "C": [clear, loop, store]}),
        ],
    )
    tile = MatrixTile("gemm_C_local", *shape)
    return check_parts(kernel, ws, Extensions(matrix=(tile,), launch=Launch()), H200)


@pytest.mark.parametrize(("step", "legal"), [(16, True), (24, False), (32, True), (40, False)])
def test_a_reduction_tile_is_whole_instruction_steps(step: int, legal: bool) -> None:
    found = matrix_report(64, 64, step, 1, (64, 64))
    assert found.ok == legal
    assert legal or "matrix-tile" in rules(found)


def test_rows_that_twelve_warps_cannot_share() -> None:
    """16 x 104 on three warp groups: no layout of whole instructions covers it."""
    for m, n in product((64,), (8, 104)):
        assert "matrix-tile" in rules(matrix_report(16, 104, 64, 3, (m, n)))


@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize("staged", [False, True])
def test_the_parts_of_a_tile_cover_it_once(consumers: int, staged: bool) -> None:
    """The union of what the roles store is the tile, without overlap."""
    kernel = gemm_trips(2)
    schedule = gemm_schedule(kernel, H200, 2, Features(consumers=consumers, staged=staged))
    program = materialize(kernel, schedule, H200)
    seen: Counter[tuple[int, int]] = Counter()
    for role in program.roles:
        for step in executed(role.body):
            if step.op.id == "store":
                (target,) = access(step.op).writes
                rows, columns = (
                    range(evaluate(start, {"bx": 1}), evaluate(start + extent, {"bx": 1}))
                    for start, extent in zip(target.start, target.extent, strict=True)
                )
                seen.update(product(rows, columns))
    assert set(seen.values()) == {1}
    assert set(seen) == set(product(range(128, 256), range(64)))
