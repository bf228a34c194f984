"""Races by happens-before: every access against every earlier one to the same elements.

Each actor (a role, or its asynchronous engine) ticks on every access; barriers and drains carry
clocks. Two accesses to overlapping elements, one of them a write, must be ordered by clocks,
whatever order this run happened to take. A ring slot that was last written in another cycle than
the one that is read is a use before full, too.

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


class Needs(IntEnum):
    """What a read needs to have been written before it: nothing, something, this very cycle."""

    NOTHING = 0
    WRITTEN = 1
    THIS_CYCLE = 2


@frozen(eq=False)
class Touch:
    """One access: where, which elements, by whom, in which pipeline cycles.

    `place` is (block, owner, buffer, version); block -1 is global memory and owner the role of a
    private buffer.
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

    def meets(self, other: Touch) -> bool:
        """Whether the two touch a common element."""
        return all(a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True))

    def covers(self, other: Touch) -> bool:
        """Whether this one touches every element that the other does."""
        return all(a <= c and d <= b for (a, b), (c, d) in zip(self.box, other.box, strict=True))


@define
class MemoryModel:
    """The accesses that later ones must be ordered against, per place."""

    live: dict[Place, list[Touch]] = Factory(dict)

    def record(self, touch: Touch, clock: Clock) -> None:
        """Check an access against all live ones and add it; FaultFound carries the race."""
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


def _supersedes(touch: Touch, entry: Touch) -> bool:
    """Whether whatever is ordered after `touch` need not be checked against `entry`."""
    return touch.covers(entry) and (touch.write or not entry.write)


def _race(touch: Touch, entry: Touch) -> Race:
    kind = "unordered"
    if touch.cycle or entry.cycle:
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
