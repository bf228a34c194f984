"""Placed programs as compiled C: buffers that share bytes on real threads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from explorer.machine import CPU, Machine
from explorer.passes import materialize
from explorer.passes.share_bytes import share_bytes
from explorer.program.nodes import Program
from explorer.runtime import load_workload, machine_here
from explorer.schedule.extensions import Launch
from explorer.space import space_of
from tests.support.cpu_candidates import Arrays, draw, error, run_program
from tests.support.outcomes import trial
from tests.support.placed import STAGING, moved, staged_attention
from tests.support.sanitizer import run_sanitized, sanitizer_works

WORKER_STAGED = "roles worker; rings none; staged epilogue"
SMALL = {"block_M": (32, 64), "block_N": (32, 64), "block_K": (32, 64)}
FOUR = evolve(CPU, units=4)

needs_sanitizer = pytest.mark.skipif(not sanitizer_works(), reason="no ThreadSanitizer here")


@cache
def worker_gemm() -> tuple[Program, Machine, Arrays, Arrays]:
    """One role of several warps that stages C over a tile of its operands."""
    workload = load_workload("gemm")
    problem = workload.problem({"M": 150, "N": 140, "K": 130})
    space = space_of(workload, problem, machine_here(CPU, problem.dtype)).restricted(
        **SMALL, warps_worker=(2,), blocks=(1,)
    )
    index = [skeleton.title for skeleton in space.skeletons].index(WORKER_STAGED)
    _, schedule = next(draw(space, 1, seed=5, skeletons=(index,)))
    program = materialize(space.kernel, schedule, space.machine)
    inputs = workload.inputs(problem, np.random.default_rng(0))
    return program, space.machine, inputs, workload.reference(problem, inputs)


@cache
def attention() -> tuple[Program, Machine, Arrays, Arrays]:
    draft = staged_attention(FOUR, Launch(1), tokens=False)
    runs = trial(draft.kernel, FOUR, dict(draft.sizes))
    program = materialize(draft.kernel, draft.schedule, FOUR)
    return program, FOUR, runs.inputs, {"O": runs.expected["O"]}


def test_a_worker_stages_over_its_operands() -> None:
    program, machine, inputs, expected = worker_gemm()
    placed = share_bytes(program, machine)
    assert placed.placement is not None
    assert placed.placement.sharers("C_staging")
    found = run_program(placed, machine, inputs, runs=2)
    assert all(error(found[name], value) < 1e-5 for name, value in expected.items())


def test_attention_stages_over_its_queries() -> None:
    program, machine, inputs, expected = attention()
    placed = share_bytes(program, machine)
    assert placed.placement is not None
    assert placed.placement.sharers(STAGING) == {"Q_shared"}
    found = run_program(placed, machine, inputs, runs=3)
    assert error(found["O"], expected["O"]) < 1e-2


def test_an_operand_under_the_staging_of_another_tile_is_wrong() -> None:
    """What the placement says is what is emitted: two operands in the same bytes give nonsense."""
    program, machine, inputs, expected = worker_gemm()
    placed = share_bytes(program, machine)
    assert placed.placement is not None
    clobbered = evolve(placed, placement=moved(placed.placement, "A_shared", "B_shared"))
    found = run_program(clobbered, machine, inputs)
    assert any(error(found[name], value) > 1e-2 for name, value in expected.items())


@needs_sanitizer
def test_placed_programs_are_free_of_races(tmp_path: Path) -> None:
    for program, machine, inputs, expected in (worker_gemm(), attention()):
        placed = share_bytes(program, machine)
        done = run_sanitized(placed, machine, inputs, expected, tmp_path, tolerance=1e-2)
        assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.slow
@needs_sanitizer
def test_bytes_that_change_hands_without_a_meeting_are_a_race(tmp_path: Path) -> None:
    program, machine, inputs, expected = attention()
    placed = share_bytes(program, machine)
    assert placed.placement is not None
    wrong = evolve(placed, placement=moved(placed.placement, STAGING, "V_shared"))
    for _ in range(5):
        done = run_sanitized(wrong, machine, inputs, expected, tmp_path, repeats=10)
        if "data race" in done.stderr:
            return
    raise AssertionError(f"no race was reported: {done.stdout}{done.stderr}")
