"""Where every on-chip buffer of a scheduled kernel lies: the result of placement, and its map.

Invariant: two buffers whose bytes overlap are never held at the same time; whoever makes a
`Placement` has proven that (`program.handover` says how), and the emitters take it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.machine import Scope
from explorer.memory.footprint import Placed, SharedLayout

# No buffer can have these names.
BARRIERS = "<barriers>"
TENSOR_ADDRESS = "<tensor memory address>"


@frozen
class Lifetime:
    """From the first to the last op of a tile between which a buffer holds a value.

    `start` and `end` number the ops in an order that every role keeps; an empty `first` stands for
    the whole life of the block.
    """

    start: int
    end: int
    first: str = ""
    last: str = ""

    def __str__(self) -> str:
        return f"{self.first} .. {self.last}" if self.first else "always"


ALWAYS = Lifetime(0, 0)


@frozen
class PlacedBuffer:
    """`versions` copies of a buffer, `pitch_bytes` apart, from `offset_bytes` on.

    Each copy takes `version_bytes` of its pitch, the rest is padding. A copy is `boxes` boxes side
    by side, each with its rows `row_bytes` apart; 0 where rows do not lie together.
    """

    buffer: str
    scope: Scope
    offset_bytes: int
    version_bytes: int
    pitch_bytes: int
    versions: int
    alignment_bytes: int
    lifetime: Lifetime
    row_bytes: int = 0
    boxes: int = 1

    @property
    def size_bytes(self) -> int:
        """Bytes from the first copy to the end of the last."""
        return self.pitch_bytes * (self.versions - 1) + self.version_bytes

    @property
    def end_bytes(self) -> int:
        """The first byte behind it."""
        return self.offset_bytes + self.size_bytes

    @property
    def padding_bytes(self) -> int:
        """Bytes between its copies."""
        return (self.pitch_bytes - self.version_bytes) * (self.versions - 1)

    def overlaps(self, other: PlacedBuffer) -> bool:
        """Whether both take a common byte."""
        same = self.scope == other.scope
        return same and self.offset_bytes < other.end_bytes and other.offset_bytes < self.end_bytes

    def spans(self, version: int, rows: tuple[int, int] | None) -> tuple[tuple[int, int], ...]:
        """The byte ranges of some rows of a copy; of all of it for None."""
        base = self.offset_bytes + version * self.pitch_bytes
        if rows is None or not self.row_bytes:
            return ((base, base + self.version_bytes),)
        box = self.version_bytes // self.boxes
        low, high = rows[0] * self.row_bytes, rows[1] * self.row_bytes
        return tuple((base + b * box + low, base + b * box + high) for b in range(self.boxes))


@frozen
class Footprint:
    """What a scope takes: `total_bytes`, and whether nothing less would do (`proven`).

    `bump_bytes` is what the same buffers take one behind the other, which is what the capacity
    rules count. `allocated_bytes` is what the hardware hands out for the total.
    """

    scope: Scope
    total_bytes: int
    bump_bytes: int
    allocated_bytes: int
    proven: bool

    def __str__(self) -> str:
        label = "minimal, proven" if self.proven else "not proven minimal"
        granted = self.allocated_bytes
        rounded = f", allocated as {granted} B" if granted != self.total_bytes else ""
        return (
            f"{self.scope}: {self.total_bytes} B{rounded} ({label}; {self.bump_bytes} B without "
            "sharing)"
        )


@frozen
class Placement:
    """All on-chip buffers of one schedule, and what each scope takes.

    The barriers are the buffer `BARRIERS`: full and empty ones of every pipeline in order. Where a
    block allocates tensor memory, the hardware writes its base to the word `TENSOR_ADDRESS`.
    """

    buffers: tuple[PlacedBuffer, ...]
    footprints: tuple[Footprint, ...]

    def buffer(self, name: str) -> PlacedBuffer:
        """Where a buffer lies; KeyError where it has no place."""
        for placed in self.buffers:
            if placed.buffer == name:
                return placed
        raise KeyError(name)

    def footprint(self, scope: Scope) -> Footprint:
        """What a scope takes; KeyError where nothing lies in it."""
        for footprint in self.footprints:
            if footprint.scope == scope:
                return footprint
        raise KeyError(scope)

    @property
    def shared(self) -> SharedLayout:
        """The part in shared memory, as the emitters read it."""
        rings = tuple(
            Placed(p.buffer, p.offset_bytes, p.pitch_bytes, p.versions)
            for p in self.buffers
            if p.scope == Scope.SHARED and p.buffer not in (BARRIERS, TENSOR_ADDRESS)
        )
        offsets = (p.offset_bytes for p in self.buffers if p.buffer == BARRIERS)
        held = (f.total_bytes for f in self.footprints if f.scope == Scope.SHARED)
        total = next(held, 0)
        return SharedLayout(rings, next(offsets, total), total)

    def sharers(self, name: str) -> frozenset[str]:
        """The other buffers that take some of a buffer's bytes."""
        own = next((p for p in self.buffers if p.buffer == name), None)
        if own is None:
            return frozenset()
        return frozenset(p.buffer for p in self.buffers if p is not own and p.overlaps(own))


def memory_map(placement: Placement) -> str:
    """The placement as text: a table a scope, lowest offset first."""
    lines: list[str] = []
    for footprint in placement.footprints:
        lines.append(str(footprint))
        lines += _table(placement, footprint.scope)
    return "\n".join(lines)


_HEAD = ("offset", "bytes", "versions", "pitch", "align", "padding", "buffer", "lifetime")


def _table(placement: Placement, scope: Scope) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [_HEAD]
    for placed in sorted(_within(placement, scope), key=lambda p: (p.offset_bytes, p.buffer)):
        numbers = (
            placed.offset_bytes,
            placed.size_bytes,
            placed.versions,
            placed.pitch_bytes,
            placed.alignment_bytes,
            placed.padding_bytes,
        )
        over = ", ".join(sorted(placement.sharers(placed.buffer)))
        note = f" (shares bytes with {over})" if over else ""
        rows.append((*map(str, numbers), placed.buffer, f"{placed.lifetime}{note}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = [
            text.rjust(width) if column < 6 else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def _within(placement: Placement, scope: Scope) -> Iterator[PlacedBuffer]:
    return (placed for placed in placement.buffers if placed.scope == scope)
