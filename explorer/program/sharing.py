"""Whether two buffers of a program may take common bytes.

They may where `handover` orders all their touches, one buffer before the other in every tile, or,
row by row, where both lie the same way at the same offset. Where a block works on several tiles,
each must be written anew in every tile as well: a value that is kept from tile to tile would be
lost.

Invariant: what is not proved is not shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from attrs import Factory, define

from explorer.expr import Const
from explorer.ir.access import access
from explorer.ir.nodes import Region
from explorer.machine import Machine
from explorer.program.handover import Body, Contact, Frame, Order, Path, guards
from explorer.program.nodes import Exec, For, Program, Repeat, When
from explorer.program.steps import executed


class Sharing(StrEnum):
    """How two buffers may take common bytes: any of them, or the same rows at the same offset."""

    ANY = "any"
    ROWS = "rows"


def may_share(
    program: Program, machine: Machine, one: str, other: str, rows_alike: bool
) -> Sharing | None:
    """Whether, and how, two buffers may take common bytes.

    `rows_alike` says that row r of either would lie at the same offset.
    """
    frame = _frame(program, machine, frozenset((one, other)))
    touches = {name: list(_contacts(frame, name)) for name in (one, other)}
    if not all(touches.values()):
        return None
    order = Order(frame, frozenset((one, other)))
    if frame.repeated and not all(_renewed(order, found) for found in touches.values()):
        return None
    for first, second in ((one, other), (other, one)):
        pairs = _Handover(order, touches[first], touches[second])
        if pairs.holds(rowwise=False):
            return Sharing.ANY
        if rows_alike and pairs.holds(rowwise=True):
            return Sharing.ROWS
    return None


@define
class _Handover:
    """Whether all touches of one buffer come before those of another, in every run of a frame.

    Besides direct orders, an order may go through a touch that every run makes.
    """

    order: Order
    first: list[Contact]
    second: list[Contact]
    known: dict[tuple[int, int, int], bool] = Factory(dict)

    def holds(self, rowwise: bool) -> bool:
        """Whether that is so, `rowwise` for all touches of a common row only."""
        again = self.order.frame.repeated
        return all(
            (rowwise and _apart(a, b))
            or (self.ordered(a, b, 0) and (not again or self.ordered(b, a, 1)))
            for a in self.first
            for b in self.second
        )

    def ordered(self, a: Contact, b: Contact, turn: int) -> bool:
        """Whether a comes before b, directly or through one more touch."""
        if self.direct(a, b, turn):
            return True
        for middle in (*self.first, *self.second):
            if middle is a or middle is b or not self._always(middle):
                continue
            for early in range(turn + 1):
                if self.direct(a, middle, early) and self.direct(middle, b, turn - early):
                    return True
        return False

    def direct(self, a: Contact, b: Contact, turn: int) -> bool:
        key = (id(a), id(b), turn)
        if key not in self.known:
            self.known[key] = self.order.direct(a, b, turn)
        return self.known[key]

    def _always(self, contact: Contact) -> bool:
        return not guards(self.order.frame.body(contact.role), contact.path)


def _apart(one: Contact, other: Contact) -> bool:
    """Whether two touches are known to meet in no row."""
    a, b = one.rows, other.rows
    return a is not None and b is not None and (a[1] <= b[0] or b[1] <= a[0])


def _renewed(order: Order, contacts: list[Contact]) -> bool:
    """Whether every read of a buffer sees what the same run of the frame wrote."""
    writes = [contact for contact in contacts if contact.write]
    return all(
        any(_feeds(order, write, read) for write in writes) for read in contacts if not read.write
    )


def _feeds(order: Order, write: Contact, read: Contact) -> bool:
    """Whether a write comes before a read in every run that reads, and writes what is read."""
    region = write.region
    whole = region.extent == region.buffer.shape and all(s == Const(0) for s in region.start)
    same = (region.start, region.extent) == (read.region.start, read.region.extent)
    if not (whole or same) or _reads_itself(write):
        return False
    body = order.frame.body(write.role)
    around = guards(body, write.path)
    if around != guards(order.frame.body(read.role), read.path)[: len(around)]:
        return False
    if write.role == read.role:
        return write.path < read.path  # the same iteration of every loop around both
    return order.direct(write, read, 0) or _handed(write, read)


def _reads_itself(write: Contact) -> bool:
    names = (region.buffer.name for region in access(write.step.op).reads)
    return write.region.buffer.name in names


def _handed(write: Contact, read: Contact) -> bool:
    """Whether both touch the open cycle of one pipeline, which hands the slot over."""
    name = write.region.buffer.name
    given = {use.pipeline for use in write.step.uses if (use.buffer, use.cycle) == (name, "open")}
    taken = {use.pipeline for use in read.step.uses if (use.buffer, use.cycle) == (name, "open")}
    return bool(given & taken)


# ---------------------------------------------------------------- touches


def _frame(program: Program, machine: Machine, names: frozenset[str]) -> Frame:
    """The innermost bodies that hold all touches of some buffers and that all roles repeat."""
    repeated = machine.registers is None or program.launch.blocks > 0
    bodies = {role.role.name: role.body for role in program.roles}
    touching = {role: body for role, body in bodies.items() if _touches(body, names)}
    while touching:
        inner = {role: _only(body, names) for role, body in touching.items()}
        heads = {_loop_head(step) for step in inner.values()}
        if len(heads) != 1 or None in heads:
            break
        touching = {r: step.body for r, step in inner.items() if isinstance(step, For | Repeat)}
        repeated = True
    return Frame(program, tuple(touching.items()), repeated)


def _only(body: Body, names: frozenset[str]) -> object:
    """The one step that holds all touches of a body, or None."""
    found = [step for step in body if _touches((step,), names)]
    return found[0] if len(found) == 1 else None


def _loop_head(step: object) -> object:
    match step:
        case For(var, start, stop):
            return (var, start, stop)
        case Repeat(cond):
            return cond
    return None


def _touches(body: Body, names: frozenset[str]) -> bool:
    return any(not names.isdisjoint(access(step.op).names) for step in executed(body))


def _contacts(frame: Frame, name: str) -> Iterator[Contact]:
    for role, body in frame.bodies:
        yield from _below(body, role, (), name)


def _below(body: Body, role: str, path: Path, name: str) -> Iterator[Contact]:
    for index, step in enumerate(body):
        here = (*path, index)
        if isinstance(step, For | When | Repeat):
            yield from _below(step.body, role, here, name)
        elif isinstance(step, Exec):
            found = access(step.op)
            for write, regions in ((False, found.reads), (True, found.writes)):
                for region in regions:
                    if region.buffer.name == name:
                        yield Contact(role, here, step, region, write, rows_of(region))


def rows_of(region: Region) -> tuple[int, int] | None:
    """The rows [low, high) of a buffer, all but its last dimension counted through, in which a
    region lies; None where they are not known or not in one piece."""
    shape = region.buffer.shape[:-1]
    inner = 1
    low, high = 0, 1
    whole = True
    for start, extent, size in reversed(
        tuple(zip(region.start, region.extent, shape, strict=False))
    ):
        if not isinstance(start, Const) or not isinstance(extent, Const):
            return None
        if not isinstance(size, Const) or not (whole or extent.value == 1):
            return None
        low, high = low + start.value * inner, high + (start.value + extent.value - 1) * inner
        whole = whole and extent.value == size.value
        inner *= size.value
    return low, high
