"""Ping-pong schedules that derive proposes: legal, and right when simulated, for any tile count.

A block that works on 1, 2, 3 or many tiles, an odd number among them, neither hangs nor races and
computes what the kernel does. A staging buffer that both consumers write is refused without a
pipeline, and some interleaving shows why.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from attrs import evolve

from explorer.constraints import FeasibleModel, Status, check
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import H200
from explorer.passes import materialize
from explorer.program.simulator import simulate, trace
from explorer.program.verdict import Finished, Race
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import Launch, Raster
from explorer.schedule.ws import WSSchedule, WSScope, WSSync, WSSyncKind
from explorer.space import SearchSpace, build_space
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.gemm import gemm

TILES = {"block_M": (64, 128), "block_N": (16, 64), "block_K": (16, 32)}
KERNELS = {
    "nn": gemm(136, 40, 70, "float16"),
    "tt": gemm(136, 40, 70, "float16", transpose_a=True, transpose_b=True),
    "epilogue": gemm_epilogue(136, 40, 40, dtype="float16"),
}


def turning(space: SearchSpace) -> list[int]:
    return [n for n, s in enumerate(space.skeletons) if "consumer_0/consumer_1" in s.title]


def with_blocks(schedule: Schedule, blocks: int) -> Schedule:
    launch = Launch(blocks, Raster.HILBERT)
    return evolve(schedule, extensions=evolve(schedule.extensions, launch=launch))


def drawn(kernel: Kernel, count: int) -> list[Schedule]:
    tiles = {name: values for name, values in TILES.items() if name in kernel.params}
    space = build_space(kernel, H200, tiles)
    skeletons = turning(space)
    model, draw = FeasibleModel(space), random.Random(5)
    found = []
    for number in range(count):
        wish = {choice.name: draw.choice(choice.domain) for choice in space.choices}
        wish["skeleton"] = skeletons[number % len(skeletons)]
        near = model.project(wish)
        assert near.status == Status.FOUND
        assignment = dict(near.assignment)
        model.forbid(assignment)
        if assignment["skeleton"] in skeletons:
            found.append(space.candidate(assignment))
    assert found
    return found


@pytest.mark.parametrize("name", list(KERNELS))
def test_derived_turns_are_right_for_every_number_of_tiles(name: str) -> None:
    kernel, rng = KERNELS[name], np.random.default_rng(4)
    inputs = {
        tensor.name: rng.standard_normal([int(e) for e in tensor.shape]).astype(tensor.dtype.numpy)
        for tensor in kernel.tensors[:-1]
    }
    for seed, schedule in enumerate(drawn(kernel, 4)):
        for blocks in (1, 2, 100):
            placed = with_blocks(schedule, blocks)
            assert check(kernel, placed, H200).violations == ()
            verdict = simulate(materialize(kernel, placed, H200), inputs, seed=seed)
            assert isinstance(verdict, Finished), (placed, verdict)
            for output, value in run(kernel.at(**placed.params), inputs).items():
                want = np.asarray(value, np.float64)
                error = np.linalg.norm(np.asarray(verdict.output(output), np.float64) - want)
                assert error <= 2e-3 * np.linalg.norm(want), (placed, output)


def test_a_launch_of_one_tile_a_block_has_no_turns_to_take() -> None:
    (schedule, *_) = drawn(KERNELS["nn"], 1)
    once = with_blocks(schedule, 0)
    assert "turn-form" in {v.rule for v in check(KERNELS["nn"], once, H200).violations}


def without(schedule: Schedule, pipeline: str) -> Schedule:
    """The schedule without a pipeline and its synchronization."""
    ws = schedule.ws
    scopes = [
        WSScope(
            scope.id,
            {
                role: [e for e in body if not (isinstance(e, WSSync) and e.pipeline == pipeline)]
                for role, body in scope.bodies
            },
        )
        for scope in ws.scopes
    ]
    rings = [ring for ring in ws.pipelines if ring.name != pipeline]
    return evolve(schedule, ws=WSSchedule(ws.num_warps, ws.roles, rings, scopes))


@pytest.mark.parametrize(
    ("pipeline", "rule"), [("C_staging", "dependence-coverage"), ("order_ko", "turn-phase")]
)
def test_what_the_consumers_hand_on_is_needed(pipeline: str, rule: str) -> None:
    kernel = KERNELS["nn"]
    staged = [s for s in drawn(kernel, 8) if s.extensions.staged]
    for schedule in staged:
        deep = schedule.ws.pipeline("A_B").depth
        found = check(kernel, without(with_blocks(schedule, 1), pipeline), H200)
        rules = {violation.rule for violation in found.violations}
        if pipeline == "C_staging" or deep % 2:
            assert rule in rules


def test_a_shared_staging_buffer_without_a_pipeline_races() -> None:
    kernel = KERNELS["nn"]
    schedule = next(s for s in drawn(kernel, 8) if s.extensions.staged)
    program = materialize(kernel, without(with_blocks(schedule, 1), "C_staging"), H200)
    verdicts = [trace(program, seed) for seed in range(40)]
    assert any(isinstance(verdict, Race) for verdict in verdicts)


def swapped(schedule: Schedule, pipeline: str) -> Schedule:
    """The schedule with the sides of a pipeline exchanged."""
    acquire, commit, wait, release = WSSyncKind
    other = {acquire: wait, wait: acquire, commit: release, release: commit}
    scopes = [
        WSScope(
            scope.id,
            {
                role: [
                    evolve(e, kind=other[e.kind])
                    if isinstance(e, WSSync) and e.pipeline == pipeline
                    else e
                    for e in body
                ]
                for role, body in scope.bodies
            },
        )
        for scope in schedule.ws.scopes
    ]
    return evolve(schedule, ws=evolve(schedule.ws, scopes=scopes))


def test_the_first_of_a_round_stands_on_the_producers_side() -> None:
    """Otherwise the buffer would be handed on against the order of the tiles."""
    kernel = KERNELS["nn"]
    schedule = next(s for s in drawn(kernel, 8) if s.extensions.staged)
    found = check(kernel, swapped(with_blocks(schedule, 1), "C_staging"), H200)
    assert "ring-order" in {violation.rule for violation in found.violations}
