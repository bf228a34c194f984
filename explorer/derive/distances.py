"""Dependences between the nodes of a loop body, with their distances.

For every pair of accesses of one buffer of which one writes: the same iteration, if they can meet
there in program order; else a later one. How much later is the number of versions where the loop
owns the buffer, the first distance that meets where the kernel indexes versions by hand, and one
iteration for everything else.

Invariant: two accesses that can touch one element, one of them a write, are joined by a dependence
or by the exclusion of two owners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from explorer.derive.eligibility import Ownership
from explorer.derive.ranges import Place, may_meet, spans_of
from explorer.expr import Var
from explorer.ir.nodes import Kernel, Loop, Region
from explorer.ir.task_tree import PipeNode, TaskNode, tasks
from explorer.schedule.pipe import NodeDependence

_TRIED = 64


@frozen
class Exclusion:
    """Two nodes under different owners of one buffer, and the ops of each that touch it."""

    buffer: str
    first: str
    second: str
    pairs: tuple[tuple[str, str], ...]


@frozen
class LoopDependences:
    """All dependences among the nodes of one loop body, and the exclusions of owners."""

    edges: tuple[NodeDependence, ...]
    exclusions: tuple[Exclusion, ...]


def loop_dependences(
    kernel: Kernel,
    loop: Loop | None,
    nodes: tuple[PipeNode, ...],
    owned: Mapping[str, Ownership],
) -> LoopDependences:
    """The dependences among `nodes`, the body of `loop` or the kernel's outermost nodes."""
    edges: dict[NodeDependence, None] = {}
    exclusions: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for before, after, forward, pair in _pairs(loop, nodes):
        producer, consumer, first, second = pair
        name = first.buffer.home
        item = owned.get(name)
        if item is not None and len(item.owners) > 1 and _owners_differ(item, producer, consumer):
            if forward:
                met = exclusions.setdefault((name, before.id, after.id), [])
                met.append((producer.id, consumer.id))
            continue
        ends = (_place(kernel, producer, first), _place(kernel, consumer, second))
        found = _distance(kernel, loop, item, ends, forward, producer)
        if found is not None:
            distance, carried = found
            edge = NodeDependence(
                loop.id if loop else "",
                name,
                producer.id,
                consumer.id,
                before.id,
                after.id,
                distance,
                carried,
            )
            edges[edge] = None
    listed = tuple(
        Exclusion(name, first, second, tuple(dict.fromkeys(met)))
        for (name, first, second), met in exclusions.items()
    )
    return LoopDependences(tuple(edges), listed)


_Pair = tuple[TaskNode, TaskNode, Region, Region]


def _pairs(
    loop: Loop | None, nodes: tuple[PipeNode, ...]
) -> Iterator[tuple[PipeNode, PipeNode, bool, _Pair]]:
    """Pairs of accesses of which one writes, in every direction that the loop allows."""
    for i, before in enumerate(nodes):
        for j, after in enumerate(nodes):
            if (loop is None and i >= j) or (i == j and not isinstance(before, TaskNode)):
                continue
            for producer in tasks((before,)):
                for consumer in tasks((after,)):
                    for first, second in _conflicting(producer, consumer):
                        yield before, after, i < j, (producer, consumer, first, second)


def _conflicting(producer: TaskNode, consumer: TaskNode) -> Iterator[tuple[Region, Region]]:
    one, two = producer.access, consumer.access
    kinds = ((one.writes, two.reads), (one.writes, two.writes), (one.reads, two.writes))
    for firsts, seconds in kinds:
        for first in firsts:
            for second in seconds:
                if first.buffer.home == second.buffer.home and not first.buffer.scope.private:
                    yield first, second


def _owners_differ(item: Ownership, producer: TaskNode, consumer: TaskNode) -> bool:
    homes = [
        next((owner.id for owner in item.owners if owner.loop in task.loops), None)
        for task in (producer, consumer)
    ]
    return None not in homes and homes[0] != homes[1]


def _place(kernel: Kernel, task: TaskNode, region: Region) -> Place:
    spans = spans_of(kernel, task.loops)
    return Place(region, task.guards, tuple(spans.items()))


def _distance(
    kernel: Kernel,
    loop: Loop | None,
    item: Ownership | None,
    ends: tuple[Place, Place],
    forward: bool,
    producer: TaskNode,
) -> tuple[int, bool] | None:
    """The distance of a dependence and whether it is the buffer's versions; None without one."""
    fixed = {name for name, _ in kernel.grid} | set(kernel.scalars)
    if loop is not None:
        fixed |= {each.var for each in producer.loops[: producer.loops.index(loop)]}
    same = frozenset(fixed | {loop.var} if loop else fixed)
    if forward and may_meet(*ends, same, {}):
        return 0, False
    if loop is None:
        return None
    outer = frozenset(fixed)
    if item is not None and item.request.manual is not None:
        for distance in range(1, item.request.manual + 1):
            if may_meet(*ends, outer, {loop.var: Var(loop.var) + distance}):
                return distance, False
        return None
    if item is not None and any(owner.loop == loop for owner in item.owners):
        return 1, True
    return (1, False) if _meet_later(ends, outer, loop) else None


def _meet_later(ends: tuple[Place, Place], outer: frozenset[str], loop: Loop) -> bool:
    """Whether an access meets one of some later iteration of the loop."""
    span = dict(ends[0].spans).get(loop.var)
    if span is None or span.high - span.low > _TRIED:
        return True
    return any(
        may_meet(*ends, outer, {loop.var: Var(loop.var) + distance})
        for distance in range(1, span.high - span.low + 1)
    )
