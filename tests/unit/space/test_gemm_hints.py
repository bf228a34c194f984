"""What is tried first for a GEMM: shapes with few tiles get parts of the reduction."""

from __future__ import annotations

import pytest

from explorer.constraints import check
from explorer.errors import InputError
from explorer.machine import H200
from explorer.runtime import load_workload
from explorer.space import Problem, space_of
from explorer.tune.prior import hinted_target
from tests.support.fakes import small_workload


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        # Tiles of 128 x 128, 128 x 64, 64 x 112, 64 x 64 and 64 x 128.
        ((1024, 1024, 16384), [2, 1, 1, 1, 1]),
        ((128, 7168, 4096), [2, 1, 1, 1, 1]),
        ((512, 512, 8192), [8, 4, 3, 2, 4]),
        ((64, 7168, 18432), [2, 1, 2]),
        ((16, 4096, 16384), [3, 2, 4]),
        # A part has four iterations or more.
        ((128, 128, 512), [2, 2, 2, 2, 2]),
        ((8192, 8192, 8192), []),
    ],
)
def test_few_tiles_are_worked_on_in_parts(sizes: tuple[int, int, int], parts: list[int]) -> None:
    workload = load_workload("gemm_nt")
    problem = workload.problem(dict(zip("MNK", sizes, strict=True)), "bfloat16")
    hints = workload.suggestions("h200", problem)
    found = [hint.values["split"] for hint in hints if "split" in hint.values]
    assert found == parts
    space = space_of(workload, problem, H200)
    for hint in hints[: len(parts)]:
        target = hinted_target(space, hint)
        assert target is not None
        schedule = space.candidate(space.canonical(target))
        assert check(space.kernel, schedule, H200).ok
        assert schedule.extensions.launch.split == hint.values["split"]


def test_a_function_of_hints_that_raises_is_named() -> None:
    def fail(problem: Problem) -> tuple[()]:
        raise ValueError("two\nlines")

    workload = small_workload(hints={"cpu": fail})
    with pytest.raises(InputError, match=r"toy\.hints raised ValueError: two lines"):
        workload.suggestions("cpu", workload.problem())
