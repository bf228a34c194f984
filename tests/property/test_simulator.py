"""Random GEMM schedules and random single faults in them.

The former are right under every interleaving tried; the latter are caught or change no result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer.machine import CPU, H200, Machine
from explorer.program.counts import arrivals
from explorer.program.nodes import Drain, Program, Signal, Step, Wait
from explorer.program.simulator import simulate, trace
from explorer.program.steps import signals
from explorer.program.verdict import BadCount, Finished, Hang, Race, Unbalanced
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

QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TILE = (4, 4, 2)
SIZES = dict(zip(("block_M", "block_N", "block_K"), TILE, strict=True))


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    machine: Machine = draw(st.sampled_from((CPU, H200)))
    depth = draw(st.integers(1, 4))
    lag = draw(st.integers(0, depth - 1))
    staged = draw(st.booleans())
    cluster = draw(st.sampled_from((1, 1, 2)))
    launch = Launch(
        draw(st.integers(0, 3)) * cluster,
        draw(st.sampled_from(list(Raster))),
        draw(st.integers(1, 3)),
        cluster,
        draw(st.integers(0, 1)) if cluster > 1 else 0,
        draw(st.integers(1, 3)),
    )
    routes = tuple(
        Route(op, draw(st.sampled_from(list(CopyRoute))))
        for op in ("copy_A", "copy_B")
        if machine is H200
    )
    return {
        "machine": machine,
        "depth": depth,
        "consumers": draw(st.integers(1, 2)),
        "producer_warps": draw(st.integers(1, 2)),
        "consumer_warps": machine.warps_per_group * draw(st.integers(1, 2)),
        "staged": staged,
        "extensions": Extensions(
            lags=(MatrixLag("mma", lag),) if lag else (),
            launch=launch,
            routes=routes,
            staged=(StagedStore("store", "C_stage"),) if staged else (),
        ),
    }


problems = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 13))


@QUICK
@given(problems, options(), st.integers(0, 1000))
def test_random_schedules_are_right(
    problem: tuple[int, int, int], chosen: dict[str, Any], seed: int
) -> None:
    program = gemm_program(*problem, tile=TILE, **chosen)
    inputs = gemm_inputs(*problem)
    expected = meaning(gemm_kernel(*problem), SIZES, inputs)["C"]
    for each in range(seed, seed + 4):
        verdict = simulate(program, inputs, each)
        assert isinstance(verdict, Finished), str(verdict)
        np.testing.assert_allclose(verdict.output("C"), expected, atol=1e-4)


@QUICK
@given(problems, options())
def test_c03_the_arrivals_of_a_phase_are_the_count(
    problem: tuple[int, int, int], chosen: dict[str, Any]
) -> None:
    program = gemm_program(*problem, tile=TILE, **chosen)
    (barriers,) = program.barriers
    for full, count in ((True, barriers.full_count), (False, barriers.empty_count)):
        found = 0
        for role in program.roles:
            threads = role.role.warps * program.threads_per_warp
            one = next((s for s in signals(role.body) if s.full == full), None)
            found += one.blocks * arrivals(one, threads) if one else 0
        assert found == count or problem[2] == 0


FAULTS = ("drop wait", "drop signal", "drop drain", "double signal", "depth", "full", "empty")


def broken(program: Program, fault: str, role: str) -> Program:
    def edit(step: Step) -> list[Step]:
        if fault == "double signal" and isinstance(step, Signal):
            return [step, step]
        dropped = {"drop wait": Wait, "drop signal": Signal, "drop drain": Drain}.get(fault)
        return [] if dropped and isinstance(step, dropped) else [step]

    (barriers,) = program.barriers
    changed = {
        "depth": evolve(barriers, depth=barriers.depth + 1),
        "full": evolve(barriers, full_count=barriers.full_count + 1),
        "empty": evolve(barriers, empty_count=max(1, barriers.empty_count // 2)),
    }.get(fault, barriers)
    return edit_role(evolve(program, barriers=(changed,)), role, edit)


@QUICK
@given(problems, options(), st.sampled_from(FAULTS), st.booleans())
def test_a_single_fault_is_caught_or_changes_no_result(
    problem: tuple[int, int, int], chosen: dict[str, Any], fault: str, producer: bool
) -> None:
    program = gemm_program(*problem, tile=TILE, **chosen)
    consumer = "C" if chosen["consumers"] == 1 else "C1"
    mutated = broken(program, fault, "P" if producer else consumer)
    verdicts = [trace(mutated, seed) for seed in range(4)]
    assert all(isinstance(v, Hang | Race | BadCount | Unbalanced | Finished) for v in verdicts)
    if any(isinstance(verdict, Finished) for verdict in verdicts):
        inputs = gemm_inputs(*problem)
        expected = meaning(gemm_kernel(*problem), SIZES, inputs)["C"]
        for seed, verdict in enumerate(verdicts):
            if isinstance(verdict, Finished):
                run = simulate(mutated, inputs, seed)
                assert isinstance(run, Finished)
                np.testing.assert_allclose(run.output("C"), expected, atol=1e-4)


@QUICK
@given(problems, options(), st.integers(0, 1000))
def test_the_same_seed_gives_the_same_verdict(
    problem: tuple[int, int, int], chosen: dict[str, Any], seed: int
) -> None:
    mutated = broken(gemm_program(*problem, tile=TILE, **chosen), "empty", "P")
    assert str(trace(mutated, seed)) == str(trace(mutated, seed))
