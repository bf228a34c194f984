"""Clusters on the card: right in every layout and skeleton, with tiles beyond the grid."""

from __future__ import annotations

import pytest

from explorer.records import Measured
from explorer.schedule.extensions import CopyRoute
from tests.gpu.support import all_are_right, built, session
from tests.support.cuda_candidates import (
    DIRECT,
    LAYOUTS,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    TWO_RINGS,
    candidate,
    draw,
    gemm_space,
    with_routes,
)

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("sizes", [(4000, 4000, 4000), (129, 257, 72), (300, 520, 256)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_legal_schedules(layout: str, sizes: tuple[int, int, int]) -> None:
    space = gemm_space(layout, sizes)
    clusters = [choice for choice in space.choices if choice.name == "cluster"]
    if not clusters:
        pytest.skip("no operand of this layout travels by the copy engine")
    space = space.restricted(cluster=(2,))
    with session(layout, sizes) as opened:
        seed = sum(sizes) + len(layout)
        all_are_right(opened, draw(space, 4, seed, share_of_roles=1.0))


@pytest.mark.parametrize("blocks", [0, 2, 132])
@pytest.mark.parametrize("axis", [0, 1])
def test_tiles_beyond_the_grid(axis: int, blocks: int) -> None:
    """Three by five tiles: one axis always has a cluster that is not whole."""
    sizes = (3 * 128, 5 * 128, 448)
    space = gemm_space("gemm_nt", sizes)
    with session("gemm_nt", sizes) as opened:
        for title, depths in (
            (STAGED, {"depth_A_B": 2}),
            (DIRECT, {"depth_A_B": 4, "lag_gemm_C_local": 1}),
            (TWO_RINGS, {"depth_A": 3, "depth_B": 2}),
        ):
            choices = SMALL | depths | {"blocks": blocks, "cluster": 2, "cluster_axis": axis}
            schedule = candidate(space, title, **choices)
            outcome = opened.measure(built(opened, schedule), repeats=1)
            assert isinstance(outcome, Measured), f"{title}: {outcome}"


@pytest.mark.parametrize("route", [CopyRoute.ELEMENT, CopyRoute.ASYNC])
def test_routes_that_stay_in_the_block(route: CopyRoute) -> None:
    sizes = (384, 640, 256)
    space = gemm_space("gemm", sizes)
    with session("gemm", sizes) as opened:
        for axis in (0, 1):
            choices = SMALL | {"warps_producer": 4, "depth_A_B": 2, "cluster": 2}
            schedule = candidate(space, ONE_CONSUMER, **choices, cluster_axis=axis)
            schedule = with_routes(schedule, {"copy_A_shared": route})
            outcome = opened.measure(built(opened, schedule), repeats=1)
            assert isinstance(outcome, Measured), outcome
