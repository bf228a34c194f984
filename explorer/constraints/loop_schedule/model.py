"""The same question put to the solver: for intervals that the search leaves open.

Everything is a difference of two starts against a constant, the solver's integer difference logic:
the windows that propagation left, the gaps between them as clauses, and for every ring a literal
per version.

Invariant: `unknown` becomes OPEN, never NONE. Starts of a FOUND are read from the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import z3

from explorer.constraints.loop_schedule.network import known
from explorer.constraints.loop_schedule.search import IntervalSearch, Node, Verdict, Verdicted


def solve_interval(search: IntervalSearch, resources: int) -> Verdicted:
    """A schedule at the search's interval, within a deterministic effort of the solver."""
    node = search.root()
    if node is None:
        return Verdicted(Verdict.NONE)
    solver = z3.SolverFor("QF_IDL", ctx=z3.Context())
    solver.set("random_seed", 0)
    solver.set("rlimit", resources)
    _Model(search, node, solver).state()
    answer = solver.check()
    if answer == z3.sat:
        model = solver.model()
        names = (z3.Int(f"s{index}", solver.ctx) for index in range(len(search.layout.components)))
        values = [model.eval(name, model_completion=True).as_long() for name in names]
        placed = search.layout.delayed(np.array(values, dtype=np.int64), search.interval)
        return Verdicted(Verdict.FOUND, tuple(int(start) for start in placed))
    return Verdicted(Verdict.NONE if answer == z3.unsat else Verdict.OPEN)


class _Model:
    def __init__(self, search: IntervalSearch, node: Node, solver: Any) -> None:
        self.layout, self.interval, self.node = search.layout, search.interval, node
        self.matrix = node.network.matrix
        self.solver = solver
        self.starts = [z3.Int(f"s{i}", solver.ctx) for i in range(len(self.layout.components))]

    def state(self) -> None:
        """Assert everything."""
        self._windows()
        self._gaps()
        for ring in range(len(self.layout.rings)):
            self._ring(ring, int(self.node.most[ring]), None)
        for group in self.layout.problem.groups:
            self._group(group.rings, group.capacity_bytes)
        self._orders()

    def _windows(self) -> None:
        """Bounds on starts, on pairs that are bound by an edge, and on tasks of one pipe."""
        origin = len(self.starts)
        for index, start in enumerate(self.starts):
            low, high = self.matrix[origin, index], -self.matrix[index, origin]
            if known(low):
                self.solver.add(start >= int(low))
            if known(-high):
                self.solver.add(start <= int(high))
        edges = self.layout.inner
        gaps = edges.latency - self.interval * edges.distance
        for before, after, gap in zip(*map(list, (edges.before, edges.after, gaps)), strict=True):
            self.solver.add(self.starts[after] - self.starts[before] >= int(gap))
        for first, second in self.layout.same_pipe:
            self.solver.add(self.starts[second] - self.starts[first] >= 1 - self.interval)

    def _gaps(self) -> None:
        """Between two windows of a pair a start difference must not lie."""
        pairs, interval = self.layout.pairs, self.interval
        low = self.matrix[pairs.first, pairs.second]
        high = -self.matrix[pairs.second, pairs.first]
        columns = (pairs.first, pairs.second, pairs.after, pairs.before, low, high)
        for first, second, after, before, least, most in zip(*map(list, columns), strict=True):
            apart = self.starts[second] - self.starts[first]
            self.solver.add(apart >= int(least), apart <= int(most))
            turn = (int(least) + int(before) - 1) // interval
            while turn * interval - before < most:
                down, up = turn * interval - int(before), turn * interval + int(after)
                if up > least:
                    self.solver.add(z3.Or(apart <= down, apart >= up))
                turn += 1

    def _ring(self, ring: int, versions: int, unless: Any) -> None:
        edges = self.layout.rings[ring]
        gaps = edges.latency - self.interval * versions
        for before, after, gap in zip(*map(list, (edges.before, edges.after, gaps)), strict=True):
            bound = self.starts[after] - self.starts[before] >= int(gap)
            self.solver.add(bound if unless is None else z3.Or(unless, bound))

    def _group(self, rings: tuple[int, ...], capacity_bytes: int) -> None:
        """Literals `ring has at least v versions`, weighed by the size of one version."""
        least, most, sizes = self.node.least, self.node.most, self.layout.sizes
        free = capacity_bytes - sum(int(least[ring]) * int(sizes[ring]) for ring in rings)
        terms = []
        for ring in rings:
            for versions in range(int(least[ring]) + 1, int(most[ring]) + 1):
                more = z3.Bool(f"v{ring}_{versions}", self.solver.ctx)
                self._ring(ring, versions - 1, more)
                terms.append((more, int(sizes[ring])))
        if sum(size for _, size in terms) > free:
            self.solver.add(z3.PbLe(terms, free))

    def _orders(self) -> None:
        for first, second in self.layout.stage_order:
            for edge in self._edges(first):
                self.solver.add(z3.Or(self.starts[first] < edge, self.starts[second] >= edge))
        for first, second in self.layout.problem.pipe_order:
            one, two = self.starts[first], self.starts[second]
            for early in self._edges(first):
                for late in self._edges(second):
                    outside = (
                        one < early,
                        one >= early + self.interval,
                        two < late,
                        two >= late + self.interval,
                    )
                    self.solver.add(z3.Or(*outside, two - one >= late - early))

    def _edges(self, task: int) -> range:
        """The starts of the intervals that a task's window touches."""
        origin, interval = len(self.starts), self.interval
        low, high = int(self.matrix[origin, task]), -int(self.matrix[task, origin])
        return range(low // interval * interval, high + 1, interval)
