"""The loop scheduler: the known answers, its proofs, and what it refuses."""

from __future__ import annotations

import itertools
import random

import pytest

from explorer.constraints.loop_schedule import (
    Effort,
    broken_constraint,
    schedule_line,
    schedule_loop,
)
from explorer.constraints.loop_schedule.layout import layout_of
from explorer.constraints.loop_schedule.model import solve_interval
from explorer.constraints.loop_schedule.search import IntervalSearch, Verdict
from explorer.errors import ScheduleError
from explorer.machine import Pipe
from explorer.schedule.loop import (
    LineProblem,
    LoopDependence,
    LoopProblem,
    LoopTask,
    MemoryGroup,
    OwnerExclusion,
    SolveStatus,
    VersionRing,
)
from tests.interop_tilelang.loop_graphs import random_problem

KIB = 1024


def task(latency: int, interval: int, pipe: Pipe, stage: int | None = None) -> LoopTask:
    return LoopTask(f"{pipe}{latency}", latency, interval, (pipe,), stage=stage)


def load_compute(
    num_stages: int,
    version_bytes: int = 0,
    capacity: int | None = None,
    stages: tuple[int | None, int | None] = (None, None),
    offset: bool = False,
    stage_order: tuple[tuple[int, int], ...] = (),
) -> LoopProblem:
    """A load of 100 cycles, a computation of 60 that reads it, one buffer between them."""
    group = () if capacity is None else (MemoryGroup("shared", capacity, (0,)),)
    return LoopProblem(
        (task(100, 50, Pipe.MTE2, stages[0]), task(60, 60, Pipe.VECTOR, stages[1])),
        (LoopDependence(0, 1, 100), LoopDependence(1, 0, 60, ring=0)),
        rings=(VersionRing("buffer", version_bytes),),
        groups=group,
        num_stages=num_stages,
        offset=offset,
        stage_order=stage_order,
    )


@pytest.mark.parametrize(
    ("num_stages", "versions", "interval"), [(1, 1, 160), (2, 2, 80), (3, 3, 60)]
)
def test_versions_shorten_the_interval(num_stages: int, versions: int, interval: int) -> None:
    solution = schedule_loop(load_compute(num_stages))
    assert solution.status == SolveStatus.OPTIMAL
    assert (solution.interval, solution.versions) == (interval, (versions,))


@pytest.mark.parametrize(
    ("capacity", "versions", "interval"), [(60 * KIB, 1, 160), (64 * KIB, 2, 80)]
)
def test_versions_fit_the_memory(capacity: int, versions: int, interval: int) -> None:
    solution = schedule_loop(load_compute(3, 32 * KIB, capacity))
    assert (solution.interval, solution.versions) == (interval, (versions,))


def test_less_than_one_version_is_infeasible() -> None:
    solution = schedule_loop(load_compute(3, 32 * KIB, 16 * KIB))
    assert solution.status == SolveStatus.INFEASIBLE
    assert "32768 B > 16384 B of shared" in solution.reason


def test_two_rings_fill_the_memory_exactly() -> None:
    problem = LoopProblem(
        (
            task(100, 50, Pipe.MTE2),
            task(100, 50, Pipe.MTE2),
            task(60, 60, Pipe.VECTOR),
        ),
        (
            LoopDependence(0, 2, 100),
            LoopDependence(1, 2, 100),
            LoopDependence(2, 0, 60, ring=0),
            LoopDependence(2, 1, 60, ring=1),
        ),
        rings=(VersionRing("a", 32 * KIB), VersionRing("b", 16 * KIB)),
        groups=(MemoryGroup("shared", 96 * KIB, (0, 1)),),
        num_stages=4,
    )
    solution = schedule_loop(problem)
    assert (solution.interval, solution.versions) == (105, (2, 2))


def test_manual_stages() -> None:
    solution = schedule_loop(load_compute(2, stages=(0, 1), offset=True))
    assert (solution.interval, solution.starts) == (80, (0, 100))
    refused = schedule_loop(load_compute(2, stages=(1, 0), offset=True))
    assert refused.status == SolveStatus.INFEASIBLE
    assert refused.reason.startswith("pipe-order")


@pytest.mark.parametrize(
    ("stages", "offset", "message"),
    [
        ((0, -1), True, "is negative"),
        ((0, None), True, "1 stages for 2 tasks"),
        ((0, 1), False, "enable_offset"),
    ],
)
def test_stages_that_are_refused(
    stages: tuple[int | None, int | None], offset: bool, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        load_compute(2, stages=stages, offset=offset)


def test_owners_exclude_each_other() -> None:
    work = (task(40, 40, Pipe.MTE2), task(30, 30, Pipe.VECTOR))
    assert schedule_loop(LoopProblem(work)).interval == 40
    held = LoopProblem(work, exclusions=(OwnerExclusion(0, 1, 40, 30),))
    assert schedule_loop(held).interval == 70


def test_one_pipe_one_task_at_a_time() -> None:
    problem = LoopProblem((task(10, 10, Pipe.MTE2), task(7, 7, Pipe.MTE2)))
    assert schedule_loop(problem).interval == 17


@pytest.mark.parametrize(("distance", "interval"), [(1, 50), (2, 25)])
def test_a_task_that_waits_for_itself(distance: int, interval: int) -> None:
    problem = LoopProblem((task(50, 10, Pipe.VECTOR),), (LoopDependence(0, 0, 50, distance),))
    assert schedule_loop(problem).interval == interval


def test_stage_order() -> None:
    solution = schedule_loop(load_compute(2, stage_order=((1, 0),)))
    assert (solution.interval, solution.versions) == (101, (2,))


def test_32_tasks_on_one_pipe() -> None:
    problem = LoopProblem(
        tuple(task(10, 10, Pipe.VECTOR) for _ in range(32)),
        tuple(LoopDependence(2 * at, 2 * at + 1, 20) for at in range(16)),
    )
    solution = schedule_loop(problem)
    assert (solution.status, solution.interval) == (SolveStatus.OPTIMAL, 320)


def test_a_late_last_use_needs_another_version() -> None:
    """The last use starts after the next write: versions >= ceil((use + latency - write) / II)."""
    problem = LoopProblem(
        (task(10, 10, Pipe.MTE2), task(10, 10, Pipe.VECTOR), task(50, 50, Pipe.MTE3)),
        (
            LoopDependence(0, 1, 10),
            LoopDependence(1, 2, 50),
            LoopDependence(0, 2, 10),
            LoopDependence(2, 0, 5, ring=0),
        ),
        rings=(VersionRing("index", 4),),
        num_stages=3,
    )
    solution = schedule_loop(problem)
    assert (solution.interval, solution.versions) == (50, (2,))
    assert broken_constraint(problem, 50, solution.starts, (1,)) is not None


def test_straight_lines() -> None:
    chain = LineProblem(
        (task(10, 10, Pipe.MTE2), task(20, 20, Pipe.VECTOR), task(30, 30, Pipe.MTE3)),
        (LoopDependence(0, 1, 10), LoopDependence(1, 2, 20)),
    )
    assert schedule_line(chain).starts == (0, 10, 30)
    loads = LineProblem((task(20, 5, Pipe.MTE2), task(20, 5, Pipe.MTE2)))
    assert sorted(schedule_line(loads).starts) == [0, 5]
    owners = LineProblem(
        (task(30, 30, Pipe.MTE2), task(7, 7, Pipe.VECTOR)),
        exclusions=(OwnerExclusion(0, 1, 30, 7),),
    )
    assert schedule_line(owners).starts == (7, 0)
    with pytest.raises(ScheduleError, match="no tasks"):
        LineProblem(())


def test_a_cycle_within_one_iteration_has_no_schedule() -> None:
    problem = LoopProblem(
        (task(5, 5, Pipe.MTE2), task(5, 5, Pipe.VECTOR)),
        (LoopDependence(0, 1, 5), LoopDependence(1, 0, 5)),
    )
    assert schedule_loop(problem).status == SolveStatus.INFEASIBLE
    line = LineProblem(problem.tasks, problem.dependences)
    assert schedule_line(line).status == SolveStatus.INFEASIBLE


def test_a_bounded_effort_is_never_infeasible() -> None:
    """What was not decided is 'feasible, not proven' or 'unknown'."""
    for seed in (22, 27, 28, 33):
        solution = schedule_loop(random_problem(seed, 4 + seed % 37), Effort(1, 1))
        assert solution.status != SolveStatus.INFEASIBLE
        if solution.status == SolveStatus.FEASIBLE:
            assert "not proven" in str(solution)
            assert solution.bound < solution.interval


@pytest.mark.parametrize("seed", range(37))
def test_random_loops_are_optimal(seed: int) -> None:
    problem = random_problem(seed, 4 + seed % 37)
    solution = schedule_loop(problem)
    assert solution.status == SolveStatus.OPTIMAL
    layout = layout_of(problem)
    # The solver cannot count a full pipe; it must not find a schedule that counting excludes.
    below = solve_interval(IntervalSearch(layout, solution.interval - 1), 200_000)
    assert below.verdict != Verdict.FOUND


@pytest.mark.parametrize("seed", range(16))
def test_tiny_loops_against_enumeration(seed: int) -> None:
    draw = random.Random(seed)
    pipes = (Pipe.MTE2, Pipe.VECTOR)
    work = tuple(task(draw.randint(1, 4), draw.randint(1, 3), draw.choice(pipes)) for _ in "abc")
    problem = LoopProblem(
        work,
        (
            LoopDependence(0, 1, work[0].latency),
            LoopDependence(1, 2, work[1].latency),
            LoopDependence(2, 0, work[2].latency, ring=0),
            LoopDependence(1, 0, work[1].latency, draw.randint(1, 2)),
        ),
        exclusions=(OwnerExclusion(0, 2, 1, 2),) if draw.random() < 0.4 else (),
        rings=(VersionRing("r", 8),),
        groups=(MemoryGroup("shared", draw.choice((8, 16)), (0,)),),
        num_stages=2,
        offset=draw.random() < 0.5,
        stage_order=((2, 0),) if draw.random() < 0.3 else (),
        pipe_order=((1, 0),) if draw.random() < 0.3 else (),
    )
    solution = schedule_loop(problem)
    assert solution.interval == _least(problem)


def _least(problem: LoopProblem) -> int:
    """The least interval by trying all starts below three intervals, and all versions."""
    capacity = problem.groups[0].capacity_bytes // problem.rings[0].version_bytes
    most = (min(capacity, problem.num_stages),)
    legal = (
        interval
        for interval in range(1, 14)
        for starts in itertools.product(range(3 * interval), repeat=3)
        if broken_constraint(problem, interval, starts, most) is None
    )
    return next(legal, 0)
