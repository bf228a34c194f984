"""Emitted kernels under ThreadSanitizer, as executables of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from explorer.machine import CPU
from explorer.passes import materialize
from explorer.program.nodes import For, Program, RoleSync, Signal, Step, Wait
from explorer.runtime import load_workload, machine_here
from explorer.schedule.bound import Schedule
from explorer.space import SearchSpace, space_of
from tests.support.cpu_candidates import Arrays, draw
from tests.support.sanitizer import run_sanitized, sanitizer_works

SMALL = {"block_M": (32, 64), "block_N": (32, 64), "block_K": (32, 64)}
Steps = tuple[Step, ...]
FEW = (0, 1, 2, 4, 5)

pytestmark = pytest.mark.skipif(not sanitizer_works(), reason="no ThreadSanitizer here")


@cache
def _problem() -> tuple[SearchSpace, Arrays, Arrays]:
    workload = load_workload("gemm")
    problem = workload.problem({"M": 150, "N": 140, "K": 130})
    space = space_of(workload, problem, machine_here(CPU, problem.dtype)).restricted(**SMALL)
    inputs = workload.inputs(problem, np.random.default_rng(0))
    return space, inputs, workload.reference(problem, inputs)


def _clean(space: SearchSpace, schedule: Schedule, folder: Path) -> None:
    _, inputs, expected = _problem()
    program = materialize(space.kernel, schedule, space.machine)
    done = run_sanitized(program, space.machine, inputs, expected, folder)
    assert done.returncode == 0, f"{done.stderr[:3000]}\n{schedule}"


def test_a_few_schedules_are_free_of_races(tmp_path: Path) -> None:
    space, _, _ = _problem()
    chosen = list(draw(space, 1, seed=3, skeletons=FEW))
    assert len(chosen) == len(FEW)
    for _, schedule in chosen:
        _clean(space, schedule, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_many_schedules_are_free_of_races(seed: int, tmp_path: Path) -> None:
    space, _, _ = _problem()
    for _, schedule in draw(space, 1, seed):
        _clean(space, schedule, tmp_path)


def _changed(program: Program, role: str, change: Callable[[Steps], Steps]) -> Program:
    def steps(body: Steps) -> Steps:
        inner = (evolve(s, body=steps(s.body)) if isinstance(s, For) else s for s in body)
        return change(tuple(inner))

    return evolve(
        program,
        roles=tuple(
            evolve(each, body=steps(each.body)) if each.role.name == role else each
            for each in program.roles
        ),
    )


def _without_meetings(body: Steps) -> Steps:
    return tuple(step for step in body if not isinstance(step, RoleSync))


def _released_early(body: Steps) -> Steps:
    """Waits, then signals, then the rest."""
    order = {Wait: 0, Signal: 1}
    return tuple(sorted(body, key=lambda step: order.get(type(step), 2)))


@pytest.mark.parametrize(
    ("choices", "role", "change"),
    [
        ({"skeleton": (0,), "warps_worker": (2,), "blocks": (1,)}, "worker", _without_meetings),
        ({"skeleton": (1,), "depth_A_B": (2,)}, "consumer", _released_early),
    ],
    ids=["no meeting of warps", "slots released before they are read"],
)
def test_a_broken_program_is_a_race(
    choices: dict[str, tuple[int, ...]],
    role: str,
    change: Callable[[Steps], Steps],
    tmp_path: Path,
) -> None:
    space, inputs, expected = _problem()
    part = space.restricted(**choices)
    _, schedule = next(draw(part, 1, skeletons=choices["skeleton"]))
    program = _changed(materialize(space.kernel, schedule, space.machine), role, change)
    # On a busy host all warps of a run may happen to follow each other: try a few times.
    for _ in range(5):
        done = run_sanitized(program, space.machine, inputs, expected, tmp_path, repeats=10)
        if "data race" in done.stderr:
            return
    raise AssertionError(f"no race was reported: {done.stdout}{done.stderr}")
