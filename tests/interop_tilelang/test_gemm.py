"""Exported GEMM schedules are accepted by TileLang, which makes of them what the schedule says."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from explorer.constraints import check
from explorer.export import export_kernel_tilelang
from explorer.export.limits import refusals
from explorer.export.merge import merge_splits
from explorer.ir.nodes import Kernel
from explorer.machine import H200
from explorer.passes import materialize as materialize_program
from explorer.program.events import role_events
from explorer.records import load
from explorer.runtime import load_workload
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import CopyRoute, Launch, MatrixTile, Raster, Route, Swapped
from explorer.schedule.ws import WSScope, WSSync, WSSyncKind
from explorer.space import space_of
from tests.interop_tilelang.candidates import LAYOUTS, kernel_of, solved, title_of
from tests.interop_tilelang.materialize import (
    Counts,
    Materialized,
    Refused,
    load_kernel,
    materialize,
)
from tests.interop_tilelang.trace import Event

pytestmark = pytest.mark.interop
RESULTS = Path(__file__).parents[2] / "results" / "h200"


def through_tilelang(kernel: Kernel, schedule: Schedule, folder: Path) -> Materialized:
    return materialize(load_kernel(export_kernel_tilelang(kernel, schedule), folder, kernel.name))


def assert_same_counts(kernel: Kernel, schedule: Schedule, theirs: Materialized) -> None:
    program = materialize_program(kernel, schedule, H200)
    ours = {
        each.pipeline: Counts((each.full_count,) * each.depth, (each.empty_count,) * each.depth)
        for each in program.barriers
    }
    assert theirs.counts == ours


def assert_same_events(
    kernel: Kernel, schedule: Schedule, theirs: Materialized, blocks: int = 1
) -> None:
    """Every role waits and arrives in the same order on the same slots, at the same parities."""
    program = materialize_program(kernel, schedule, H200)
    for role in schedule.ws.roles:
        for block in range(blocks):
            ours = [
                Event(
                    "wait" if each.kind in ("wait", "acquire") else "arrive",
                    each.pipeline,
                    "full" if each.kind in ("wait", "commit") else "empty",
                    each.slot,
                    each.parity if each.kind in ("wait", "acquire") else None,
                )
                for each in role_events(program, role.name, block)
            ]
            assert theirs.trace(role.name, (block, 0, 0)) == ours


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_roles_registers_depth_and_counts(
    layout: str, staged: bool, warps: int, depth: int, tmp_path: Path
) -> None:
    kernel = kernel_of(layout)
    block_m = 16 * warps
    schedule = solved(
        layout, title_of(staged), depth_A_B=depth, warps_consumer=warps, block_M=block_m
    )
    result = through_tilelang(kernel, schedule, tmp_path)

    assert result.num_warps == 4 + warps
    producer, consumer = result.roles["producer"], result.roles["consumer"]
    assert (producer.lo, producer.hi, producer.nreg, producer.increase) == (0, 1, 40, False)
    assert (consumer.lo, consumer.hi, consumer.nreg, consumer.increase) == (
        4,
        4 + warps,
        232,
        True,
    )
    a_shape, b_shape = (block_m, 64), (64, 128)
    transpose_a, transpose_b = LAYOUTS[layout]
    assert result.shapes["A_shared"] == (depth, *(a_shape[::-1] if transpose_a else a_shape))
    assert result.shapes["B_shared"] == (depth, *(b_shape[::-1] if transpose_b else b_shape))
    assert result.shapes.get("C_staging") == ((block_m, 128) if staged else None)
    assert result.counts == {"A_B": Counts((1,) * depth, (32 * warps,) * depth)}
    assert_same_counts(kernel, schedule, result)
    assert_same_events(kernel, schedule, result)


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_swapped_operands(layout: str, staged: bool, tmp_path: Path) -> None:
    """The accumulator is N x M; the staging buffer is as the tensor."""
    plain = solved(layout, title_of(staged), block_M=64, block_N=128, warps_consumer=4)
    swapped = (Swapped("gemm_C_local"),)
    matrix = (MatrixTile("gemm_C_local", 64, 64),)
    extensions = evolve(plain.extensions, swapped=swapped, matrix=matrix)
    schedule = evolve(plain, extensions=extensions)
    kernel = kernel_of(layout)
    assert check(kernel, schedule, H200).ok
    result = through_tilelang(kernel, schedule, tmp_path)
    assert result.shapes.get("C_staging") == ((64, 128) if staged else None)
    assert_same_counts(kernel, schedule, result)
    assert_same_events(kernel, schedule, result)


def test_a_ring_for_each_operand(tmp_path: Path) -> None:
    schedule = solved(
        "NT", title_of(False, "A_shared B_shared"), depth_A=2, depth_B=4, warps_consumer=8
    )
    result = through_tilelang(kernel_of("NT"), schedule, tmp_path)
    assert result.counts == {"A": Counts((1,) * 2, (256,) * 2), "B": Counts((1,) * 4, (256,) * 4)}
    assert result.shapes["A_shared"] == (2, 128, 64)
    assert result.shapes["B_shared"] == (4, 128, 64)
    assert_same_counts(kernel_of("NT"), schedule, result)
    assert_same_events(kernel_of("NT"), schedule, result)


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_the_single_role_is_accepted(staged: bool, tmp_path: Path) -> None:
    title = f"roles worker; rings none; {'staged' if staged else 'direct'} epilogue"
    schedule = solved("NT", title, warps_worker=8)
    result = through_tilelang(kernel_of("NT"), schedule, tmp_path)
    assert [(each.name, each.lo, each.hi) for each in result.ranges] == [("worker", 0, 8)]
    assert result.counts == {}


@pytest.mark.parametrize("blocks", [5, 16])
@pytest.mark.parametrize("raster", list(Raster))
def test_a_persistent_launch_runs_the_ring_on_across_tiles(
    blocks: int, raster: Raster, tmp_path: Path
) -> None:
    plain = solved("NT", title_of(True), depth_A_B=3, warps_consumer=8)
    launch = Launch(blocks, raster, 3 if raster == Raster.GROUPED else 1)
    schedule = evolve(plain, extensions=evolve(plain.extensions, launch=launch))
    result = through_tilelang(kernel_of("NT"), schedule, tmp_path)
    assert result.counts == {"A_B": Counts((1,) * 3, (256,) * 3)}
    assert_same_events(kernel_of("NT"), schedule, result, blocks)


@pytest.mark.parametrize("raster", list(Raster))
def test_a_raster_is_accepted(raster: Raster, tmp_path: Path) -> None:
    plain = solved("NN", title_of(False), depth_A_B=2, warps_consumer=8)
    schedule = evolve(plain, extensions=evolve(plain.extensions, launch=Launch(0, raster, 4)))
    assert through_tilelang(kernel_of("NN"), schedule, tmp_path).num_warps == 12


@pytest.mark.parametrize(
    ("routes", "full"),
    [
        ({}, 1),
        ({"copy_A_shared": CopyRoute.BULK, "copy_B_shared": CopyRoute.BULK}, 1),
        ({"copy_A_shared": CopyRoute.ASYNC, "copy_B_shared": CopyRoute.ASYNC}, 32),
        ({"copy_A_shared": CopyRoute.ELEMENT, "copy_B_shared": CopyRoute.ELEMENT}, 32),
        ({"copy_A_shared": CopyRoute.ELEMENT, "copy_B_shared": CopyRoute.ASYNC}, 64),
        ({"copy_A_shared": CopyRoute.ELEMENT}, 32),
    ],
)
def test_arrive_counts_follow_the_routes(
    routes: dict[str, CopyRoute], full: int, tmp_path: Path
) -> None:
    plain = solved("NT", title_of(False), depth_A_B=2, warps_consumer=4, block_M=64)
    fixed = tuple(Route(op, route) for op, route in routes.items())
    schedule = evolve(plain, extensions=evolve(plain.extensions, routes=fixed))
    result = through_tilelang(kernel_of("NT"), schedule, tmp_path)
    assert result.counts == {"A_B": Counts((full, full), (128, 128))}
    assert_same_counts(kernel_of("NT"), schedule, result)


def test_a_release_before_its_use_is_refused(tmp_path: Path) -> None:
    """The other compiler does look: an exported schedule that breaks a span is turned down."""
    schedule = solved("NT", title_of(False), depth_A_B=2, warps_consumer=8)
    scopes = tuple(
        scope
        if scope.id == WSScope.ROOT
        else evolve(scope, bodies=tuple((role, _early(body)) for role, body in scope.bodies))
        for scope in schedule.ws.scopes
    )
    broken = evolve(schedule, ws=evolve(schedule.ws, scopes=scopes))
    with pytest.raises(Refused, match="ws_schedule"):
        through_tilelang(kernel_of("NT"), broken, tmp_path)


def _early(body: tuple[object, ...]) -> tuple[object, ...]:
    last = body[-1]
    if isinstance(last, WSSync) and last.kind == WSSyncKind.CONSUMER_RELEASE:
        return (*body[:-2], last, body[-2])
    return body


RUNS = sorted(each.parent for each in RESULTS.glob("*/best.json"))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_was_measured_is_accepted(run: Path, tmp_path: Path) -> None:
    """What was timed on the card goes back into a TileLang kernel: split consumers as one role."""
    recorded = load(run)
    workload = load_workload(recorded.info.space)
    problem = workload.problem(dict.fromkeys("MNK", int(run.name.split("-")[1])), "bfloat16")
    space = space_of(workload, problem, H200)
    timed = sorted((t for t in recorded.trials if t.time_us), key=lambda t: t.time_us or 0.0)
    schedule = next(
        schedule
        for schedule in (space.candidate(trial.choices) for trial in timed)
        if schedule.extensions.splits and not refusals(merge_splits(schedule))
    )
    theirs = through_tilelang(space.kernel, schedule, tmp_path)
    ranges = {name: (each.lo, each.hi) for name, each in theirs.roles.items()}
    producers = schedule.ws.role("producer").warps_hi
    assert ranges == {"producer": (0, producers), "consumer": (4, 12)}
    assert theirs.counts == {
        ring.name: Counts((1,) * ring.depth, (256,) * ring.depth) for ring in schedule.ws.pipelines
    }
    (ring,) = (ring for ring in schedule.ws.pipelines if "A_shared" in ring.buffers)
    tile = dict(schedule.binding.params)
    assert theirs.shapes["A_shared"] == (ring.depth, tile["block_M"], tile["block_K"])
