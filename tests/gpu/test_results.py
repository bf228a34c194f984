"""Generated kernels on the card are right: every layout, tails, routes, trip counts."""

from __future__ import annotations

import pytest

from explorer.records import Measured
from explorer.schedule.extensions import CopyRoute
from tests.gpu.support import all_are_right, built, session
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    LAYOUTS,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    STORER,
    THREE_STAGED,
    TURNS_STAGED,
    candidate,
    draw,
    gemm_space,
    with_routes,
)

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("sizes", [(4000, 4000, 4000), (129, 257, 65), (1, 1, 1)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_legal_schedules(layout: str, sizes: tuple[int, int, int]) -> None:
    space = gemm_space(layout, sizes)
    with session(layout, sizes) as opened:
        all_are_right(opened, draw(space, 6, seed=sum(sizes) + len(layout)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_large_odd_problem(layout: str) -> None:
    sizes = (8191, 8193, 8200)
    space = gemm_space(layout, sizes)
    registers = {"nreg_producer": 88, "nreg_consumer": 208}
    choices = GOOD | registers | {"warps_producer": 4, "depth_A_B": 3}
    with session(layout, sizes, limit_s=10.0) as opened:
        schedule = candidate(space, DIRECT, **choices)
        outcome = opened.measure(built(opened, schedule), repeats=1)
        assert isinstance(outcome, Measured), outcome


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_loops_of_every_length_around_the_depth(depth: int) -> None:
    """C01, C07: trips from one to depth + 3, several tiles a block."""
    for trips in range(1, depth + 4):
        sizes = (1024, 1024, 64 * trips)
        space = gemm_space("gemm", sizes)
        with session("gemm", sizes) as opened:
            for lag in range(min(2, depth)):
                choices = SMALL | {"blocks": 132, "lag_gemm_C_local": lag, "depth_A_B": depth}
                for title in (DIRECT, STAGED):
                    schedule = candidate(space, title, **choices)
                    outcome = opened.measure(built(opened, schedule), repeats=1)
                    assert isinstance(outcome, Measured), f"{trips} {lag} {title}: {outcome}"


@pytest.mark.parametrize("routes", [("async", "async"), ("element", "async"), ("async", "bulk")])
def test_stated_and_mixed_routes(routes: tuple[str, str]) -> None:
    sizes = (250, 256, 252) if "bulk" in routes else (250, 250, 250)
    space = gemm_space("gemm", sizes)
    with session("gemm", sizes) as opened:
        for warps in (1, 4):
            choices = SMALL | {"warps_producer": warps, "depth_A_B": 2}
            schedule = candidate(space, ONE_CONSUMER, **choices)
            stated = dict(zip(("copy_A_shared", "copy_B_shared"), routes, strict=True))
            schedule = with_routes(schedule, {op: CopyRoute(r) for op, r in stated.items()})
            outcome = opened.measure(built(opened, schedule), repeats=1)
            assert isinstance(outcome, Measured), outcome


@pytest.mark.parametrize("sizes", [(1000, 1000, 1000), (129, 257, 65)])
def test_a_storing_role(sizes: tuple[int, int, int]) -> None:
    space = gemm_space("gemm_nt", sizes, "float16")
    with session("gemm_nt", sizes, "float16") as opened:
        for blocks, depth in ((0, 1), (132, 1), (132, 2)):
            choices = SMALL | {"blocks": blocks, "depth_C_staging": depth, "depth_A_B": 3}
            outcome = opened.measure(built(opened, candidate(space, STORER, **choices)), repeats=1)
            assert isinstance(outcome, Measured), outcome


# Whole and broken tiles of 176, 160 and 192 columns; pitches of whole sectors and not.
@pytest.mark.parametrize("sizes", [(4104, 4104, 328), (4000, 4000, 320), (392, 584, 72)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_staging_in_pieces(layout: str, sizes: tuple[int, int, int]) -> None:
    space = gemm_space(layout, sizes)
    three = {"block_M": 192, "warps_consumer": 12, "nreg_consumer": 152, "depth_A_B": 4}
    wide = {"block_M": 256, "block_N": 160}
    turns = {"block_N": 192, "nreg_producer": 24, "nreg_consumer": 240, "depth_A_B": 4}
    cases = (
        ("two", STAGED, 2, {"depth_A_B": 4}),
        ("two, 256 rows", STAGED, 2, wide),
        ("three", THREE_STAGED, 2, three | {"block_N": 176}),
        ("three, by thirds", THREE_STAGED, 3, three | {"block_N": 192}),
        ("turns", TURNS_STAGED, 3, turns),
    )
    with session(layout, sizes) as opened:
        drawn = [
            (f"{name} in {blocks}", candidate(space, at, **(GOOD | choices | {"blocks": blocks})))
            for name, title, pieces, choices in cases
            for at in [title.replace("staged", f"staged in {pieces}")]
            for blocks in (4, 132)
        ]
        all_are_right(opened, drawn)
