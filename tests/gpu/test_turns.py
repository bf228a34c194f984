"""Ping-pong kernels and two blocks a unit on the card: right for every number of tiles."""

from __future__ import annotations

import random

import pytest

from explorer.constraints import check
from explorer.machine import H200
from explorer.records import Measured
from explorer.schedule.bound import Schedule
from explorer.space import SearchSpace
from tests.gpu.support import all_are_right, built, session
from tests.support.cuda_candidates import (
    GOOD,
    LAYOUTS,
    ONE_CONSUMER,
    TURNS,
    TURNS_STAGED,
    candidate,
    gemm_space,
)

pytestmark = pytest.mark.gpu
# Tiles of 128 x 128: 1; 132 and 133, one block with two; 289, an odd number of rounds; many.
SIZES = ((100, 72, 200), (1408, 1536, 320), (896, 2432, 64), (2176, 2176, 192), (4000, 4000, 4000))
ODD_SIZES = ((129, 257, 65), (1, 1, 1), (1001, 2999, 777))


def turning(space: SearchSpace, count: int, seed: int) -> list[Schedule]:
    """Random legal schedules in which two consumers take turns."""
    chosen, found = random.Random(seed), []
    titles = [skeleton.title for skeleton in space.skeletons]
    skeletons = [titles.index(title) for title in (TURNS, TURNS_STAGED)]
    while len(found) < count:
        values = {choice.name: chosen.choice(choice.domain) for choice in space.choices}
        values["skeleton"] = skeletons[len(found) % 2]
        schedule = space.candidate(values)
        if check(space.kernel, schedule, H200).ok:
            found.append(schedule)
    return found


@pytest.mark.parametrize("sizes", [*SIZES, *ODD_SIZES])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_legal_turns(layout: str, sizes: tuple[int, int, int]) -> None:
    space = gemm_space(layout, sizes)
    with session(layout, sizes) as opened:
        drawn = turning(space, 3, seed=sum(sizes) + len(layout))
        all_are_right(opened, (("turns", schedule) for schedule in drawn))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_turns_of_every_length_around_the_depth(depth: int) -> None:
    """Main loops from one trip to beyond the depth, five tiles a block."""
    for trips in range(1, depth + 3):
        sizes = (3328, 3328, 64 * trips)
        space = gemm_space("gemm_nt", sizes)
        with session("gemm_nt", sizes) as opened:
            for lag in range(min(2, depth)):
                choices = GOOD | {"block_N": 128, "lag_gemm_C_local": lag, "depth_A_B": depth}
                for title in (TURNS, TURNS_STAGED):
                    outcome = opened.measure(
                        built(opened, candidate(space, title, **choices)), repeats=1
                    )
                    assert isinstance(outcome, Measured), f"{trips} {lag} {title}: {outcome}"


@pytest.mark.parametrize("raster", [0, 2, 3])
def test_two_blocks_a_unit(raster: int) -> None:
    sizes = (4000, 4000, 400)
    space = gemm_space("gemm", sizes)
    registers = {"nreg_consumer": 208, "depth_A_B": 3, "block_N": 128}
    launch = {"blocks": 264, "raster": raster, "group": 8 if raster == 2 else 1}
    with session("gemm", sizes) as opened:
        schedule = candidate(space, ONE_CONSUMER, **(GOOD | registers | launch))
        outcome = opened.measure(built(opened, schedule), repeats=1)
        assert isinstance(outcome, Measured), outcome
