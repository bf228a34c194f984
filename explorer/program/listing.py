"""What the roles of a block do, executed line by line and side by side.

Invariant: slots and parities come from the one law of cycles (`program.events`); nothing here
waits, so that a schedule that hangs is listed like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from explorer.expr import evaluate, holds
from explorer.ir.interpreter import execute
from explorer.ir.nodes import Define
from explorer.program.columns import side_by_side
from explorer.program.events import RoleCycles, leaves, no_data, parity, slot
from explorer.program.launch import TILE, UNIT, tiles_of
from explorer.program.nodes import (
    Cycle,
    Drain,
    Exec,
    Program,
    RoleProgram,
    RoleSync,
    Signal,
    Skip,
    Ticket,
    Wait,
)

LINES = 64


def show_roles(
    program: Program,
    block: int = 0,
    scalars: Mapping[str, int] | None = None,
    lines: int = LINES,
    width: int = 0,
) -> str:
    """The first `lines` steps of every role of a block, one column a role.

    Waits and arrivals name barrier, slot, cycle and (waits) parity; ops name the slots they use
    and the loop variables as they are. `scalars` gives run-time integers, `width` the longest line
    (0: any).
    """
    columns = []
    for role in program.roles:
        found = list(islice(role_lines(program, role, block, dict(scalars or {})), lines + 1))
        head = f"{role.role.name}[{role.role.warps_lo},{role.role.warps_hi})"
        columns.append([head, *found[:lines], *(["..."] if len(found) > lines else [])])
    return "".join(f"{row}\n" for row in side_by_side(columns, width))


def role_lines(
    program: Program, role: RoleProgram, block: int, scalars: dict[str, int]
) -> Iterator[str]:
    """The steps of a role of a block over all its tiles, as they are executed.

    A condition on data that is not at hand ends the list with a line that says so.
    """
    cycles = RoleCycles()
    depths = {barriers.pipeline: barriers.depth for barriers in program.barriers}
    try:
        for tile in tiles_of(program, block, scalars):
            env = {**scalars, **tile}
            indices = [name for name in tile if name not in (TILE.name, UNIT.name)]
            where = ", ".join(f"{name} {env[name]}" for name in indices)
            yield f"tile {tile[TILE.name]}: {where}"
            yield from _tile_lines(role, depths, cycles, env, set(env))
    except KeyError as unknown:
        yield f"depends on data: {unknown.args[0]}"


def _tile_lines(
    role: RoleProgram,
    depths: dict[str, int],
    cycles: RoleCycles,
    env: dict[str, int],
    outer: set[str],
) -> Iterator[str]:
    for step in leaves(role.body, env):
        loops = "".join(f" {name}={env[name]}" for name in env if name not in outer)
        match step:
            case Wait(name, full):
                cycle, depth = cycles.side(name, full).open(), depths[name]
                at = f"[{slot(cycle, depth)}] parity {parity(cycle, depth, full)}"
                yield f"  wait {name}.{_side(full)}{at} cycle {cycle}{loops}"
            case Signal(name, full):
                cycle = cycles.side(name, not full).close()
                at = f"[{slot(cycle, depths[name])}]"
                at += f" at {step.blocks} blocks" if step.blocks > 1 else ""
                yield f"  arrive {name}.{_side(full)}{at} cycle {cycle}{loops}"
            case Skip(name, full, count):
                passed = evaluate(count, env)
                cycles.side(name, full).next += passed
                yield f"  skip {passed} of {name}.{_side(full)}{loops}"
            case Drain(pending):
                yield f"  drain to {pending}{loops}"
            case RoleSync():
                yield f"  sync warps{loops}"
            case Ticket(last):
                env[last] = 1  # listed as the part that does everything
                outer.add(last)
                if holds(step.shared, env):
                    yield f"  draw a ticket, the last{loops}"
            case Exec():
                if isinstance(step.op, Define):
                    execute(step.op, env, no_data)
                yield f"    {step.op.id}{_slots(step, cycles, depths)}{loops}"


def _side(full: bool) -> str:
    return "full" if full else "empty"


def _slots(step: Exec, cycles: RoleCycles, depths: dict[str, int]) -> str:
    """The slot of every ring level that an op uses."""
    found: dict[str, list[str]] = {}
    for use in step.uses:
        side = cycles.standing(use.pipeline)
        cycle = 0
        if side is not None:
            last = side.unclosed[-1] if side.unclosed else side.next
            at = {Cycle.OPEN: last, Cycle.LAST: side.last_closed, Cycle.NEXT: side.next}
            cycle = at[use.cycle]
        found.setdefault(use.buffer, []).append(str(slot(cycle, depths[use.pipeline])))
    return "".join(f" {name}[{', '.join(at)}]" for name, at in found.items())
