"""What a launch moves through device memory: tiles that run together read the same data once.

Invariant: blocks that run together are taken to be equally far, so that what one has read is in
the last cache for the others; nothing is kept from one wave to the next. What a cluster fetches
once counts as before: without clusters the last cache gives it to all but the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from explorer.cost.ops import region_bytes
from explorer.cost.walk import executions
from explorer.expr import evaluate
from explorer.ir.nodes import Copy, Region
from explorer.machine import Scope
from explorer.program.launch import TILE, tile_count, tile_indices
from explorer.program.nodes import Program


def memory_bytes(program: Program, running: int, env: Mapping[str, int]) -> float:
    """Bytes that all tiles move, a read that several of the `running` blocks share counted once.

    `env` is the tile that stands for all. The workspace stays in the last cache, and of the parts
    of a tile one alone stores results.
    """
    together = first_tiles(program, running)
    handed_over = {buffer.name for buffer in program.workspace}
    moved = 0.0
    for role in program.roles:
        for step, count, here in executions(role.body, env):
            if not isinstance(step.op, Copy):
                continue
            src, dst = step.op.src, step.op.dst
            if src.buffer.scope == Scope.GLOBAL:
                share = distinct_share(src, [{**here, **tile} for tile in together])
                moved += region_bytes(src, here) * count * share
            elif dst.buffer.scope == Scope.GLOBAL and dst.buffer.name not in handed_over:
                moved += region_bytes(dst, here) * count / program.launch.split
    return moved * tile_count(program)


def first_tiles(program: Program, running: int) -> list[dict[str, int]]:
    """The grid indices of the tiles that run first, in raster order."""
    formulas = tile_indices(program.grid, program.launch)
    count = min(running, tile_count(program))
    return [
        {TILE.name: tile} | {name: evaluate(expr, {TILE.name: tile}) for name, expr in formulas}
        for tile in range(count)
    ]


def distinct_share(read: Region, tiles: Sequence[Mapping[str, int]]) -> float:
    """How many different regions the tiles read, over how many tiles there are."""
    starts = {tuple(evaluate(start, tile) for start in read.start) for tile in tiles}
    return len(starts) / max(1, len(tiles))
