"""This project's loop scheduler against TileLang's: never a larger interval, and much faster."""

from __future__ import annotations

import time

import pytest
from tilelang.ascend.transform.z3_scheduler import z3_schedule_loop_python

from explorer.constraints.loop_schedule import broken_constraint, schedule_loop
from explorer.schedule.loop import LoopProblem, SolveStatus
from tests.interop_tilelang.loop_graphs import random_problem, tilelang_arguments

pytestmark = pytest.mark.interop
FACTOR = 5


def _compare(problem: LoopProblem) -> tuple[float, float]:
    """Seconds of this scheduler and of TileLang's, after their answers were compared."""
    begin = time.perf_counter()
    ours = schedule_loop(problem)
    middle = time.perf_counter()
    _, _, theirs = z3_schedule_loop_python(**tilelang_arguments(problem))
    end = time.perf_counter()
    assert ours.status == SolveStatus.OPTIMAL
    assert ours.interval <= theirs
    assert broken_constraint(problem, ours.interval, ours.starts, ours.versions) is None
    return middle - begin, end - middle


@pytest.mark.parametrize("count", [4, 5, 6, 8, 10, 12, 14])
def test_small_loops(count: int) -> None:
    for seed in range(8):
        _compare(random_problem(1000 * count + seed, count))


@pytest.mark.timeout(600)
def test_loops_of_16_tasks_and_more_take_a_fifth_of_the_time() -> None:
    times = [
        _compare(random_problem(seed, count)) for seed, count in enumerate((16, 20, 26, 32, 40))
    ]
    ours, theirs = map(sum, zip(*times, strict=True))
    assert theirs >= FACTOR * ours


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_500_loops_of_4_to_40_tasks() -> None:
    times = []
    for seed in range(500):
        count = 4 + seed % 37
        pair = _compare(random_problem(seed, count))
        if count >= 16:
            times.append(pair)
    ours, theirs = map(sum, zip(*times, strict=True))
    assert theirs >= FACTOR * ours
