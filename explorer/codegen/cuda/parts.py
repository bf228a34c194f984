"""Sums that blocks which share the reduction of a tile hand to each other through the workspace.

The workspace of a part is seen only by roles that hold the same share of the same fragment, in the
same threads. So its elements do not lie in rows: each thread keeps four registers together, and
the threads of a role follow each other, for accesses of 16 bytes without gaps.

Invariant: an element is read where the thread of the same number wrote it.
"""

from __future__ import annotations

from explorer.codegen.cuda.context import Role
from explorer.codegen.cuda.fragments import Fragment
from explorer.codegen.cuda.scalars import c_name, fixed
from explorer.codegen.cuda.views import tensor_view
from explorer.errors import ScheduleError
from explorer.expr import TRUE, Expr, const, substitute
from explorer.ir.access import elements
from explorer.ir.nodes import Buffer, Copy, Element, Map, Region
from explorer.program.nodes import Exec, Program, Ticket
from explorer.program.steps import executed

# Registers of a role's threads besides fragments and what is on its way from the workspace.
_OTHER_REGISTERS = 64
_PIECES_MIN, _PIECES_MAX = 4, 24


def hand_over(role: Role, step: Exec) -> None:
    """A fragment to the workspace of its part, or the sum of all parts into a fragment."""
    match step.op:
        case Copy(_, src, dst):
            _store(role, role.fragments[src.buffer.name], dst)
        case Map() as op:
            _sum(role, op)
        case op:
            raise ScheduleError(f"{op.id}: the workspace is only copied to and added up")


def _store(role: Role, fragment: Fragment, target: Region) -> None:
    place = tensor_view(target).pointer(role.scalars)
    for block in range(fragment.blocks):
        role.out.line(
            f"store_part<{role.threads}>({fragment.array(block)}, "
            f"{place} + {_block_elements(role, fragment) * block}, thread);"
        )


def _sum(role: Role, op: Map) -> None:
    (store,) = op.stores
    fragment = role.fragments[store.buffer.name]
    first = next(elements(store.value))
    parts = fixed(first.buffer.shape[1], "the parts of a tile")
    place = tensor_view(_origin(op, first)).pointer(role.scalars)
    pitch = fixed(first.buffer.shape[2] * first.buffer.shape[3], "the pitch of the parts")
    batch, chunk = _batch(role, fragment, 1 if parts == 2 else parts)
    template = f"{parts}, {role.threads}, {batch}, {chunk}"
    for block in range(fragment.blocks):
        role.out.line(
            f"sum_parts<{template}>({fragment.array(block)}, "
            f"{place} + {_block_elements(role, fragment) * block}, {pitch}, "
            f"{role.scalars.expr(_own_part(role, first.buffer))}, thread);"
        )


def _own_part(role: Role, space: Buffer) -> Expr:
    """Which part the role itself leaves."""
    copies = (step.op for step in executed(role.program.body) if isinstance(step.op, Copy))
    return next(copy.dst.start[1] for copy in copies if copy.dst.buffer == space)


def _origin(op: Map, element: Element) -> Region:
    """What the body reads of part 0."""
    origin = dict.fromkeys((name for name, _ in op.axes), 0)
    start = tuple(substitute(index, origin) for index in element.indices)
    extent = (const(1), const(1), *(size for _, size in op.axes))
    return Region(element.buffer, start, extent)


def _block_elements(role: Role, fragment: Fragment) -> int:
    return fragment.registers * role.threads


def _batch(role: Role, fragment: Fragment, count: int) -> tuple[int, int]:
    """Pieces of four registers that a thread has on their way: of so many parts so many each.

    The parts at a time divide `count`; together the pieces are as many as registers allow.
    """
    held = sum(len(f.arrays) * f.registers for f in role.fragments.values())
    left = (role.program.role.max_nreg or 0) - held - _OTHER_REGISTERS
    room = min(max(left // 4, _PIECES_MIN), _PIECES_MAX)
    choices = (
        (min(room // chunk, fragment.registers // 4), chunk)
        for chunk in range(1, min(count, room) + 1)
        if count % chunk == 0
    )
    return max(choices, key=lambda each: (each[0] * each[1], each[0]))


def ticket_shares(program: Program) -> int:
    """Tickets of a tile: one for each share of its rows that a role holds."""
    return max(role.share[1] for role in program.roles)


def workspace_tiles(program: Program) -> int:
    """Tiles that have a place in the workspace."""
    spaces = program.workspace
    return fixed(spaces[0].shape[0], "the tiles of the workspace") if spaces else 0


def draw(role: Role, step: Ticket) -> None:
    """Declare whether the role's part of a tile is the last to come."""
    shares = ticket_shares(role.block.program)
    number = role.block.named_barrier(role.program.role.name)
    slot, share = role.scalars.expr(step.slot), role.program.share[0]
    drawn = (
        f"draw_ticket(tickets + {slot} * {shares} + {share}, "
        f"{step.parts}u, {number}u, {role.threads}u, thread)"
    )
    if step.shared != TRUE:
        drawn = f"{role.scalars.cond(step.shared)} ? {drawn} : 1"
    role.out.line(f"const int {c_name('v', step.last)} = {drawn};")
