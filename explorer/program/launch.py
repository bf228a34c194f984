"""How the blocks of a launch walk the tiles of the grid.

Every formula is an `Expr` over `TILE`, the ordinal of a tile in raster order, so that the
simulator evaluates and the emitters print the same one. Where the last tiles are streamed, blocks
walk units of work instead, whose ordinal is `UNIT`: a tile, or a piece of one.

The blocks of a cluster have successive numbers and work on successive ordinals, which are
neighbours along the cluster's axis; the raster orders the clusters. Where the cluster does not
divide that axis, the last tiles lie outside the grid: their block keeps step with its cluster, on
zeros from beyond the tensors, and what it stores there vanishes.

Invariant: the ordinals 0 .. tile_count - 1 map one to one onto the grid, its axis of clusters
rounded up to whole ones, for every raster, extent and group, groups that do not divide the grid
included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

from explorer.errors import ScheduleError
from explorer.expr import (
    Const,
    Expr,
    IntLike,
    Var,
    ceildiv,
    const,
    evaluate,
    lookup,
    maximum,
    minimum,
    product,
    round_up,
)
from explorer.machine import Machine
from explorer.program.nodes import Program
from explorer.schedule.extensions import Launch, Raster
from explorer.schedule.stream import Stream, StreamedLoop

TILE = Var("tile")
UNIT = Var("unit")
# Tiles of a plane whose order is a table: each is a number of 16 bits.
TABLE_TILES_MAX = 1 << 16
# Of one thread, whatever the unit has left.
ENTRY_REGISTERS_MAX = 255


def tile_count(program: Program, scalars: Mapping[str, int] = MappingProxyType({})) -> int:
    """Tiles that the blocks walk; `scalars` gives run-time sizes."""
    extents = walked_extents(program.grid, program.launch)
    return evaluate(product([extent for _, extent in extents]), scalars)


def block_count(program: Program, scalars: Mapping[str, int] = MappingProxyType({})) -> int:
    """Blocks that are launched: one a tile, or the resident blocks of a persistent launch."""
    return program.launch.blocks or tile_count(program, scalars)


def shared_by(blocks: IntLike, machine: Machine) -> Expr:
    """How many resident blocks of a persistent launch share a unit; 1 for any other launch."""
    return maximum(ceildiv(blocks, machine.units), 1)


def entry_limit(threads: IntLike, machine: Machine) -> Expr:
    """The most registers that each of so many threads of a unit can start with."""
    file = machine.registers
    assert file is not None
    whole = const(file.total) // threads // file.request_step * file.request_step
    return minimum(whole, ENTRY_REGISTERS_MAX)


def tiles_of(
    program: Program, block: int, scalars: Mapping[str, int] = MappingProxyType({})
) -> Iterator[dict[str, int]]:
    """The grid indices of the tiles that a block works on, in order, each with its ordinal.

    A tile that is shared is there for each block that has a piece of it, with the piece.
    """
    pieces, tiles = piece_indices(program), tile_indices(program.grid, program.launch)
    count, ordinal = unit_count(program, scalars), unit_ordinal(program)
    step = program.launch.blocks or max(count, 1)
    for unit in range(block, count, step):
        env = {**scalars, ordinal.name: unit}
        _extend(env, pieces)
        if program.streamed is None or env[program.streamed.extent.name]:
            _extend(env, tiles)
            yield {name: value for name, value in env.items() if name not in scalars}


def _extend(env: dict[str, int], formulas: tuple[tuple[str, Expr], ...]) -> None:
    for name, expr in formulas:
        env[name] = evaluate(expr, env)


def unit_ordinal(program: Program) -> Var:
    """What numbers the work of all blocks."""
    return TILE if program.streamed is None else UNIT


def unit_count(program: Program, scalars: Mapping[str, int] = MappingProxyType({})) -> int:
    """Ordinals that the blocks walk; those of a streamed launch include empty ones at the end."""
    if program.streamed is None:
        return tile_count(program, scalars)
    stream = stream_of(program.grid, program.launch, program.streamed)
    return evaluate(stream.units * program.launch.cluster, scalars)


def stream_of(
    grid: tuple[tuple[str, Expr], ...], launch: Launch, streamed: StreamedLoop
) -> Stream:
    """How the clusters of a launch share its clusters of tiles."""
    tiles = product([extent for _, extent in walked_extents(grid, launch)])
    blocks = const(launch.blocks // launch.cluster)
    return Stream(tiles // launch.cluster, streamed.iterations, blocks)


def piece_indices(program: Program) -> tuple[tuple[str, Expr], ...]:
    """The tile of a unit of a streamed launch, and its piece of the tile: each scalar over `UNIT`
    and those before it. Nothing for another launch.

    A unit without iterations is no work, and its tile may not be there.
    """
    if program.streamed is None:
        return ()
    size, loop = program.launch.cluster, program.streamed
    stream = stream_of(program.grid, program.launch, loop)
    unit, tile = UNIT // size, TILE // size
    return (
        (TILE.name, stream.tile(unit) * size + UNIT % size),
        (loop.first.name, stream.first(unit, tile)),
        (loop.extent.name, stream.extent(unit, tile, loop.first)),
        (loop.part.name, minimum(loop.first, 1)),
    )


def walked_extents(
    grid: tuple[tuple[str, Expr], ...], launch: Launch
) -> tuple[tuple[str, Expr], ...]:
    """The grid, its axis of clusters rounded up to whole ones."""
    return tuple(
        (name, round_up(extent, launch.cluster) if axis == launch.cluster_axis else extent)
        for axis, (name, extent) in enumerate(grid)
    )


def rank(launch: Launch) -> Expr:
    """The number of a tile's block within its cluster."""
    return TILE % launch.cluster


def tile_indices(
    grid: tuple[tuple[str, Expr], ...], launch: Launch
) -> tuple[tuple[str, Expr], ...]:
    """Each grid variable as an expression over TILE.

    ROW lets the first grid axis move fastest, COLUMN the second. GROUPED walks strips of `group`
    indices of the second axis, the second axis fastest within a strip. HILBERT follows a curve
    (`hilbert_tiles`), which no formula gives: it looks the pair up. With clusters, these are
    orders of the clusters.
    """
    size = launch.cluster
    if size == 1:
        return _ordered(grid, launch, TILE)
    clusters = tuple(
        (name, ceildiv(extent, size) if axis == launch.cluster_axis else extent)
        for axis, (name, extent) in enumerate(grid)
    )
    return tuple(
        (name, index * size + rank(launch) if axis == launch.cluster_axis else index)
        for axis, (name, index) in enumerate(_ordered(clusters, launch, TILE // size))
    )


def _ordered(
    grid: tuple[tuple[str, Expr], ...], launch: Launch, ordinal: Expr
) -> tuple[tuple[str, Expr], ...]:
    """Each grid variable over an ordinal in raster order."""
    names = [name for name, _ in grid]
    extents = [extent for _, extent in grid]
    # The parts of a split reduction are the last axis, which no raster moves.
    if len(grid) - (launch.split > 1) < 2 or launch.raster == Raster.ROW:
        return _radix(names, extents, ordinal)
    first, second = extents[0], extents[1]
    plane = first * second
    within: Expr = ordinal if len(grid) == 2 else ordinal % plane
    rest = _radix(names[2:], extents[2:], ordinal // plane)
    if launch.raster == Raster.COLUMN:
        pair = ((names[0], within // second), (names[1], within % second))
    elif launch.raster == Raster.HILBERT:
        packed = _looked_up(first, second, within)
        pair = ((names[0], packed // second), (names[1], packed % second))
    else:
        group = const(launch.group)
        strip = within // (group * first)
        inside = within % (group * first)
        width = minimum(group, second - strip * group)
        pair = ((names[0], inside // width), (names[1], strip * group + inside % width))
    return (*pair, *rest)


def _radix(names: list[str], extents: list[Expr], ordinal: Expr) -> tuple[tuple[str, Expr], ...]:
    result = []
    for place, (name, extent) in enumerate(zip(names, extents, strict=True)):
        digit = ordinal // product(extents[:place])
        last = place == len(names) - 1
        result.append(
            (name, Const(0) if extent == Const(1) else digit if last else digit % extent)
        )
    return tuple(result)


def _looked_up(first: Expr, second: Expr, ordinal: Expr) -> Expr:
    """The tile at an ordinal of the curve, as one number."""
    if not isinstance(first, Const) or not isinstance(second, Const):
        raise ScheduleError(
            f"launch: a hilbert raster of {first} x {second}: it needs fixed sizes"
        )
    return lookup(hilbert_tiles(first.value, second.value), ordinal)


@cache
def hilbert_tiles(first: int, second: int) -> tuple[int, ...]:
    """Every tile of a plane once, each beside the one before wherever the plane allows; each as
    index of the first axis x second + index of the second axis.

    Squares with a side of a power of two that cover the shorter axis follow each other along the
    longer one; in each, Hilbert's curve runs from one corner to the next square. What lies outside
    the plane is left out.
    """
    if first * second > TABLE_TILES_MAX:
        raise ScheduleError(
            f"launch: a hilbert raster of {first} x {second} tiles > {TABLE_TILES_MAX}; "
            "choose another raster"
        )
    longer, shorter = max(first, second), min(first, second)
    curve = [(0, 0)]
    side = 1
    while side < shorter:
        curve = _doubled(curve, side)
        side *= 2
    found = [
        (along + x, y)
        for along in range(0, longer, side)
        for x, y in curve
        if along + x < longer and y < shorter
    ]
    if first < second:
        found = [(y, x) for x, y in found]
    return tuple(x * second + y for x, y in found)


def _doubled(curve: list[tuple[int, int]], side: int) -> list[tuple[int, int]]:
    """Hilbert's curve through four squares: up, across, and down again."""
    return [
        *((y, x) for x, y in curve),
        *((x, y + side) for x, y in curve),
        *((x + side, y + side) for x, y in curve),
        *((2 * side - 1 - y, side - 1 - x) for x, y in curve),
    ]
