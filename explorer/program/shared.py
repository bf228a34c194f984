"""Where the shared memory of a program lies: as its placement says, or one behind the other.

Invariant: emitters and predictions both ask here.
"""

from __future__ import annotations

from explorer.machine import Machine
from explorer.memory.footprint import SharedLayout, shared_layout, turned_operands
from explorer.program.nodes import Program
from explorer.program.steps import executed


def bump_layout(program: Program, machine: Machine) -> SharedLayout:
    """Rings one behind the other, then the barriers: what the capacity rule counts."""
    ops = [step.op for role in program.roles for step in executed(role.body)]
    return shared_layout(
        [(ring.buffer, ring.versions) for ring in program.rings],
        [barriers.depth for barriers in program.barriers],
        machine,
        turned_operands(ops, machine),
    )


def layout_of(program: Program, machine: Machine) -> SharedLayout:
    """The layout of a program."""
    if program.placement is not None:
        return program.placement.shared
    return bump_layout(program, machine)
