"""Schedules as text that a person reads: roles, rings, bodies side by side, extensions."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import Extensions, Raster
from explorer.schedule.ws import RoleBody, WSSchedule, WSScope, WSSync


def show_schedule(schedule: Schedule) -> str:
    """The whole schedule, one fact a line; a synchronization at stage s > 0 is marked @s."""
    binding = schedule.binding
    sizes = ", ".join(f"{name} {value}" for name, value in binding.params)
    head = f"{binding.kernel} on {binding.machine}" + (f" at {sizes}" if sizes else "")
    lines = [*_warp_lines(schedule.ws), *_extension_lines(schedule.extensions)]
    return "\n".join([head, *(f"  {line}" for line in lines)]) + "\n"


def _warp_lines(ws: WSSchedule) -> Iterator[str]:
    yield f"{ws.num_warps} warps"
    width = max((len(role.name) for role in ws.roles), default=0)
    for role in ws.roles:
        request = f", {role.max_nreg} registers a thread" if role.max_nreg else ""
        yield f"role {role.name:{width}}  warps [{role.warps_lo}, {role.warps_hi}){request}"
    for ring in ws.pipelines:
        yield f"ring {ring.name}  {', '.join(ring.buffers) or 'no buffer'}, {ring.depth} slots"
    for scope in ws.scopes:
        yield "scope " + ("root" if scope.id == WSScope.ROOT else scope.id)
        for role_name, body in scope.bodies:
            yield f"  {role_name:{width}}  {_body(body)}"


def _body(body: RoleBody) -> str:
    return "  ".join(
        f"{entry.kind.value}({entry.pipeline}){f'@{entry.stage}' if entry.stage else ''}"
        if isinstance(entry, WSSync)
        else entry.id
        for entry in body
    )


def _extension_lines(extensions: Extensions) -> Iterator[str]:
    for side in extensions.sides:
        which = "producer" if side.producer else "consumer"
        yield f"{side.mode} {which} side of {side.pipeline}: {', '.join(side.roles)}"
    for split in extensions.splits:
        yield f"rows split among {', '.join(split.roles)}"
    for stage in extensions.stages:
        yield f"{stage.op} of {stage.role} at stage {stage.stage}"
    for lag in extensions.lags:
        yield f"{lag.op} completes {lag.lag} iterations after its issue"
    for route in extensions.routes:
        yield f"{route.op} travels by the {route.route} route"
    for store in extensions.staged:
        pieces = f" in {store.pieces} pieces" if store.pieces > 1 else ""
        yield f"{store.op} goes through {store.staging}{pieces}"
    for swapped in extensions.swapped:
        yield f"{swapped.op} is computed transposed, its operands swapped"
    for tile in extensions.matrix:
        yield f"{tile.op} in instructions of {tile.m} x {tile.n}"
    launch = extensions.launch
    grid = f"{launch.blocks} resident blocks" if launch.blocks else "one block a tile"
    order = f", groups of {launch.group}" if launch.raster == Raster.GROUPED else ""
    if launch.cluster > 1:
        order += f", clusters of {launch.cluster} along grid axis {launch.cluster_axis}"
    parts = f", reduction in {launch.split} parts" if launch.split > 1 else ""
    stream = ", last tiles streamed" if launch.stream else ""
    yield f"launch: {grid}, {launch.raster} raster{order}{parts}{stream}"
