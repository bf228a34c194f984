"""Choices, canonical assignments, candidates, and what a workload refuses."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from explorer.data import dumps, loads
from explorer.errors import InputError, ScheduleError
from explorer.machine import CPU, H200
from explorer.schedule.bound import Schedule, verify_binding
from explorer.schedule.plan import fix, open_plan
from explorer.space import SearchSpace, Workload, build_space, space_of
from tests.kernels.gemm import gemm

TILES = {"block_M": (32, 64), "block_N": (64, 128), "block_K": (32, 64)}


def space() -> SearchSpace:
    return build_space(gemm(256, 256, 256), CPU, TILES)


def first(searched: SearchSpace, **values: int) -> dict[str, int]:
    return {choice.name: choice.domain[0] for choice in searched.choices} | values


def test_choices_have_static_domains_skeleton_first() -> None:
    searched = space()
    assert searched.choices[0].name == "skeleton"
    names = [choice.name for choice in searched.choices]
    assert len(names) == len(set(names)) and set(TILES) < set(names)
    assert searched.digest == space().digest


def test_unused_choices_are_pinned() -> None:
    searched = space()
    assignment = searched.canonical(first(searched, skeleton=0, depth_A_B=5, warps_worker=2))
    assert assignment["depth_A_B"] == searched.choice("depth_A_B").domain[0]
    assert assignment["warps_worker"] == 2


def test_candidate_is_bound_and_round_trips() -> None:
    searched = space()
    schedule = searched.candidate(first(searched, skeleton=3, depth_A_B=4))
    assert schedule.params == {"block_M": 32, "block_N": 64, "block_K": 32}
    assert schedule.ws.pipeline("A_B").depth == 4
    assert loads(dumps(schedule), Schedule) == schedule
    verify_binding(schedule.binding, searched.kernel, "cpu")


def test_open_plan_is_the_inverse_of_fix() -> None:
    searched = space()
    for skeleton in range(len(searched.skeletons)):
        schedule = searched.candidate(first(searched, skeleton=skeleton))
        plan, values = open_plan(
            searched.kernel.at(**schedule.params), schedule.ws, schedule.extensions
        )
        assert fix(plan, values) == (schedule.ws, schedule.extensions)


def test_a_schedule_of_another_kernel_names_the_first_difference() -> None:
    searched = space()
    binding = searched.candidate(first(searched)).binding
    with pytest.raises(ScheduleError, match="bound to another machine: 'cpu' there, 'h200' here"):
        verify_binding(binding, searched.kernel, "h200")
    with pytest.raises(ScheduleError, match="bound to another kernel digest"):
        verify_binding(binding, gemm(512, 256, 256), "cpu")
    doubled = evolve(binding, params=(*binding.params, ("block_M", 64)))
    with pytest.raises(ScheduleError, match="gives Params twice: block_M"):
        verify_binding(doubled, searched.kernel, "cpu")


def test_domains_can_be_restricted_but_not_invented() -> None:
    assert space().restricted(block_M=(64,)).choice("block_M").domain == (64,)
    with pytest.raises(KeyError):
        space().restricted(block_Q=(1,))


def test_a_missing_tile_size_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no values for the tile size 'block_K'"):
        build_space(gemm(8, 8, 8), CPU, {"block_M": (8,), "block_N": (8,)})


def test_tile_sizes_have_usual_values() -> None:
    searched = build_space(gemm(256, 256, 256), CPU)
    assert searched.choice("block_M").domain == (16, 32, 64, 128, 256)
    with pytest.raises(InputError, match="tile size block_M has the values 64"):
        build_space(gemm(8, 8, 8), CPU, {**TILES, "block_M": 64})  # type: ignore[dict-item]


def workload() -> Workload:
    return Workload(
        name="toy",
        sizes={"M": 8, "N": 8},
        kernel=lambda problem: gemm(problem["M"], problem["N"], 8, problem.dtype.name),
        tiles={"cpu": TILES},
        inputs=lambda problem, rng: {"A": rng.standard_normal((8, 8), np.float32)},
        reference=lambda problem, arrays: arrays,
        work=lambda problem: 1.0,
        tolerance={"float32": 1e-5},
    )


@pytest.mark.parametrize(
    ("sizes", "dtype", "message"),
    [
        ({"Q": 1}, None, "unknown size 'Q': toy has M, N"),
        ({"M": 0}, None, "size M=0 must be a positive integer"),
        ({"M": -3}, None, "size M=-3 must be a positive integer"),
        ({"M": 2.5}, None, "size M=2.5 must be a positive integer"),
        ({"M": True}, None, "size M=True must be a positive integer"),
        ({}, "float99", "unknown dtype 'float99'"),
        ({}, "int8", "toy does not run on int8: it takes float32"),
    ],
)
def test_bad_problems(sizes: dict[str, int], dtype: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        workload().problem(sizes, dtype)


def test_space_of_a_workload() -> None:
    toy = workload()
    assert space_of(toy, toy.problem({"M": 4}), CPU).size > 0
    with pytest.raises(InputError, match="toy has no tile sizes for h200: it has them for cpu"):
        space_of(toy, toy.problem(), H200)
