"""How the blocks of a launch walk the tiles of the grid.

Every formula is an `Expr` over `TILE`, the ordinal of a tile in raster order, so that the
simulator evaluates and the emitters print the same one.

Invariant: the ordinals 0 .. tile_count - 1 map one to one onto the grid, for every raster, extent
and group, groups that do not divide the grid included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from explorer.expr import Const, Expr, Var, const, evaluate, minimum, product
from explorer.program.nodes import Program
from explorer.schedule.extensions import Launch, Raster

TILE = Var("tile")


def tile_count(program: Program, scalars: Mapping[str, int] = MappingProxyType({})) -> int:
    """Tiles of the grid; `scalars` gives run-time sizes."""
    return evaluate(product([extent for _, extent in program.grid]), scalars)


def block_count(program: Program, scalars: Mapping[str, int] = MappingProxyType({})) -> int:
    """Blocks that are launched: one a tile, or the resident blocks of a persistent launch."""
    return program.launch.blocks or tile_count(program, scalars)


def tiles_of(
    program: Program, block: int, scalars: Mapping[str, int] = MappingProxyType({})
) -> Iterator[dict[str, int]]:
    """The grid indices of the tiles that a block works on, in order, each with its ordinal."""
    formulas = tile_indices(program.grid, program.launch)
    count = tile_count(program, scalars)
    step = program.launch.blocks or max(count, 1)
    for tile in range(block, count, step):
        env = {**scalars, TILE.name: tile}
        yield {TILE.name: tile} | {name: evaluate(expr, env) for name, expr in formulas}


def tile_indices(
    grid: tuple[tuple[str, Expr], ...], launch: Launch
) -> tuple[tuple[str, Expr], ...]:
    """Each grid variable as an expression over TILE.

    ROW lets the first grid axis move fastest, COLUMN the second. GROUPED walks strips of `group`
    indices of the second axis, the second axis fastest within a strip.
    """
    names = [name for name, _ in grid]
    extents = [extent for _, extent in grid]
    if len(grid) < 2 or launch.raster == Raster.ROW:
        return _radix(names, extents)
    first, second = extents[0], extents[1]
    plane = first * second
    within: Expr = TILE if len(grid) == 2 else TILE % plane
    rest = _radix(names[2:], extents[2:], TILE // plane)
    if launch.raster == Raster.COLUMN:
        pair = ((names[0], within // second), (names[1], within % second))
    else:
        group = const(launch.group)
        strip = within // (group * first)
        inside = within % (group * first)
        width = minimum(group, second - strip * group)
        pair = ((names[0], inside // width), (names[1], strip * group + inside % width))
    return (*pair, *rest)


def _radix(
    names: list[str], extents: list[Expr], ordinal: Expr = TILE
) -> tuple[tuple[str, Expr], ...]:
    result = []
    for place, (name, extent) in enumerate(zip(names, extents, strict=True)):
        digit = ordinal // product(extents[:place])
        last = place == len(names) - 1
        result.append(
            (name, Const(0) if extent == Const(1) else digit if last else digit % extent)
        )
    return tuple(result)
