"""Deadlock freedom for every trip count, as inequalities over depths, stages and lags.

In one scope every role repeats its synchronization entries. Node (e, i) is entry e at iteration i.
It depends on: the entry before it in the same step of its role; for a wait, the commits of the
same cycle; for an acquire, the releases of the cycle `depth` earlier. Every dependence has a fixed
distance in iterations, so the events of a loop of any extent are a part of one periodic graph.

Lemma. If every cycle of that graph has a positive total distance, no extent deadlocks: a blocked
role would need an infinite backward chain of events of the finite loop. If a cycle has distance
w <= 0, then -w turns around its role's own program (distance 1 each) close it to distance 0, and
every extent that holds the iterations so touched deadlocks.

Invariant: the distances are Exprs over the plan's numbers; the rule yields one inequality per
simple cycle, the same for the checker and the solver.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import networkx as nx
from attrs import frozen

from explorer.constraints.rule import Requirement, Rule, require
from explorer.expr import Expr, all_of, ceildiv, const, equal, maximum, total
from explorer.ir.access import statement_access
from explorer.ir.nodes import Gemm, walk
from explorer.machine import Machine
from explorer.schedule.plan import Plan, PlanScope, PlanSync
from explorer.schedule.ws import WSSyncKind

MAX_CYCLES = 20_000


@frozen
class Event:
    """A synchronization entry of a role: its place in the body, its offset in iterations."""

    role: str
    place: int
    kind: WSSyncKind
    pipeline: str
    offset: Expr
    rank: int


def events(plan: Plan, scope: PlanScope) -> tuple[Event, ...]:
    """The events of a scope; `rank` numbers those of one kind and pipeline within a body.

    The release of slots that a lagging gemm reads is offset by the lag as well.
    """
    found = []
    for role, body in scope.bodies:
        ranks: dict[tuple[WSSyncKind, str], int] = {}
        for place, entry in enumerate(body):
            if not isinstance(entry, PlanSync):
                continue
            key = (entry.kind, entry.pipeline)
            offset = entry.stage
            if entry.kind == WSSyncKind.CONSUMER_RELEASE:
                offset = offset + pipeline_lag(plan, entry.pipeline)
            rank = ranks.get(key, 0)
            ranks[key] = rank + 1
            found.append(Event(role, place, entry.kind, entry.pipeline, offset, rank))
    return tuple(found)


def pipeline_lag(plan: Plan, pipeline: str) -> Expr:
    """Iterations by which the release of a pipeline follows its gemms' issue."""
    if not plan.lags:
        return const(0)
    buffers = set(plan.pipeline(pipeline).buffers)
    lags: list[Expr] = [const(0)]
    for statement, _ in walk(plan.kernel.body):
        if isinstance(statement, Gemm):
            read = {region.buffer.name for region in statement_access(statement).reads}
            if read & buffers:
                lags.append(plan.lag(statement.id))
    return maximum(*lags)


def dependences(plan: Plan, scope: PlanScope) -> dict[tuple[Event, Event], Expr]:
    """Distances (in iterations) of all dependences of a scope: (event, what it depends on)."""
    known = {pipeline.name for pipeline in plan.pipelines}
    found = [event for event in events(plan, scope) if event.pipeline in known]
    edges: dict[tuple[Event, Event], Expr] = {}
    for role in dict.fromkeys(event.role for event in found):
        own = [event for event in found if event.role == role]
        for before, after in pairwise(own):
            edges[after, before] = before.offset - after.offset
        if len(own) > 1:
            edges[own[0], own[-1]] = own[-1].offset - own[0].offset + 1
    for event in found:
        if not event.kind.opens:
            continue
        answer = WSSyncKind.CONSUMER_RELEASE if event.kind.producer else WSSyncKind.PRODUCER_COMMIT
        ahead = plan.pipeline(event.pipeline).depth if event.kind.producer else const(0)
        for other in found:
            if other.pipeline == event.pipeline and other.kind == answer:
                per_iteration = 1 + max(e.rank for e in found if _same_side(e, other))
                distance = ceildiv(ahead + (other.rank - event.rank), per_iteration)
                edges[event, other] = distance
    return edges


def _same_side(one: Event, other: Event) -> bool:
    return (one.role, one.kind, one.pipeline) == (other.role, other.kind, other.pipeline)


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
            distance = total([edges[pair] for pair in pairwise([*cycle, cycle[0]])])
            if distance in seen:
                continue
            seen.add(distance)
            around = " <- ".join(f"{e.role} {e.kind.value}({e.pipeline})" for e in cycle)
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
    ),
)
