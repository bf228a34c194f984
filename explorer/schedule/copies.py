"""How many copies a private buffer needs where its role's ops stand at several stages.

A value that an op writes at stage d and another reads at stage d + s lives s iterations; if the
writer comes round before the reader is done, the buffer needs one more copy.

Invariant: the one formula; the pass that makes the copies and the rules that count them use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from explorer.expr import Const
from explorer.ir.access import access
from explorer.ir.nodes import Op, Region


@frozen
class Touch:
    """When an iteration touches a buffer: its place in the kernel, and in the role's time.

    `time` is (stage, place in the body); `fresh` says that the op writes all of the buffer and
    reads none of it.
    """

    kernel: int
    time: tuple[int, int]
    fresh: bool


def renewed(touches: Iterable[Touch]) -> bool:
    """Whether every iteration starts with a write of all of the buffer."""
    return min(touches, key=lambda touch: touch.kernel).fresh


def copies_needed(touches: list[Touch]) -> int:
    """The smallest number of copies whose first writer comes round after the last access."""
    if not renewed(touches):
        return 1
    first = min(touches, key=lambda touch: touch.kernel)
    last = max(touch.time for touch in touches)
    stage, place = first.time
    distance = last[0] - stage
    return max(1, distance + (1 if last[1] >= place else 0))


def overwrites(op: Op, name: str) -> bool:
    """Whether an op writes all of a buffer and reads none of it."""
    touched = access(op)
    if any(region.buffer.name == name for region in touched.reads):
        return False
    return any(region.buffer.name == name and _covers(region) for region in touched.writes)


def _covers(region: Region) -> bool:
    return region.extent == region.buffer.shape and all(s == Const(0) for s in region.start)
