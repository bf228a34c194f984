"""Arrangements of buffers in their memories: what needs no solver, and what makes a placement.

Where no two buffers share bytes, one behind the other is the least there is, unless alignment
leaves gaps. The bound on every arrangement, the check of one, and simple arrangements to start
from are here; `constraints.placement` searches where they leave something to gain.

Invariant: an arrangement that passes `broken_pair` gives no byte to two buffers that may hold
values at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

from attrs import frozen

from explorer.errors import IllegalSchedule
from explorer.expr import evaluate
from explorer.machine import Machine, Scope
from explorer.memory.footprint import aligned
from explorer.memory.packing import allocated_columns
from explorer.memory.placement import TENSOR_ADDRESS, Footprint, PlacedBuffer, Placement
from explorer.program.nodes import Program
from explorer.program.requests import Request, Requests
from explorer.program.shared import bump_layout
from explorer.program.sharing import Sharing

Shared: TypeAlias = Mapping[frozenset[str], Sharing]


@frozen
class Packing:
    """An offset for each request, the bytes from the first to the last, and whether that is
    minimal."""

    offsets: tuple[int, ...]
    total_bytes: int
    proven: bool


Packer: TypeAlias = Callable[[tuple[Request, ...], Shared, int], Packing | None]


def placement_of(
    program: Program, machine: Machine, requests: Requests, packer: Packer
) -> Placement | None:
    """The placement that a packer makes of all memories; None where it gives one of them up.

    IllegalSchedule where two fixed requests take common bytes that nothing hands over.
    """
    shared = {frozenset((one, other)): how for one, other, how in requests.sharing}
    buffers: list[PlacedBuffer] = []
    footprints: list[Footprint] = []
    for scope in dict.fromkeys(item.scope for item in requests.items):
        items = tuple(item for item in requests.items if item.scope == scope)
        _require_handovers(items, shared)
        packing = packer(items, shared, requests.pooled_bytes(scope))
        if packing is None:
            return None
        broken = broken_pair(items, shared, packing.offsets)
        if broken is not None:
            raise AssertionError(f"placement: {broken[0]} and {broken[1]} hold common bytes")
        for item, offset in zip(items, packing.offsets, strict=True):
            buffers.append(_placed(item, offset))
        footprints.append(_footprint(scope, items, packing, program, machine))
    return Placement(tuple(buffers), tuple(footprints))


def packed_in_order(
    items: tuple[Request, ...], shared: Shared, pooled_bytes: int
) -> Packing | None:
    """One behind the other, where nothing less would do."""
    offsets, total = in_order(items, pooled_bytes)
    bound = max(least_bytes(items, shared), pooled_bytes)
    return Packing(offsets, max(total, pooled_bytes), True) if total <= bound else None


def _placed(item: Request, offset: int) -> PlacedBuffer:
    form = item.form
    return PlacedBuffer(
        buffer=item.name,
        scope=item.scope,
        offset_bytes=offset,
        version_bytes=form.version_bytes,
        pitch_bytes=form.pitch_bytes,
        versions=item.versions,
        alignment_bytes=form.alignment_bytes,
        lifetime=item.lifetime,
        row_bytes=form.row_bytes,
        boxes=form.boxes,
    )


def _footprint(
    scope: Scope, items: Sequence[Request], packing: Packing, program: Program, machine: Machine
) -> Footprint:
    bump = in_order(items)[1]
    if scope == Scope.SHARED:
        words = (item.size_bytes for item in items if item.name == TENSOR_ADDRESS)
        bump = bump_layout(program, machine).total_bytes + sum(words)
    allocated = packing.total_bytes
    memory = machine.tensor_memory
    if scope == Scope.TMEM and memory is not None:
        column = memory.column_bytes
        columns = -(-packing.total_bytes // column)
        allocated = evaluate(allocated_columns(columns, memory)) * column
    return Footprint(scope, packing.total_bytes, bump, allocated, packing.proven)


# ---------------------------------------------------------------- arrangements


def in_order(items: Sequence[Request], pooled_bytes: int = 0) -> tuple[tuple[int, ...], int]:
    """Fixed ones where they are, the others one behind the other, each aligned by its use."""
    ends = (item.fixed + item.size_bytes for item in items if item.fixed is not None)
    offsets, cursor = [], max((pooled_bytes, *ends))
    for item in items:
        if item.fixed is not None:
            offsets.append(item.fixed)
            continue
        cursor = aligned(cursor, item.form.alignment_bytes)
        offsets.append(cursor)
        cursor += item.size_bytes
    return tuple(offsets), cursor


def _require_handovers(items: Sequence[Request], shared: Shared) -> None:
    fixed = [(item, item.fixed) for item in items if item.fixed is not None]
    broken = broken_pair([item for item, _ in fixed], shared, [offset for _, offset in fixed])
    if broken is not None:
        raise IllegalSchedule(
            f"pool-overlap: {broken[0]} and {broken[1]} share bytes by move_base_to, and nothing "
            "in this schedule hands them over; give them bytes of their own, or move the last "
            "release of the first behind the last touch of the second"
        )


def least_bytes(items: Sequence[Request], shared: Shared) -> int:
    """The weight of the heaviest set of requests of which no two may share bytes."""
    ranked = sorted(items, key=lambda item: -item.size_bytes)
    return _heaviest(ranked, shared, 0)


def _heaviest(rest: Sequence[Request], shared: Shared, found: int) -> int:
    """The same among the rest, if it is more than `found`; else something not above that."""
    best = 0
    for index, item in enumerate(rest):
        if sum(other.size_bytes for other in rest[index:]) <= max(best, found):
            break
        apart = [o for o in rest[index + 1 :] if frozenset((item.name, o.name)) not in shared]
        weight = item.size_bytes + _heaviest(apart, shared, max(best, found) - item.size_bytes)
        best = max(best, weight)
    return best


def broken_pair(
    items: Sequence[Request], shared: Shared, offsets: Sequence[int]
) -> tuple[str, str] | None:
    """Two requests that take common bytes and may not; None where there are none."""
    for (one, a), (other, b) in combinations(zip(items, offsets, strict=True), 2):
        apart = a + one.size_bytes <= b or b + other.size_bytes <= a
        how = shared.get(frozenset((one.name, other.name)))
        if not apart and not (how == Sharing.ANY or (how == Sharing.ROWS and a == b)):
            return one.name, other.name
    return None


def overlapping(
    items: Sequence[Request], shared: Shared, offsets: Sequence[int]
) -> dict[frozenset[str], Sharing]:
    """The pairs that do take common bytes."""
    ends = [at + item.size_bytes for item, at in zip(items, offsets, strict=True)]
    pairs = {
        frozenset((items[a].name, items[b].name))
        for a, b in combinations(range(len(items)), 2)
        if offsets[a] < ends[b] and offsets[b] < ends[a]
    }
    return {pair: how for pair, how in shared.items() if pair in pairs}


def sunk_orders(
    items: Sequence[Request], shared: Shared, floor: int
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Arrangements in which requests sink, one after the other, to the lowest place that is free;
    fixed ones first, then the large or the widely aligned ones."""
    keys: tuple[Callable[[Request], tuple[int, ...]], ...] = (
        lambda item: (item.size_bytes,),
        lambda item: (item.form.alignment_bytes, item.size_bytes),
    )
    for key in keys:
        ranked = sorted(
            range(len(items)),
            key=lambda k: (items[k].fixed is None, *(-x for x in key(items[k])), k),
        )
        placed: dict[int, int] = {}
        for index in ranked:
            others = [(items[k], at) for k, at in placed.items()]
            placed[index] = _lowest(items[index], others, shared, floor)
        offsets = tuple(placed[k] for k in range(len(items)))
        yield offsets, max(at + i.size_bytes for at, i in zip(offsets, items, strict=True))


def _lowest(
    item: Request,
    others: Sequence[tuple[Request, int]],
    shared: Shared,
    floor: int,
) -> int:
    """The lowest place for a request beside others: at the floor, or where one starts or ends."""
    if item.fixed is not None:
        return item.fixed
    step = item.form.alignment_bytes
    ends = {aligned(at + other.size_bytes, step) for other, at in others}
    starts = {at for _, at in others if at % step == 0}
    return next(
        at
        for at in sorted({aligned(floor, step)} | ends | starts)
        if at >= floor
        and all(broken_pair((item, other), shared, (at, there)) is None for other, there in others)
    )


def settled(
    items: Sequence[Request],
    shared: Shared,
    offsets: tuple[int, ...],
    floor: int,
) -> tuple[int, ...]:
    """The same arrangement with every request as low as the lower ones let it, so that equal
    problems have equal answers."""
    placed = list(offsets)
    for index in sorted(range(len(items)), key=lambda k: (offsets[k], k)):
        others = [(items[k], placed[k]) for k in range(len(items)) if k != index]
        placed[index] = min(placed[index], _lowest(items[index], others, shared, floor))
    return tuple(placed)
