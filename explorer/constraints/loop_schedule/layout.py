"""A loop problem prepared for search: what is decided together, and what is delayed later.

Tasks that bound each other both ways form a component. A dependence between two components can
always be met by delaying the later one by whole intervals, which changes no phase; so the search
leaves those dependences out, keeps the first task of every component within one interval, and
`delayed` puts the components in their places afterwards.

Invariant: a problem has a schedule at an interval exactly if its layout has one.
"""

from __future__ import annotations

import numpy as np
from attrs import field, frozen

from explorer.constraints.loop_schedule.network import Matrix
from explorer.schedule.loop import LoopDependence, LoopProblem, LoopTask


@frozen(eq=False)
class Pairs:
    """Pairs of tasks that exclude each other around the interval.

    The difference d of their starts lies in [after + q * interval, (q + 1) * interval - before]
    for some q.
    """

    first: Matrix
    second: Matrix
    after: Matrix
    before: Matrix


@frozen(eq=False)
class Edges:
    """Dependences as columns: start_after - start_before >= latency - interval * distance."""

    before: Matrix
    after: Matrix
    latency: Matrix
    distance: Matrix


@frozen(eq=False)
class Layout:
    """The parts of a problem that the search uses.

    `components` numbers the component of every task; with `anchored` stages or an end that is
    given there is only one, tied to the origin. `inner` edges have a fixed distance, `rings` those
    whose distance is a ring's versions; `cross` edges join two components.
    """

    problem: LoopProblem
    pairs: Pairs
    anchored: bool
    components: tuple[int, ...]
    inner: Edges
    rings: tuple[Edges, ...]
    cross: Edges
    same_pipe: tuple[tuple[int, int], ...]
    stage_order: tuple[tuple[int, int], ...]
    sizes: Matrix = field(repr=False)

    def delayed(self, starts: Matrix, interval: int) -> Matrix:
        """The starts with every component late enough for the edges between components."""
        if self.anchored:
            return starts
        component = np.array(self.components)
        shift = np.zeros(max(self.components) + 1, dtype=np.int64)
        edges = self.cross
        gap = starts[edges.after] - starts[edges.before]
        turns = -((gap - edges.latency + interval * edges.distance) // interval)
        for _ in range(len(shift)):
            late = shift[component[edges.before]] + turns
            np.maximum.at(shift, component[edges.after], late)
            for first, second in self.problem.stage_order:
                if component[first] != component[second]:
                    ahead = starts[first] // interval - starts[second] // interval
                    needed = shift[component[first]] + ahead
                    shift[component[second]] = max(shift[component[second]], needed)
        placed: Matrix = starts + shift[component] * interval
        return placed - min(int(placed.min()) // interval, 0) * interval


def layout_of(problem: LoopProblem, anchored: bool = False) -> Layout:
    """Prepare a problem; `anchored` keeps every task tied to the origin."""
    anchored = anchored or any(task.stage is not None for task in problem.tasks)
    same_pipe = () if problem.offset else _same_pipe(problem.tasks)
    components = (0,) * len(problem.tasks) if anchored else _components(problem, same_pipe)
    inner, cross = [], []
    rings: list[list[LoopDependence]] = [[] for _ in problem.rings]
    for edge in problem.dependences:
        if components[edge.before] != components[edge.after]:
            cross.append(edge)
        elif edge.ring is None:
            inner.append(edge)
        else:
            rings[edge.ring].append(edge)
    order = problem.stage_order
    return Layout(
        problem,
        _exclusive_pairs(problem),
        anchored,
        components,
        _edges(inner),
        tuple(_edges(edges) for edges in rings),
        _edges(cross),
        same_pipe,
        tuple(pair for pair in order if components[pair[0]] == components[pair[1]]),
        np.array([ring.version_bytes for ring in problem.rings], dtype=np.int64),
    )


def _edges(edges: list[LoopDependence]) -> Edges:
    """A ring's distance counts as its least, one version."""
    rows = [(d.before, d.after, d.latency, 1 if d.ring is not None else d.distance) for d in edges]
    return Edges(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


def _same_pipe(tasks: tuple[LoopTask, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (a, b)
        for a, first in enumerate(tasks)
        for b, second in enumerate(tasks)
        if a != b and set(first.pipes) & set(second.pipes)
    )


def _components(problem: LoopProblem, same_pipe: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Numbers of the strongly connected components of all bounds between tasks."""
    reach = np.eye(len(problem.tasks), dtype=bool)
    for edge in problem.dependences:
        reach[edge.before, edge.after] = True
    for first, second in (*same_pipe, *problem.stage_order):
        reach[first, second] = True
    for via in range(len(reach)):
        reach |= reach[:, via, None] & reach[via]
    mutual = reach & reach.T
    leaders = [int(row.argmax()) for row in mutual]
    numbers = {leader: number for number, leader in enumerate(sorted(set(leaders)))}
    return tuple(numbers[leader] for leader in leaders)


def _exclusive_pairs(problem: LoopProblem) -> Pairs:
    rows: list[tuple[int, int, int, int]] = []
    for a, first in enumerate(problem.tasks):
        for b in range(a + 1, len(problem.tasks)):
            second = problem.tasks[b]
            if first.resources & second.resources:
                rows.append((a, b, first.interval, second.interval))
    rows += [(x.first, x.second, x.forward, x.backward) for x in problem.exclusions]
    rows = [row for row in rows if row[2] + row[3] > 0]
    return Pairs(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)
