"""Deadlock freedom for every trip count, as inequalities over depths, stages and lags.

Lemma. If every cycle of every scope's graph (`graph`) has a positive total distance, no choice of
trip counts deadlocks: a blocked role would need an infinite backward chain of events of finite
loops. If a cycle has a distance w <= 0, then -w turns around its role's own program (distance 1
each) close it to distance 0, and every extent that holds the iterations so touched deadlocks.
Short loops may complete all the same, so a refusal of the checker is confirmed by running the
events (`hang`).

The solver takes one inequality per simple cycle. Under the numbers of a schedule one shortest-path
computation finds a cycle that is not positive, if there is any.

Invariant: both read the same edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise

import networkx as nx

from explorer.constraints.graph import Edge, Graph, graphs
from explorer.constraints.hang import smallest_hang
from explorer.constraints.offsets import pipeline_lag
from explorer.constraints.rule import Finding, Requirement, Rule, require
from explorer.expr import all_of, collect, equal, evaluate, total
from explorer.machine import Machine
from explorer.schedule.plan import Plan

MAX_CYCLES = 20_000


def deadlock(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Every cycle of the dependence graph of every scope has a positive distance."""
    for scope, graph in graphs(plan):
        edges = {(edge.event, edge.on): edge for edge in graph.edges}
        seen: set[object] = set()
        for number, cycle in enumerate(nx.simple_cycles(nx.DiGraph(list(edges)))):
            if number >= MAX_CYCLES:
                yield require(False, f"scope {scope.id} has more than {MAX_CYCLES} event cycles")
                return
            around = [edges[pair] for pair in pairwise([*cycle, cycle[0]])]
            found = _positive(scope.id, around)
            if found.holds not in seen:
                seen.add(found.holds)
                yield found


def _positive(scope: str, cycle: list[Edge]) -> Requirement:
    distance = collect(total(edge.distance for edge in cycle))
    return require(
        distance >= 1,
        f"in {scope}: {' <- '.join(str(edge.event) for edge in cycle)} waits for itself at "
        "distance {distance}",
        distance=distance,
    )


def hanging(plan: Plan, env: Mapping[str, int], machine: Machine) -> Iterator[Finding]:
    """Under numbers: a cycle of each scope that is not positive, with a run that hangs."""
    for scope, graph in graphs(plan):
        cycle = closed_cycle(graph, env)
        if not cycle:
            continue
        sums = [0, *accumulate(evaluate(edge.distance, env) for edge in cycle)]
        rounds = max(sums) - min(sums) + 1
        turns = 1 + max(event.turn for event in graph.events)
        repeated = machine.registers is None or evaluate(plan.blocks, env) > 0
        found = smallest_hang(plan, env, scope.id, rounds * turns, repeated)
        if found is not None:
            yield Finding(_positive(scope.id, cycle), f"; {found}")
            return


def closed_cycle(graph: Graph, env: Mapping[str, int]) -> list[Edge]:
    """A cycle whose distance is not positive, each edge on the next one's event; [] if none is.

    With N events, weights (N + 1) x distance - 1 are negative around exactly those cycles.
    """
    number = len(graph.events) + 1
    weights = [(edge, evaluate(edge.distance, env) * number - 1) for edge in graph.edges]
    distance = dict.fromkeys(graph.events, 0)
    reached: dict[object, Edge] = {}
    last: Edge | None = None
    for _ in range(number):
        last = None
        for edge, weight in weights:
            if distance[edge.event] + weight < distance[edge.on]:
                distance[edge.on] = distance[edge.event] + weight
                reached[edge.on] = last = edge
        if last is None:
            return []
    assert last is not None
    for _ in range(number):
        last = reached[last.event]
    cycle = [last]
    while cycle[-1].event != last.on:
        cycle.append(reached[cycle[-1].event])
    return cycle[::-1]


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
        decide=hanging,
    ),
)
