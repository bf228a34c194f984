"""What is tried first for a GEMM: shapes with few tiles get parts of the reduction."""

from __future__ import annotations

from itertools import pairwise

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
        # Tiles of 128 x 128, 128 x 64, 64 x 112, 64 x 128, 64 x 64 and 64 x 128.
        ((1024, 1024, 16384), [2, 1, 1, 1, 1, 1]),
        ((128, 7168, 4096), [2, 1, 1, 1, 1, 1]),
        ((512, 512, 8192), [8, 4, 3, 4, 2, 4]),
        ((64, 7168, 18432), [2, 2, 1, 2]),
        # A part has four iterations or more.
        ((128, 128, 512), [2, 2, 2, 2, 2, 2]),
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


@pytest.mark.parametrize(
    ("sizes", "tiles"),
    [
        # 288 tiles are 2.2 waves, 576 are 4.4; in 384, 1152 and 2304 the last wave is fuller.
        ((3072, 3072, 4096), {(128, 256), (256, 128), (128, 128), (64, 256)}),
        # 704 tiles are 5.3 waves.
        ((4096, 4096, 4096), {(128, 192)}),
        ((1024, 1024, 16384), set()),
    ],
)
def test_the_last_tiles_are_streamed_where_their_wave_is_far_from_full(
    sizes: tuple[int, int, int], tiles: set[tuple[int, int]]
) -> None:
    workload = load_workload("gemm_nt")
    problem = workload.problem(dict(zip("MNK", sizes, strict=True)), "bfloat16")
    hints = workload.suggestions("h200", problem)
    space = space_of(workload, problem, H200)
    found = set()
    for plain, hint in pairwise(hints):
        if not hint.values.get("stream"):
            continue
        assert (hint.skeleton, dict(hint.values)) == (
            plain.skeleton,
            {**plain.values, "stream": 1},
        )
        target = hinted_target(space, hint)
        assert target is not None
        schedule = space.candidate(space.canonical(target))
        assert check(space.kernel, schedule, H200).ok
        assert schedule.extensions.launch.stream
        found.add((hint.values["block_M"], hint.values["block_N"]))
    assert found == tiles


@pytest.mark.parametrize(
    ("sizes", "rows", "columns", "pairs"),
    [
        # 21 x 25 tiles are 3.98 waves, 22 x 24 are 4, 16 x 16 are 1.94.
        ((4000, 4000, 4000), 192, 160, False),
        ((4104, 4104, 4104), 192, 176, True),
        ((3072, 3072, 3072), 192, 192, False),
        # 33 x 52 tiles are 13 waves.
        ((8200, 8200, 8200), 256, 160, True),
    ],
)
def test_a_tile_whose_waves_are_full_is_tried(
    sizes: tuple[int, int, int], rows: int, columns: int, pairs: bool
) -> None:
    workload = load_workload("gemm_nt")
    problem = workload.problem(dict(zip("MNK", sizes, strict=True)), "bfloat16")
    tiles = {
        (hint.values["block_M"], hint.values["block_N"], hint.values.get("cluster", 1) > 1): hint
        for hint in workload.suggestions("h200", problem)
        if "staged in" in hint.skeleton
    }
    hint = tiles[(rows, columns, pairs)]
    space = space_of(workload, problem, H200)
    target = hinted_target(space, hint)
    assert target is not None
    schedule = space.candidate(space.canonical(target))
    assert check(space.kernel, schedule, H200).ok
    deeper = space.candidate(space.canonical({**target, "depth_A_B": target["depth_A_B"] + 1}))
    assert not check(space.kernel, deeper, H200).ok


def test_every_hint_of_every_product_is_a_candidate() -> None:
    for name in ("gemm", "gemm_bias", "gemm_gelu", "gemm_batched", "gemm_strided"):
        workload = load_workload(name)
        for sizes in ((4104, 4096, 1000), (16, 4096, 4096), (4096, 24, 512)):
            named = {**workload.sizes, **dict(zip("MNK", sizes, strict=True))}
            problem = workload.problem(named, "bfloat16")
            space = space_of(workload, problem, H200)
            for hint in workload.suggestions("h200", problem):
                target = hinted_target(space, hint)
                assert target is not None, hint
                schedule = space.candidate(space.canonical(target))
                assert check(space.kernel, schedule, H200).ok, f"{name} {sizes} {hint}"


def test_a_function_of_hints_that_raises_is_named() -> None:
    def fail(problem: Problem) -> tuple[()]:
        raise ValueError("two\nlines")

    workload = small_workload(hints={"cpu": fail})
    with pytest.raises(InputError, match=r"toy\.hints raised ValueError: two lines"):
        workload.suggestions("cpu", workload.problem())
