"""From dependences to flags: which pipes must meet, where, and with how many flag ids.

A dependence between two pipes becomes a pair of set_flag and wait_flag unless the order of the
pipes and the pairs that are kept already imply it. A pipe issues its ops in order, so that an op
precedes the later ops of its pipe and, one iteration on, the earlier ones.

Invariant: with the flags of the result, every dependence is a path of pipe orders and flags whose
distances sum to at most its own. Ids of one pair of pipes do not overlap and are at most the
machine's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve, frozen

from explorer.errors import IllegalSchedule
from explorer.machine import Machine, Pipe
from explorer.schedule.pipe import BufferRing, Flag, NodeDependence

# The scalar, vector and matrix pipes finish an op before the next one reads; the others may
# overlap two ops, so that a dependence inside them needs a barrier (tilelang 0.1.15, insert_sync).
ORDERED = frozenset((Pipe.SCALAR, Pipe.VECTOR, Pipe.CUBE))
_FAR = 1 << 20


@frozen
class Site:
    """An op as a loop level sees it: the pipe that issues it, its node's place and stage."""

    op: str
    node: str
    pipe: Pipe
    place: tuple[int, int, int]
    stage: int


@frozen
class PipeEdge:
    """A dependence and the pipes on which its two accesses happen."""

    edge: NodeDependence
    source: Pipe
    target: Pipe

    @property
    def producer(self) -> tuple[str, Pipe]:
        """The site that has to be done."""
        return self.edge.producer, self.source

    @property
    def consumer(self) -> tuple[str, Pipe]:
        """The site that waits."""
        return self.edge.consumer, self.target


@frozen
class Level:
    """One loop body: its id, the sites of all ops below it in issue order, its dependences.

    An op that fetches its operands on one pipe and computes on another has two sites in a row.
    """

    loop: str
    sites: tuple[Site, ...]
    edges: tuple[PipeEdge, ...]


def derive_flags(
    levels: Iterable[Level], rings: Mapping[str, BufferRing], machine: Machine
) -> tuple[Flag, ...]:
    """The flags of a kernel, inner loops first as `levels` lists them."""
    kept: list[Flag] = []
    inner: list[PipeEdge] = []
    for level in levels:
        order = _Order(level)
        for edge in inner:
            order.add(edge, 0)
        for edge in sorted(level.edges, key=lambda each: order.urgency(each, rings)):
            flag = order.flag(edge, rings)
            if flag is None:
                continue
            kept.append(flag)
            if not edge.edge.distance and not edge.edge.carried:
                inner.append(edge)
    return tuple(_numbered(kept, machine))


class _Order:
    """Least iteration distances between the sites of a level, through pipes and kept flags."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.index = {(site.op, site.pipe): at for at, site in enumerate(level.sites)}
        count = len(level.sites)
        self.weak = [[_FAR] * count for _ in range(count)]
        self.strong = [[_FAR] * count for _ in range(count)]
        for a, first in enumerate(level.sites):
            for b, second in enumerate(level.sites):
                if first.pipe == second.pipe:
                    turn = 0 if a != b and first.place < second.place else 1
                    least = max(0, first.stage - second.stage + turn)
                    if level.loop or not turn:
                        self._relax(a, b, least, first.pipe in ORDERED)
                elif first.op == second.op and a < b:
                    self._relax(a, b, 0, True)

    def _relax(self, a: int, b: int, distance: int, strong: bool) -> None:
        span = range(len(self.weak))
        before = [(i, self.weak[i][a], self.strong[i][a]) for i in span] + [(a, 0, _FAR)]
        after = [(j, self.weak[b][j], self.strong[b][j]) for j in span] + [(b, 0, _FAR)]
        for i, weak_in, strong_in in before:
            for j, weak_out, strong_out in after:
                total = weak_in + distance + weak_out
                self.weak[i][j] = min(self.weak[i][j], total)
                firm = (
                    total
                    if strong
                    else min(strong_in + distance + weak_out, weak_in + distance + strong_out)
                )
                self.strong[i][j] = min(self.strong[i][j], firm)

    def add(self, edge: PipeEdge, distance: int) -> None:
        """Take note of an order that flags enforce."""
        if edge.producer in self.index and edge.consumer in self.index:
            ends = self.index[edge.producer], self.index[edge.consumer]
            self._relax(*ends, distance, True)

    def urgency(self, edge: PipeEdge, rings: Mapping[str, BufferRing]) -> tuple[int, int, int]:
        """Tight edges first: short distances, late producers, early consumers."""
        return _span(edge, rings), -self.index[edge.producer], self.index[edge.consumer]

    def flag(self, edge: PipeEdge, rings: Mapping[str, BufferRing]) -> Flag | None:
        """The flag of a dependence, or None where it is implied."""
        found = edge.edge
        ring = rings.get(found.buffer)
        versions = ring.versions if ring is not None else 1
        distance = _span(edge, rings)
        if self.strong[self.index[edge.producer]][self.index[edge.consumer]] <= distance:
            return None
        self.add(edge, distance)
        owned = ring is not None and self.level.loop in ring.owners
        by_hand = ring is not None and ring.manual and self.level.loop and not distance
        return Flag(
            loop=self.level.loop,
            source=edge.source,
            target=edge.target,
            before=found.before,
            after=found.after,
            event=0,
            versions=versions if owned or by_hand else max(1, distance),
            initial=distance > 0,
            ring=found.buffer if owned else "",
        )


def _span(edge: PipeEdge, rings: Mapping[str, BufferRing]) -> int:
    """The distance of a dependence in iterations."""
    ring = rings.get(edge.edge.buffer)
    carried = ring.versions if ring is not None else 1
    return carried if edge.edge.carried else edge.edge.distance


def _numbered(flags: list[Flag], machine: Machine) -> Iterator[Flag]:
    used: dict[tuple[Pipe, Pipe], int] = defaultdict(int)
    for flag in flags:
        pair = (flag.source, flag.target)
        if flag.barrier:
            yield flag
            continue
        yield evolve(flag, event=used[pair])
        used[pair] += flag.versions
        if used[pair] > machine.flag_ids:
            raise IllegalSchedule(
                f"pipe-flags: {used[pair]} flag ids from {flag.source} to {flag.target} > "
                f"{machine.flag_ids}; use fewer versions of '{flag.ring or flag.after}'"
            )
