"""Tile orders: bijections onto the grid, and what each raster looks like."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.expr import const
from explorer.program.launch import block_count, tile_count, tiles_of
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
