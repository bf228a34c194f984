"""Programs as text: role programs side by side, and the events of a role one by one.

Invariant: the text is stable and holds everything that the emitters look at, so that golden files
catch a change of any pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.expr import TRUE
from explorer.ir.printer import show_buffer, show_statement
from explorer.program.columns import side_by_side
from explorer.program.counts import arrivals
from explorer.program.events import role_events
from explorer.program.nodes import (
    Barriers,
    Cycle,
    Drain,
    Exec,
    For,
    Program,
    Repeat,
    Ring,
    RoleProgram,
    RoleSync,
    Signal,
    Skip,
    Step,
    Ticket,
    Use,
    Wait,
    When,
)

INDENT = "  "


def show_program(program: Program, mark: Step | None = None, width: int = 0) -> str:
    """The program as text, roles side by side; `mark` points at one step.

    `width` is the longest row of the roles, 0 for any.
    """
    lines = [f"program {program.name} on {program.machine}, {program.num_warps} warps"]
    grid = ", ".join(f"{name} < {extent}" for name, extent in program.grid)
    launch = program.launch
    resident = f"{launch.blocks} resident blocks" if launch.blocks else "one block a tile"
    order = f"raster {launch.raster} group {launch.group}"
    if launch.cluster > 1:
        order += f"; clusters of {launch.cluster} along {program.grid[launch.cluster_axis][0]}"
    if program.streamed:
        order += f"; {program.streamed.var} of the last tiles streamed"
    lines.append(f"  grid {grid}; {resident}; {order}")
    lines += [f"  tensor {show_buffer(tensor)}" for tensor in program.tensors]
    lines += [f"  workspace {show_buffer(buffer)}" for buffer in program.workspace]
    lines += [f"  ring {_ring(ring)}" for ring in program.rings]
    lines += [f"  barriers {_barriers(barriers)}" for barriers in program.barriers]
    lines += [f"  matrix {op} {m} x {n}" for op, m, n in program.matrix]
    columns = [_column(role, program, mark) for role in program.roles]
    rows = side_by_side(columns, width - len(INDENT) if width else 0)
    lines += [(INDENT + row).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def show_events(
    program: Program, role: str, block: int = 0, scalars: dict[str, int] | None = None
) -> str:
    """The waits and signals of a role of one block over all its tiles, one a line."""
    return "".join(f"{event}\n" for event in role_events(program, role, block, scalars))


def _ring(ring: Ring) -> str:
    levels = " x ".join(f"{pipeline}:{depth}" for pipeline, depth in ring.levels)
    return f"{show_buffer(ring.buffer)}" + (f" versions {levels}" if levels else "")


def _barriers(barriers: Barriers) -> str:
    return (
        f"{barriers.pipeline} x{barriers.depth}: full count {barriers.full_count}, "
        f"empty count {barriers.empty_count}"
    )


def _column(role: RoleProgram, program: Program, mark: Step | None) -> list[str]:
    each = role.role
    share = f" share {role.share[0]}/{role.share[1]}" if role.share[1] > 1 else ""
    registers = f" nreg {each.max_nreg}" if each.max_nreg else ""
    head = f"role {each.name}[{each.warps_lo},{each.warps_hi}){registers}{share}"
    lines = [head, *(f"  private {show_buffer(buffer)}" for buffer in role.private)]
    threads = each.warps * program.threads_per_warp
    return lines + list(show_steps(role.body, threads, "  ", mark))


def show_steps(
    body: tuple[Step, ...], threads: int, indent: str = "", mark: Step | None = None
) -> Iterator[str]:
    """Steps as indented lines; `threads` is the role's, for the number of arrivals."""
    for step in body:
        inner: tuple[Step, ...] = ()
        match step:
            case Exec():
                text = _exec(step)
            case Wait(pipeline, full):
                text = f"wait {pipeline}.{_side(full)}"
            case Signal(pipeline, full):
                late = " when copies land" if step.deferred else ""
                late += " when gemms complete" if step.matrix else ""
                where = f" at {step.blocks} blocks" if step.blocks > 1 else ""
                count = arrivals(step, threads)
                text = f"arrive {pipeline}.{_side(full)} x{count}{where}{late}"
            case Skip(pipeline, full, cycles):
                text = f"skip {cycles} of {pipeline}.{_side(full)}"
            case Drain(pending):
                text = f"drain to {pending} in flight"
            case RoleSync():
                text = "sync warps"
            case Ticket(last, at, parts, shared):
                alone = "" if shared == TRUE else f" where {shared}, else 1"
                text = f"{last} = ticket of tile {at} is the last of {parts}{alone}"
            case For(var, start, stop, inner):
                text = f"for {var} in {start} .. {stop}" + (" unrolled" if step.unroll else "")
            case When(cond, inner):
                text = f"when {cond}"
            case Repeat(cond, inner):
                text = f"while {cond}"
        yield indent + text + ("   <-- here" if step is mark else "")
        yield from show_steps(inner, threads, indent + "  ", mark)


def _side(full: bool) -> str:
    return "full" if full else "empty"


def _exec(step: Exec) -> str:
    text = show_statement(step.op)
    if step.route is not None:
        text += f" by {step.route}"
    if step.multicast > 1:
        text += f" to {step.multicast} blocks"
    if step.asynchronous:
        text += " async"
    if step.uses:
        text += f" using {', '.join(map(_use, step.uses))}"
    return text


def _use(use: Use) -> str:
    when = "" if use.cycle == Cycle.OPEN else f".{use.cycle}"
    return f"{use.buffer}@{use.pipeline}{when}"
