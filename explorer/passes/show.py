"""A schedule as a person reads it: stages, role programs, and the first steps of every role.

Invariant: everything shown is derived from the program that the emitters get, and from the stages
that the rules use.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.offsets import body_offsets
from explorer.expr import evaluate
from explorer.ir.nodes import Kernel
from explorer.machine import Machine
from explorer.passes import materialize
from explorer.program.columns import side_by_side
from explorer.program.listing import LINES, show_roles
from explorer.program.printer import show_program
from explorer.schedule.bound import Schedule
from explorer.schedule.plan import PlanSync, open_plan


def show_schedule(
    kernel: Kernel,
    schedule: Schedule,
    machine: Machine,
    block: int = 0,
    lines: int = LINES,
    width: int = 0,
) -> str:
    """Iteration offsets, role programs side by side, and what a block's roles do first.

    `kernel` has its Params open; `width` is the longest line (0: any). ScheduleError and
    IllegalSchedule as of `materialize`.
    """
    program = materialize(kernel, schedule, machine)
    offsets = "".join(
        f"{row}\n"
        for line in offset_lines(kernel, schedule)
        for row in side_by_side([[f"  {line}"]], width)
    )
    shifted = f"iteration offsets\n{offsets}" if offsets else ""
    first = show_roles(program, block, dict.fromkeys(program.scalars, 1), lines, width)
    steps = f"block {block}, step by step: barrier[slot], parity waited for, cycle\n"
    return f"{show_program(program, width=width)}{shifted}{steps}{first}"


def offset_lines(kernel: Kernel, schedule: Schedule) -> Iterator[str]:
    """One line for each role and scope in which entries are shifted against each other."""
    concrete = kernel.at(**schedule.params)
    plan, env = open_plan(concrete, schedule.ws, schedule.extensions)
    for scope in plan.scopes:
        for role, body in scope.bodies:
            offsets = [evaluate(each, env) for each in body_offsets(plan, scope, role)]
            if len(set(offsets)) < 2:
                continue
            least = min(offsets)
            entries = (
                f"{entry.kind.value} {entry.pipeline}" if isinstance(entry, PlanSync) else entry.id
                for entry in body
            )
            shown = ", ".join(
                f"{name} +{offset - least}" for name, offset in zip(entries, offsets, strict=True)
            )
            yield f"{role} in {scope.id}: {shown}"
