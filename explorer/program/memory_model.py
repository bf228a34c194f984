"""Races by happens-before: every access against every earlier one to the same elements.

Each actor (a role, or its asynchronous engine) ticks on every access; barriers and drains carry
clocks. Two accesses to overlapping elements, one of them a write, must be ordered by clocks,
whatever order this run happened to take. A ring slot that was last written in another cycle than
the one that is read is a use before full, too. Where a placement gives buffers common bytes,
touches of different buffers are compared by bytes: they must be ordered as well, and what is read
must not have been overwritten for another buffer since it was written.

Invariant: an access is reported at most once, and ordered accesses are never reported.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from attrs import Factory, define, frozen

from explorer.program.barrier import Clock
from explorer.program.verdict import FaultFound, Race

Box: TypeAlias = tuple[tuple[int, int], ...]
Place: TypeAlias = tuple[int, str, str, tuple[int, ...]]
Spans: TypeAlias = tuple[tuple[int, int], ...]


class Needs(IntEnum):
    """What a read needs to have been written before it: nothing, something, this very cycle."""

    NOTHING = 0
    WRITTEN = 1
    THIS_CYCLE = 2


@frozen(eq=False)
class Touch:
    """One access: where, which elements, by whom, in which pipeline cycles.

    `place` is (block, owner, buffer, version); block -1 is global memory and owner the role of a
    private buffer. `spans` are its byte ranges, where some of the buffer's are another one's too.
    """

    place: Place
    box: Box
    write: bool
    atomic: bool
    block: int
    role: str
    op: str
    actor: str
    tick: int
    cycle: tuple[int, ...]
    needs: Needs = Needs.NOTHING
    spans: Spans = ()

    def meets(self, other: Touch) -> bool:
        """Whether the two touch a common element."""
        return all(a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True))

    def covers(self, other: Touch) -> bool:
        """Whether this one touches every element that the other does."""
        return all(a <= c and d <= b for (a, b), (c, d) in zip(self.box, other.box, strict=True))


@define
class Held:
    """An access, and those of its bytes that no later write has taken over."""

    touch: Touch
    spans: Spans


@define
class MemoryModel:
    """The accesses that later ones must be ordered against, per place, and by bytes per block."""

    live: dict[Place, list[Touch]] = Factory(dict)
    held: dict[int, list[Held]] = Factory(dict)

    def record(self, touch: Touch, clock: Clock) -> None:
        """Check an access against all live ones and add it; FaultFound carries the race."""
        if touch.spans:
            self.record_bytes(touch, clock)
        entries = self.live.setdefault(touch.place, [])
        kept: list[Touch] = []
        written = touch.needs == Needs.NOTHING
        for entry in entries:
            ordered = clock.get(entry.actor, 0) >= entry.tick
            if touch.meets(entry):
                if entry.write:
                    same = entry.cycle == touch.cycle
                    written = written or same or touch.needs == Needs.WRITTEN
                conflict = (touch.write or entry.write) and not (touch.atomic and entry.atomic)
                if conflict and not ordered:
                    raise FaultFound(_race(touch, entry))
            if not (ordered and _supersedes(touch, entry)):
                kept.append(entry)
        if not written:
            raise FaultFound(_unwritten(touch, entries))
        kept.append(touch)
        self.live[touch.place] = kept

    def record_bytes(self, touch: Touch, clock: Clock) -> None:
        """Check an access against those of other buffers to the same bytes, and add it."""
        kept: list[Held] = []
        for held in self.held.get(touch.place[0], []):
            entry = held.touch
            ordered = clock.get(entry.actor, 0) >= entry.tick
            if entry.place[2] != touch.place[2] and _common(held.spans, touch.spans):
                if (touch.write or entry.write) and not ordered:
                    raise FaultFound(_race(touch, entry, "unordered in shared bytes"))
                if entry.write and not touch.write:
                    raise FaultFound(_race(touch, entry, "overwritten in shared bytes"))
            if ordered and (touch.write or not entry.write):
                held.spans = _without(held.spans, touch.spans)
            if held.spans:
                kept.append(held)
        kept.append(Held(touch, touch.spans))
        self.held[touch.place[0]] = kept


def _common(one: Spans, other: Spans) -> bool:
    return any(a < d and c < b for a, b in one for c, d in other)


def _without(spans: Spans, taken: Spans) -> Spans:
    """The parts of some ranges that others leave."""
    for low, high in taken:
        spans = tuple(
            part
            for a, b in spans
            for part in ((a, min(b, low)), (max(a, high), b))
            if part[0] < part[1]
        )
    return spans


def _supersedes(touch: Touch, entry: Touch) -> bool:
    """Whether whatever is ordered after `touch` need not be checked against `entry`."""
    return touch.covers(entry) and (touch.write or not entry.write)


def _race(touch: Touch, entry: Touch, shared: str = "") -> Race:
    kind = shared or "unordered"
    if not shared and (touch.cycle or entry.cycle):
        first, second = sorted((touch, entry), key=lambda each: each.cycle)
        if touch.cycle == entry.cycle and touch.write != entry.write:
            kind = "use before full"
        elif first.cycle < second.cycle and second.write:
            kind = "overwrite before empty"
        elif first.cycle < second.cycle:
            kind = "use before full"
    return Race(
        kind,
        touch.block,
        touch.role,
        touch.op,
        entry.role,
        entry.op,
        touch.place[2],
        touch.place[3],
        touch.cycle,
        entry.cycle,
    )


def _unwritten(touch: Touch, entries: list[Touch]) -> Race:
    last = next((entry for entry in reversed(entries) if entry.write), None)
    return Race(
        "use before full",
        touch.block,
        touch.role,
        touch.op,
        last.role if last else "",
        last.op if last else "",
        touch.place[2],
        touch.place[3],
        touch.cycle,
        last.cycle if last else (),
    )
