"""What the buffers of a program ask of placement: sizes, alignments, lifetimes, and who may share.

Two buffers may share bytes where `handover` orders all their touches, one buffer before the other
in every tile, or, row by row, where both lie the same way at the same offset. Where a block works
on several tiles, each must be written anew in every tile as well: a value that is kept from tile
to tile would be lost. Barriers are held throughout.

Invariant: a pair that is not listed in `Requests.sharing` is never given a common byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import combinations

from attrs import Factory, define, frozen

from explorer.expr import Const
from explorer.ir.access import access
from explorer.ir.nodes import Copy, Region
from explorer.machine import Machine, Scope
from explorer.memory.footprint import (
    SlotForm,
    address_form,
    barriers_form,
    slot_form,
    turned_operands,
)
from explorer.memory.placement import ALWAYS, BARRIERS, TENSOR_ADDRESS, Lifetime
from explorer.memory.places import pool_regions
from explorer.program.handover import (
    Body,
    Contact,
    Frame,
    Order,
    Path,
    guards,
    loop,
)
from explorer.program.nodes import Exec, For, Program, Repeat, When
from explorer.program.steps import every_step, executed
from explorer.schedule.extensions import CopyRoute


class Sharing(StrEnum):
    """How two buffers may take common bytes: any of them, or the same rows at the same offset."""

    ANY = "any"
    ROWS = "rows"


@frozen
class Request:
    """One buffer, all versions, or the barriers.

    `fixed` is the offset that the kernel's author chose, in bytes; others are free to lie anywhere
    behind all pools.
    """

    name: str
    scope: Scope
    form: SlotForm
    versions: int
    lifetime: Lifetime
    fixed: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes from the first version to the end of the last."""
        return self.form.pitch_bytes * (self.versions - 1) + self.form.version_bytes


@frozen
class Requests:
    """All requests of a program, and the pairs (names in order of request) that may share.

    `pooled` gives, for each scope with pools, the bytes that they take.
    """

    items: tuple[Request, ...]
    sharing: tuple[tuple[str, str, Sharing], ...]
    pooled: tuple[tuple[Scope, int], ...] = ()

    def pooled_bytes(self, scope: Scope) -> int:
        """The bytes of a scope that pools take; 0 without any."""
        return dict(self.pooled).get(scope, 0)


def requests_of(program: Program, machine: Machine) -> Requests:
    """What a program asks of placement on a machine."""
    times = lifetimes(program)
    forms = forms_of(program, machine)
    pools = pool_regions(program.pools, machine)
    # Bytes that a pool divides are counted there, and what nothing touches there takes none.
    divided = {pool.base for pool in program.pools}
    divided |= {p.buffer for pool in program.pools for p in pool.places if not p.permanent}
    items = [
        Request(
            ring.buffer.name,
            ring.buffer.scope,
            forms[ring.buffer.name],
            ring.versions,
            times.get(ring.buffer.name, ALWAYS),
            pools.offset(ring.buffer.name),
        )
        for ring in program.rings
        if ring.buffer.name in times or ring.buffer.name not in divided
    ]
    depths = [barriers.depth for barriers in program.barriers]
    if depths:
        form = barriers_form(depths, machine)
        items.append(Request(BARRIERS, Scope.SHARED, form, 1, ALWAYS))
    if any(item.scope == Scope.TMEM and item.fixed is None for item in items):
        items.append(Request(TENSOR_ADDRESS, Scope.SHARED, address_form(), 1, ALWAYS))
    sharing = []
    for one, other in combinations(items, 2):
        held = ALWAYS in (one.lifetime, other.lifetime)
        if held or one.scope != other.scope or not one.size_bytes or not other.size_bytes:
            continue
        found = may_share(program, machine, one, other)
        if found is not None:
            sharing.append((one.name, other.name, found))
    return Requests(tuple(items), tuple(sharing), pools.sizes)


def forms_of(program: Program, machine: Machine) -> dict[str, SlotForm]:
    """How a version of each buffer lies."""
    steps = [step for role in program.roles for step in executed(role.body)]
    turned = turned_operands([step.op for step in steps], machine)
    bulk = frozenset(name for step in steps for name in _bulk_tiles(step))
    return {
        ring.buffer.name: slot_form(
            ring.buffer,
            machine,
            turned,
            ring.buffer.name in bulk,
            program.fixed_place(ring.buffer.name),
        )
        for ring in program.rings
    }


def _bulk_tiles(step: Exec) -> Iterator[str]:
    """The tiles that a copy engine may fill or drain."""
    if isinstance(step.op, Copy):
        if step.route == CopyRoute.BULK:
            yield step.op.dst.buffer.name
        if step.op.dst.buffer.scope == Scope.GLOBAL:
            yield step.op.src.buffer.name


# ---------------------------------------------------------------- sharing


def may_share(program: Program, machine: Machine, one: Request, other: Request) -> Sharing | None:
    """Whether, and how, two buffers may take common bytes."""
    frame = _frame(program, machine, frozenset((one.name, other.name)))
    touches = {name: list(_contacts(frame, name)) for name in (one.name, other.name)}
    if not all(touches.values()):
        return None
    order = Order(frame, frozenset((one.name, other.name)))
    if frame.repeated and not all(_renewed(order, found) for found in touches.values()):
        return None
    alike = (one.form.rows, one.form.row_bytes, one.form.boxes)
    rowwise = one.form.row_bytes > 0 and one.versions == other.versions == 1
    rowwise = rowwise and alike == (other.form.rows, other.form.row_bytes, other.form.boxes)
    for first, second in ((one.name, other.name), (other.name, one.name)):
        pairs = _Handover(order, touches[first], touches[second])
        if pairs.holds(rowwise=False):
            return Sharing.ANY
        if rowwise and pairs.holds(rowwise=True):
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


# ---------------------------------------------------------------- lifetimes


def lifetimes(program: Program) -> dict[str, Lifetime]:
    """From which op of a tile to which other one each buffer holds a value.

    In a loop a buffer is held from its first to its last op, since the next iteration writes some
    version while another one is read.
    """
    order = op_order(program)
    number = {name: place for place, name in enumerate(order)}
    found: dict[str, set[int]] = {}
    for role in program.roles:
        for step in role.body:
            inside = list(executed((step,)))
            touched = {name for each in inside for name in access(each.op).names}
            looped = any(loop(each) for each in every_step((step,)))
            for name in touched:
                found.setdefault(name, set()).update(
                    number[each.op.id]
                    for each in inside
                    if looped or name in access(each.op).names
                )
    return {
        name: Lifetime(min(at), max(at), order[min(at)], order[max(at)])
        for name, at in found.items()
    }


def op_order(program: Program) -> tuple[str, ...]:
    """All ops in an order that every role keeps and in which data is written before it is read,
    as far as the roles agree on one."""
    later: dict[str, set[str]] = {}
    writer: dict[str, str] = {}
    for role in program.roles:
        ids = list(dict.fromkeys(step.op.id for step in executed(role.body)))
        for place, one in enumerate(ids):
            later.setdefault(one, set()).update(ids[place + 1 : place + 2])
        for step in executed(role.body):
            for region in access(step.op).writes:
                writer.setdefault(region.buffer.name, step.op.id)
    names = {ring.buffer.name for ring in program.rings}
    for role in program.roles:
        for step in executed(role.body):
            for region in access(step.op).reads:
                write = writer.get(region.buffer.name, step.op.id)
                if region.buffer.name in names and not _leads(later, step.op.id, write):
                    later[write].add(step.op.id)
    return _sorted(later)


def _leads(later: dict[str, set[str]], first: str, second: str) -> bool:
    """Whether one op comes before another one, or is that one."""
    seen, front = {first}, [first]
    while front:
        for name in later[front.pop()] - seen:
            seen.add(name)
            front.append(name)
    return second in seen


def _sorted(later: dict[str, set[str]]) -> tuple[str, ...]:
    """A topological order, of several the one nearest to that of the keys; where roles differ in
    their order, that of the first one."""
    waiting = dict.fromkeys(later, 0)
    for name in (name for names in later.values() for name in names):
        waiting[name] += 1
    order: list[str] = []
    while waiting:
        name = next((each for each, count in waiting.items() if not count), next(iter(waiting)))
        del waiting[name]
        order.append(name)
        for follower in later[name] & waiting.keys():
            waiting[follower] -= 1
    return tuple(order)


__all__ = [
    "Request",
    "Requests",
    "Sharing",
    "forms_of",
    "lifetimes",
    "may_share",
    "op_order",
    "requests_of",
    "rows_of",
]
