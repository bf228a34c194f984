"""A persistent launch as TileLang writes it: a loop of the kernel over the tiles of a block.

Here persistence is a property of the launch. There the kernel itself loops: block b of n works on
tiles b, b + n, b + 2n, ... in raster order. The rewrite states that in the IR and in the schedule:
all that stood at the root moves into the loop.

Invariant: the rewritten kernel computes what the original does, and its schedule synchronizes at
the same points; ring cycles run on from tile to tile.
"""

from __future__ import annotations

from attrs import evolve

from explorer.expr import Expr, Var, ceildiv, const, product, substitute
from explorer.ir.nodes import Define, Group, If, Index, Kernel, Loop, walk
from explorer.program.launch import TILE, tile_indices
from explorer.schedule.extensions import Launch, Raster
from explorer.schedule.ws import WSOpRef, WSSchedule, WSScope


def tile_loop(kernel: Kernel, ws: WSSchedule, launch: Launch) -> tuple[Kernel, WSSchedule]:
    """Kernel and schedule of a launch, with the loop over tiles in both if it is persistent."""
    if not launch.blocks:
        return kernel, ws
    taken = _names(kernel)
    block, wave, tile = (_fresh(name, taken) for name in ("block", "wave", "tile"))
    loop_id, step_id = _fresh("waves", taken), _fresh("tile_indices", taken)
    tiles = product([extent for _, extent in kernel.grid])
    ordinal = Var(wave) * launch.blocks + Var(block)
    if launch.raster == Raster.HILBERT:  # no formula gives it
        launch = evolve(launch, raster=Raster.ROW)
    indices = (
        _define(step_id, tile, ordinal),
        *(
            _define(step_id, name, substitute(expr, {TILE.name: Var(tile)}))
            for name, expr in tile_indices(kernel.grid, launch)
        ),
    )
    inner = kernel.body
    if tiles % launch.blocks != const(0):
        inner = (If(_fresh("tile_exists", taken), Var(tile) < tiles, kernel.body),)
    waves = Loop(
        id=loop_id,
        var=wave,
        start=const(0),
        extent=ceildiv(tiles, launch.blocks),
        kind="serial",
        num_stages=0,
        body=(Group(step_id, indices), *inner),
    )
    looped = evolve(kernel, grid=((block, const(launch.blocks)),), body=(waves,))
    return looped, _nested(ws, loop_id, step_id)


def _nested(ws: WSSchedule, loop_id: str, step_id: str) -> WSSchedule:
    """The schedule with its root moved into the loop `loop_id`, after `step_id`."""
    scopes = []
    for scope in ws.scopes:
        if scope.id != WSScope.ROOT:
            scopes.append(scope)
            continue
        roles = [(role, body) for role, body in scope.bodies if body]
        inner = tuple((role, (WSOpRef(step_id), *body)) for role, body in roles)
        scopes.append(WSScope(WSScope.ROOT, tuple((role, (loop_id,)) for role, _ in roles)))
        scopes.append(WSScope(loop_id, inner))
    return evolve(ws, scopes=tuple(scopes))


def _define(step_id: str, name: str, expr: Expr) -> Define:
    return Define(f"{step_id}_{name}", name, Index(expr))


def _names(kernel: Kernel) -> set[str]:
    taken = {kernel.name, *(buffer.name for buffer in (*kernel.tensors, *kernel.buffers))}
    taken |= {name for name, _ in kernel.grid}
    for statement, _ in walk(kernel.body):
        taken.add(statement.id)
        if isinstance(statement, Loop):
            taken.add(statement.var)
        if isinstance(statement, Define):
            taken.add(statement.name)
    return taken


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
