"""Schedules of gemms computed transposed: legal, right when simulated, kept on disk."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from explorer.constraints import check
from explorer.data import dumps, loads
from explorer.errors import NoLegalCandidate
from explorer.ir.interpreter import run
from explorer.machine import CPU, H200
from explorer.passes import materialize
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished, Race
from explorer.runtime import load_workload, machine_here
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import MatrixTile, StagedStore, Swapped
from explorer.schedule.plan import fix, open_plan
from explorer.schedule.printer import show_schedule
from explorer.space import SearchSpace, space_of
from explorer.tune import first_legal
from tests.support.cpu_candidates import draw, error, run_schedule
from tests.support.cuda_candidates import (
    DIRECT,
    SMALL,
    STAGED,
    STORER,
    candidate,
    gemm_space,
    program_of,
)

GEMM = "gemm_C_local"
SWAPPED = "roles producer+consumer; rings A_shared+B_shared; swapped {} epilogue"


def swapped(schedule: Schedule, *gemms: str, n: int = 0) -> Schedule:
    """The schedule with those gemms swapped, in instructions of n columns."""
    matrix = (MatrixTile(GEMM, 64, n),) if n else schedule.extensions.matrix
    extensions = evolve(schedule.extensions, swapped=tuple(map(Swapped, gemms)), matrix=matrix)
    return evolve(schedule, extensions=extensions)


def broken(space: SearchSpace, schedule: Schedule) -> dict[str, str]:
    report = check(space.kernel, schedule, H200)
    return {each.rule: each.message for each in report.violations}


SPACE = gemm_space("gemm_nt", (100, 256, 96))
SPLIT = SMALL | {"block_K": 32, "depth_A_B": 2}
INPUTS = {
    "A": np.random.default_rng(0).standard_normal((100, 96)),
    "B": np.random.default_rng(1).standard_normal((256, 96)),
}


@pytest.mark.parametrize("name", ["gemm", "gemm_tn", "gemm_residual", "gemm_batched"])
def test_sampled_schedules_of_few_rows_are_right(name: str) -> None:
    workload = load_workload(name)
    sizes = {"M": 7, "N": 72, "K": 40} | ({"Z": 2} if "Z" in workload.sizes else {})
    problem = workload.problem(sizes, "bfloat16")
    space = space_of(workload, problem, H200).restricted(
        block_M=(16, 32), block_N=(64,), block_K=(32, 64)
    )
    few = [n for n, each in enumerate(space.skeletons) if "swapped" in each.title]
    assert len(few) == 2
    inputs = workload.draw(problem, np.random.default_rng(2))
    for seed, (title, schedule) in enumerate(draw(space, 2, seed=3, skeletons=few)):
        assert check(space.kernel, schedule, H200).ok
        verdict = simulate(program_of(space, schedule), inputs, seed=seed)
        assert isinstance(verdict, Finished), (title, verdict)
        wanted = run(space.kernel.at(**schedule.params), inputs)["C"].astype(np.float64)
        assert error(verdict.output("C"), wanted) < 4e-3, title


@pytest.mark.parametrize("title", [DIRECT, STORER])
def test_roles_may_split_the_rows_of_the_turned_tile(title: str) -> None:
    schedule = swapped(candidate(SPACE, title, **SPLIT), GEMM, n=128)
    assert not broken(SPACE, schedule)
    verdict = simulate(program_of(SPACE, schedule), INPUTS)
    assert isinstance(verdict, Finished)
    wanted = INPUTS["A"] @ INPUTS["B"].T
    assert error(verdict.output("C"), wanted) < 2e-2


def test_roles_that_split_rows_cannot_stage_columns_for_each_other() -> None:
    """Each writes its columns of the staging buffer and stores rows of it."""
    schedule = swapped(candidate(SPACE, STAGED, **SPLIT), GEMM, n=128)
    found = broken(SPACE, schedule)
    assert list(found) == ["dependence-coverage"]
    assert "rows of C_staging in copy_C_stage that another role of its split" in str(found)
    verdict = simulate(program_of(SPACE, schedule), INPUTS)
    assert isinstance(verdict, Race)


def test_narrow_rows_are_for_swapped_gemms_only() -> None:
    space = gemm_space("gemm_nt", (16, 256, 96))
    titles = [skeleton.title for skeleton in space.skeletons]
    values = {choice.name: choice.domain[0] for choice in space.choices} | SPLIT
    values |= {"block_M": 16, "block_N": 64}
    for title, rules in ((SWAPPED, {}), (SWAPPED.replace("swapped ", ""), {"matrix-tile"})):
        index = titles.index(title.format("direct"))
        found = broken(space, space.candidate(values | {"skeleton": index}))
        assert set(found) == set(rules)


def test_a_tile_of_the_instruction_is_that_of_the_transposed_product() -> None:
    schedule = candidate(SPACE, DIRECT, **SPLIT | {"block_M": 128, "block_N": 128})
    wide = swapped(schedule, GEMM, n=64)
    assert not broken(SPACE, wide)
    assert (
        "128 columns are not whole tiles of 48"
        in broken(SPACE, swapped(schedule, GEMM, n=48))["matrix-tile"]
    )


@pytest.mark.parametrize(
    ("layout", "kind"), [("gemm", "float8_e4m3"), ("gemm_tn", "float32"), ("gemm_tt", "float32")]
)
def test_operands_lie_along_the_reduction_all_the_same(layout: str, kind: str) -> None:
    space = gemm_space(layout, (16, 512, 512), kind)
    few = [n for n, each in enumerate(space.skeletons) if "swapped" in each.title]
    with pytest.raises(NoLegalCandidate, match=r"operand-order"):
        first_legal(space.restricted(skeleton=tuple(few)))


@pytest.mark.parametrize(
    ("gemms", "message"),
    [
        (("nosuch",), "swapped 'nosuch': kernel 'gemm' has no such gemm"),
        (("copy_C",), "swapped 'copy_C': kernel 'gemm' has no such gemm"),
        ((GEMM, GEMM), "the swapped gemm of gemm_C_local is given twice"),
    ],
)
def test_a_schedule_that_names_it_in_vain_is_refused(gemms: tuple[str, ...], message: str) -> None:
    schedule = swapped(candidate(SPACE, DIRECT, **SPLIT), *gemms)
    assert broken(SPACE, schedule)["extension-names"] == message


def test_pieces_of_a_staged_store_are_no_whole_fragments() -> None:
    schedule = swapped(candidate(SPACE, STAGED, **SPLIT), GEMM, n=128)
    staged = (StagedStore("copy_C", "C_staging", 2),)
    schedule = evolve(schedule, extensions=evolve(schedule.extensions, staged=staged))
    message = broken(SPACE, schedule)["extension-names"]
    assert message == "swapped 'gemm_C_local': 'copy_C_stage' copies part of 'C_local'"


def test_it_is_kept_on_disk_printed_and_opened_again() -> None:
    space = gemm_space("gemm_nt", (16, 256, 96))
    small = SMALL | {"block_M": 16, "block_N": 64, "depth_A_B": 2}
    schedule = candidate(space, SWAPPED.format("staged"), **small)
    assert schedule.extensions.swapped == (Swapped(GEMM),)
    assert loads(dumps(schedule), Schedule) == schedule
    assert "  gemm_C_local is computed transposed, its operands swapped\n" in show_schedule(
        schedule
    )
    plan, values = open_plan(space.kernel, schedule.ws, schedule.extensions)
    assert fix(plan, values) == (schedule.ws, schedule.extensions)
    plain = dumps(candidate(space, SWAPPED.format("direct").replace("swapped ", ""), **SMALL))
    old = plain.replace('"swapped": []', '"nothing": []').replace(',\n      "nothing": []', "")
    assert '"swapped"' not in old
    assert loads(old, Schedule).extensions.swapped == ()


@pytest.mark.parametrize("name", ["gemm", "gemm_tt", "gemm_gelu"])
def test_the_cpu_has_no_such_skeletons_and_runs_such_schedules(name: str) -> None:
    workload = load_workload(name)
    problem = workload.problem({"M": 23, "N": 70, "K": 65}, "float32")
    machine = machine_here(CPU, problem.dtype)
    space = space_of(workload, problem, machine)
    assert not any("swapped" in each.title for each in space.skeletons)
    inputs = workload.draw(problem, np.random.default_rng(1))
    square = space.restricted(block_M=(96,), block_N=(96,), block_K=(32,))
    for title, plain in draw(square, 1, skeletons=(0, 1, 3)):
        schedule = swapped(plain, GEMM)
        assert check(space.kernel, schedule, machine).ok
        found = run_schedule(space.kernel, schedule, machine, inputs)["C"]
        assert error(found, workload.expected(problem, inputs)["C"]) < 1e-5, title


def test_the_pass_turns_fragments_and_nothing_else() -> None:
    space = gemm_space("gemm_nt", (16, 256, 96))
    small = SMALL | {"block_M": 16, "block_N": 64, "depth_A_B": 2}
    program = materialize(space.kernel, candidate(space, SWAPPED.format("staged"), **small), H200)
    shapes = {ring.buffer.name: tuple(map(int, ring.buffer.shape)) for ring in program.rings}
    assert shapes == {"A_shared": (16, 64), "B_shared": (64, 64), "C_staging": (16, 64)}
    (private,) = program.roles[1].private
    assert tuple(map(int, private.shape)) == (64, 16)
