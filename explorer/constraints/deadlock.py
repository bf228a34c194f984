"""Deadlock freedom for every trip count, as inequalities over depths, stages and lags.

In one scope every role repeats its events: its synchronization entries, and the child loops in
which it synchronizes. Node (e, i) is event e at iteration i. It depends on: the event before it in
the same step of its role; for a wait, the commits of the same cycle; for an acquire, the releases
of the cycle `depth` earlier; for a child loop, whatever stands before that loop in the other roles
that synchronize in it, since a long enough loop needs them all to have entered. Every dependence
has a fixed distance in iterations, so the events of a loop of any extent are a part of one
periodic graph.

Lemma. If every cycle of every scope's graph has a positive total distance, no choice of trip
counts deadlocks: a blocked role would need an infinite backward chain of events of finite loops.
If a cycle has a distance w <= 0, then -w turns around its role's own program (distance 1 each)
close it to distance 0, and every extent that holds the iterations so touched deadlocks. Short
loops may complete all the same, so a refusal of the checker is confirmed by running the events
(`hang`).

Invariant: the distances are Exprs over the plan's numbers; the rule yields one inequality per
simple cycle, the same for the checker and the solver.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import networkx as nx
from attrs import frozen

from explorer.constraints.hang import smallest_hang
from explorer.constraints.offsets import entry_offset, pipeline_lag
from explorer.constraints.rule import Requirement, Rule, require
from explorer.expr import Expr, all_of, ceildiv, collect, const, equal, total
from explorer.machine import Machine
from explorer.schedule.plan import Plan, PlanScope, PlanSync
from explorer.schedule.ws import WSSyncKind

MAX_CYCLES = 20_000


@frozen
class Event:
    """A synchronization entry of a role, or (kind None) a child loop with such entries.

    `name` is the pipeline or the loop; `offset` its shift in iterations; `rank` numbers the events
    of one kind and name within a body.
    """

    role: str
    place: int
    kind: WSSyncKind | None
    name: str
    offset: Expr
    rank: int

    def __str__(self) -> str:
        return f"{self.role} {self.kind.value if self.kind else 'loop'}({self.name})"


def events(plan: Plan, scope: PlanScope) -> tuple[Event, ...]:
    """The events of a scope, by role in body order."""
    found = []
    for role, body in scope.bodies:
        ranks: dict[tuple[WSSyncKind | None, str], int] = {}
        for place, entry in enumerate(body):
            kind = entry.kind if isinstance(entry, PlanSync) else None
            name = entry.pipeline if isinstance(entry, PlanSync) else entry.id
            if kind is None and not synchronizes(plan, role, name):
                continue
            rank = ranks.get((kind, name), 0)
            ranks[kind, name] = rank + 1
            found.append(Event(role, place, kind, name, entry_offset(plan, entry), rank))
    return tuple(found)


def synchronizes(plan: Plan, role: str, scope_id: str, above: tuple[str, ...] = ()) -> bool:
    """Whether a role has synchronization entries in a loop or in the loops inside it."""
    scope = plan.scope(scope_id)
    if scope is None or scope_id in above:
        return False
    return any(
        isinstance(entry, PlanSync) or synchronizes(plan, role, entry.id, (*above, scope_id))
        for entry in scope.body(role)
    )


def dependences(plan: Plan, scope: PlanScope) -> dict[tuple[Event, Event], Expr]:
    """Distances (in iterations) of all dependences of a scope: (event, what it depends on)."""
    known = {pipeline.name for pipeline in plan.pipelines}
    found = [e for e in events(plan, scope) if e.kind is None or e.name in known]
    edges: dict[tuple[Event, Event], Expr] = {}
    before: dict[Event, tuple[Event, Expr]] = {}
    for role in dict.fromkeys(event.role for event in found):
        own = [event for event in found if event.role == role]
        for index, event in enumerate(own):
            last = own[index - 1]
            turn = 1 if index == 0 else 0
            before[event] = last, last.offset - event.offset + turn
            if last is not event:
                edges[event, last] = before[event][1]
    for event in found:
        if event.kind is None:
            edges.update(_entry_edges(event, found, before))
        elif event.kind.opens:
            edges.update(_answer_edges(plan, event, found))
    return edges


def _answer_edges(plan: Plan, event: Event, found: list[Event]) -> dict[tuple[Event, Event], Expr]:
    """A wait on the commits of its cycle; an acquire on the releases `depth` cycles earlier."""
    producer = event.kind is WSSyncKind.PRODUCER_ACQUIRE
    answer = WSSyncKind.CONSUMER_RELEASE if producer else WSSyncKind.PRODUCER_COMMIT
    ahead = plan.pipeline(event.name).depth if producer else const(0)
    edges = {}
    for other in found:
        if other.name == event.name and other.kind == answer:
            per_iteration = 1 + max(e.rank for e in found if _same_side(e, other))
            edges[event, other] = ceildiv(ahead + (other.rank - event.rank), per_iteration)
    return edges


def _entry_edges(
    event: Event, found: list[Event], before: dict[Event, tuple[Event, Expr]]
) -> dict[tuple[Event, Event], Expr]:
    """A child loop depends on what stands before it in the other roles that enter it."""
    edges = {}
    for other in found:
        if other.kind is None and other.name == event.name and other.role != event.role:
            last, distance = before[other]
            if last is not other:
                edges[event, last] = distance
    return edges


def _same_side(one: Event, other: Event) -> bool:
    return (one.role, one.kind, one.name) == (other.role, other.kind, other.name)


def deadlock(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Every cycle of the dependence graph of every scope has a positive distance."""
    for scope in plan.scopes:
        edges = dependences(plan, scope)
        graph = nx.DiGraph(list(edges))
        seen: set[Expr] = set()
        for number, cycle in enumerate(nx.simple_cycles(graph)):
            if number >= MAX_CYCLES:
                yield require(False, f"scope {scope.id} has more than {MAX_CYCLES} event cycles")
                return
            distance = collect(total(edges[pair] for pair in pairwise([*cycle, cycle[0]])))
            if distance in seen:
                continue
            seen.add(distance)
            around = " <- ".join(map(str, cycle))
            yield require(
                distance >= 1,
                f"in {scope.id}: {around} waits for itself at distance {{distance}}",
                distance=distance,
            )


def ring_distance(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """W12: a consumer that releases q iterations late holds q + 1 slots."""
    for pipeline in plan.pipelines:
        lag = pipeline_lag(plan, pipeline.name)
        yield require(
            lag < pipeline.depth,
            f"pipeline {pipeline.name}: its slots are released {{lag}} iterations late, "
            "depth {depth} holds no more",
            lag=lag,
            depth=pipeline.depth,
        )
    for op, lag in plan.lags:
        yield require(lag >= 0, f"{op}: negative lag {{lag}}", lag=lag)
        if not machine.async_matrix:
            yield require(
                equal(lag, 0),
                f"{op}: lag {{lag}}, but {machine.name} completes gemms in place",
                lag=lag,
            )


def lag_pipelined(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A lag needs a ring to delay the release of."""
    yield require(
        all_of(*(equal(lag, 0) for _, lag in plan.lags)) if not plan.pipelines else True,
        "a lag without a pipeline",
    )


RULES = (
    Rule(
        "ring-distance",
        "safety",
        "a release delayed by q iterations needs a ring of more than q slots",
        "W12",
        "a deeper ring or a smaller lag",
        ring_distance,
    ),
    Rule(
        "lag-pipelined",
        "form",
        "a lag delays the release of a pipeline's slot",
        "W12",
        "bind the operands to a pipeline",
        lag_pipelined,
    ),
    Rule(
        "deadlock",
        "safety",
        "no event waits for itself, for any trip count",
        "W7, and the lemma of this module",
        "a deeper ring or a smaller stage offset",
        deadlock,
        confirm=smallest_hang,
    ),
)
