"""The solver's model and the checker say the same, and the model never returns a refused one."""

from __future__ import annotations

import random

import pytest

from explorer.constraints import FeasibleModel, Status, check, check_plan
from explorer.machine import CPU, H200, Machine
from explorer.space import SKELETON, SearchSpace, build_space
from tests.kernels.gemm import gemm

TILES = {
    "cpu": {"block_M": (32, 96, 128), "block_N": (64, 128, 200), "block_K": (64, 100, 128)},
    "h200": {"block_M": (64, 128, 192), "block_N": (64, 96, 256), "block_K": (32, 64, 128)},
}


def space(machine: Machine) -> SearchSpace:
    """Loops long enough that no refusal of the deadlock rule is dropped as unreachable."""
    dtype = "bfloat16" if machine is H200 else "float32"
    return build_space(gemm(512, 384, 8192, dtype), machine, TILES[machine.name])


def wishes(searched: SearchSpace, count: int) -> list[dict[str, int]]:
    rng = random.Random(7)
    return [{c.name: rng.choice(c.domain) for c in searched.choices} for _ in range(count)]


@pytest.mark.parametrize("machine", [CPU, H200], ids=lambda machine: machine.name)
def test_model_and_checker_agree(machine: Machine) -> None:
    searched = space(machine)
    model = FeasibleModel(searched)
    verdicts = set()
    # What is drawn at random is seldom legal.
    drawn = list(wishes(searched, 60))
    legal_ones = [dict(model.project(wish).assignment) for wish in drawn[:10]]
    for wish in (*drawn, *legal_ones):
        assignment = searched.canonical(wish)
        plan = searched.skeletons[assignment[SKELETON]].plan
        legal = check_plan(plan, assignment, machine).ok
        assert model.is_legal(assignment) == legal
        verdicts.add(legal)
    assert verdicts == {True, False}


@pytest.mark.parametrize("machine", [CPU, H200], ids=lambda machine: machine.name)
def test_projections_are_legal_schedules(machine: Machine) -> None:
    searched = space(machine)
    model = FeasibleModel(searched)
    seen = set()
    for wish in wishes(searched, 40):
        near = model.project(wish)
        assert near.status == Status.FOUND
        assignment = dict(near.assignment)
        model.forbid(assignment)
        assert near.assignment not in seen
        seen.add(near.assignment)
        schedule = searched.candidate(assignment)
        assert check(searched.kernel, schedule, machine).violations == ()


def test_a_legal_wish_is_kept() -> None:
    searched = space(CPU)
    model = FeasibleModel(searched)
    found = dict(model.project(wishes(searched, 1)[0]).assignment)
    assert dict(model.project(found).assignment) == found


def test_a_small_space_is_exhausted_and_says_so() -> None:
    """C41: every legal assignment once, then 'exhausted'."""
    searched = space(CPU).restricted(
        skeleton=(0, 1),
        block_M=(32,),
        block_N=(64,),
        block_K=(64, 100),
        blocks=(1,),
        raster=(0,),
        mma_m=(8,),
        warps_consumer=(1,),
        warps_producer=(1,),
        warps_worker=(1, 2),
        depth_A_B=(1, 2),
    )
    model = FeasibleModel(searched)
    found = []
    while (near := model.project(wishes(searched, 1)[0])).status == Status.FOUND:
        found.append(near.assignment)
        model.forbid(dict(near.assignment))
    assert near.status == Status.EXHAUSTED
    assert len(found) == len(set(found)) == 8


def test_an_empty_space_names_the_rules() -> None:
    searched = space(H200).restricted(block_M=(96,))
    model = FeasibleModel(searched)
    assert model.project(wishes(searched, 1)[0]).status == Status.EXHAUSTED
    reasons = model.explain_empty()
    assert [reason.split(":")[0] for reason in reasons] == ["matrix-tile"]
    assert "choose tile sizes that are multiples" in reasons[0]
