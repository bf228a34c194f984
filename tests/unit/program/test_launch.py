"""Tile orders: bijections onto the grid, and what each raster looks like."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from attrs import evolve

from explorer.errors import ScheduleError
from explorer.expr import Var, const
from explorer.program.launch import (
    block_count,
    hilbert_tiles,
    tile_count,
    tile_indices,
    tiles_of,
)
from explorer.program.nodes import Program
from explorer.schedule.extensions import Launch, Raster
from tests.support.programs import gemm_program


def grid_program(extents: tuple[int, ...], launch: Launch) -> Program:
    names = ("bx", "by", "bz")
    grid = tuple((name, const(extent)) for name, extent in zip(names, extents, strict=False))
    return evolve(gemm_program(4, 4, 2), grid=grid, launch=launch)


def walk(extents: tuple[int, ...], launch: Launch) -> list[tuple[int, ...]]:
    program = grid_program(extents, launch)
    return [
        tuple(tile[name] for name, _ in program.grid)
        for block in range(block_count(program))
        for tile in tiles_of(program, block)
    ]


@pytest.mark.parametrize("group", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("raster", list(Raster))
def test_c30_every_raster_is_a_bijection(raster: Raster, group: int) -> None:
    for second in range(1, 34):
        launch = Launch(raster=raster, group=group)
        found = walk((3, second), launch)
        assert sorted(found) == [(x, y) for x in range(3) for y in range(second)]
    assert len(set(walk((9, 9), Launch(raster=raster, group=group)))) == 81


def test_rasters() -> None:
    one = Launch(1)
    assert walk((2, 3), one) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    column = walk((2, 3), evolve(one, raster=Raster.COLUMN))
    assert column == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    grouped = walk((2, 3), evolve(one, raster=Raster.GROUPED, group=2))
    assert grouped == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2)]


def test_a_hilbert_raster_keeps_neighbours_together() -> None:
    """C30's extents and more: a bijection; steps go to a neighbour wherever a square is whole."""
    for first in (1, 2, 3, 8, 9, 33):
        for second in range(1, 34):
            found = walk((first, second), Launch(1, Raster.HILBERT))
            assert sorted(found) == [(x, y) for x in range(first) for y in range(second)]
    for extents in ((8, 8), (16, 4), (4, 32), (1, 7), (2, 9)):
        found = walk(extents, Launch(1, Raster.HILBERT))
        steps = [abs(a - c) + abs(b - d) for (a, b), (c, d) in pairwise(found)]
        assert set(steps) == {1}, extents


def test_a_window_of_a_hilbert_raster_reads_few_panels() -> None:
    def panels(launch: Launch) -> int:
        found = walk((64, 64), launch)
        windows = [found[at : at + 128] for at in range(0, 4096, 128)]
        return sum(len({x for x, _ in w}) + len({y for _, y in w}) for w in windows)

    assert panels(Launch(1, Raster.HILBERT)) <= panels(Launch(1, Raster.GROUPED, 8))
    assert panels(Launch(1, Raster.HILBERT)) < panels(Launch(1)) / 2


def test_a_hilbert_raster_is_a_table_of_a_fixed_size() -> None:
    with pytest.raises(ScheduleError, match="hilbert raster of 257 x 256 tiles > 65536"):
        hilbert_tiles(257, 256)
    grid = (("bx", Var("n")), ("by", const(4)))
    with pytest.raises(ScheduleError, match="needs fixed sizes"):
        tile_indices(grid, Launch(1, Raster.HILBERT))


@pytest.mark.parametrize("raster", list(Raster))
def test_a_third_axis_moves_slowest(raster: Raster) -> None:
    found = walk((2, 3, 2), Launch(1, raster, 2))
    assert len(set(found)) == 12
    assert [z for _, _, z in found] == [0] * 6 + [1] * 6


def test_resident_blocks_stride_over_all_tiles() -> None:
    program = grid_program((5, 3), Launch(4))
    assert (tile_count(program), block_count(program)) == (15, 4)
    sizes = [len(list(tiles_of(program, block))) for block in range(4)]
    assert sizes == [4, 4, 4, 3]


def test_more_blocks_than_tiles_leave_some_idle() -> None:
    program = grid_program((1, 1), Launch(4))
    assert [len(list(tiles_of(program, block))) for block in range(4)] == [1, 0, 0, 0]


@pytest.mark.parametrize("raster", list(Raster))
@pytest.mark.parametrize("extents", [(3, 5, 4), (7, 3)])
def test_no_raster_moves_the_parts(extents: tuple[int, ...], raster: Raster) -> None:
    """All tiles of one part, then those of the next in the same order."""
    parts = extents[-1]
    launch = Launch(1, raster, 2 if raster == Raster.GROUPED else 1, split=parts)
    found = walk(extents, launch)
    plane = len(found) // parts
    assert sorted(found) == sorted(product(*map(range, extents)))
    for part in range(parts):
        here = found[part * plane : (part + 1) * plane]
        assert {tile[-1] for tile in here} == {part}
        assert [tile[:-1] for tile in here] == [tile[:-1] for tile in found[:plane]]
