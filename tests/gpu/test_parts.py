"""Split reductions on the card: right in every layout, for every length of the parts, again and
again."""

from __future__ import annotations

from itertools import islice

import pytest

from explorer.records import Measured
from tests.gpu.support import all_are_right, built, session
from tests.support.cuda_candidates import (
    DIRECT,
    LAYOUTS,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    TWO_RINGS,
    WORKER,
    candidate,
    draw,
    gemm_space,
)

pytestmark = pytest.mark.gpu
ODD = SMALL | {"nreg_consumer": 208, "depth_A_B": 3, "depth_A": 2, "depth_B": 3}


@pytest.mark.parametrize("sizes", [(1000, 1000, 4000), (129, 257, 65), (300, 72, 2056)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_legal_schedules(layout: str, sizes: tuple[int, int, int]) -> None:
    space = gemm_space(layout, sizes).restricted(split=(2, 3, 5, 8, 16))
    seed = sum(sizes) + len(layout)
    found = (drawn for drawn in draw(space, 40, seed) if drawn[1].extensions.launch.split > 1)
    with session(layout, sizes) as opened:
        all_are_right(opened, islice(found, 4))


@pytest.mark.parametrize("trips", [1, 2, 3, 5, 8, 9])
def test_parts_of_every_length(trips: int) -> None:
    """Even, uneven and empty parts, those shorter than the ring among them."""
    sizes = (300, 520, 64 * trips - 8)
    space = gemm_space("gemm_nt", sizes)
    with session("gemm_nt", sizes) as opened:
        for split in (2, 3, 5, 8):
            for title, blocks in ((STAGED, 132), (DIRECT, 0), (TWO_RINGS, 132), (WORKER, 0)):
                lag = {"lag_gemm_C_local": 0 if title == WORKER else 1}
                choices = ODD | lag | {"split": split, "blocks": blocks}
                schedule = candidate(space, title, **choices)
                outcome = opened.measure(built(opened, schedule), repeats=1)
                assert isinstance(outcome, Measured), f"{title} {split}: {outcome}"


def test_tickets_start_over_with_every_launch() -> None:
    """Many launches of one kernel between two checks, several tiles and parts a block."""
    sizes = (2048, 2048, 1024)
    space = gemm_space("gemm", sizes)
    with session("gemm", sizes) as opened:
        for split in (2, 4):
            choices = ODD | {"split": split, "blocks": 132}
            kernel = built(opened, candidate(space, ONE_CONSUMER, **choices))
            for _ in range(3):
                outcome = opened.measure(kernel, repeats=10)
                assert isinstance(outcome, Measured), outcome
