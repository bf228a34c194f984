"""The least interval of a loop: bounds first, search where they are met, the solver for the rest.

A schedule of an interval is one of every larger interval (`schedule.loop`), so the least one is
between the largest interval that was refuted and the smallest that was found. The search starts at
the bound, where most loops are schedulable, and doubles its steps above it.

Invariant: OPTIMAL means that the interval below was refuted, by a bound, by an exhausted search or
by the solver; every schedule that is returned passes `broken_constraint`. The answer depends on
the problem and the effort alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import define, evolve, frozen

from explorer.constraints.loop_schedule.bounds import horizon, resource_bound
from explorer.constraints.loop_schedule.layout import Layout, layout_of
from explorer.constraints.loop_schedule.model import solve_interval
from explorer.constraints.loop_schedule.search import IntervalSearch, Verdict, Verdicted
from explorer.constraints.loop_schedule.verify import broken_constraint
from explorer.schedule.loop import LoopProblem, LoopSolution, SolveStatus


@frozen
class Effort:
    """What may be spent on one interval: nodes of the search, then resources of the solver."""

    nodes: int = 100
    resources: int = 4_000_000


def schedule_loop(problem: LoopProblem, effort: Effort | None = None) -> LoopSolution:
    """The schedule of least interval, or why there is none."""
    crowded = _crowded(problem)
    if crowded is not None:
        return LoopSolution(SolveStatus.INFEASIBLE, reason=crowded)
    return _Minimum(layout_of(problem), effort or Effort()).solve()


def _crowded(problem: LoopProblem) -> str | None:
    for group in problem.groups:
        least = sum(problem.rings[ring].version_bytes for ring in group.rings)
        if group.rings and least > group.capacity_bytes:
            names = ", ".join(f"'{problem.rings[ring].name}'" for ring in group.rings)
            return (
                f"pipe-memory: one version each of {names} takes {least} B > "
                f"{group.capacity_bytes} B of {group.name}; use smaller tiles"
            )
    return None


@define(eq=False)
class Bracket:
    """The largest value refuted (+1: `low`), the smallest found (`high`), and what was left open.

    `decide` answers one value with an effort: 0 the search alone, 1 with the solver.
    """

    decide: Callable[[int, bool], Verdicted]
    low: int
    limit: int
    high: int | None = None
    starts: tuple[int, ...] = ()

    def probe(self, value: int, thorough: bool) -> Verdict:
        """Decide one value and take note of the answer."""
        answer = self.decide(value, thorough)
        if answer.verdict == Verdict.FOUND:
            self.high, self.starts = value, answer.starts
        elif answer.verdict == Verdict.NONE:
            self.low = max(self.low, value + 1)
        return answer.verdict

    def gallop(self) -> None:
        """Find some schedule, from the bound upwards in doubling steps."""
        if self.low < self.limit:
            self.probe(self.low, thorough=True)
        step, value = 1, self.low
        while self.high is None and value < self.limit:
            self.probe(value, thorough=False)
            value, step = max(self.low, value + step), 2 * step
        if self.high is None:
            self.probe(self.limit, thorough=False)

    def narrow(self) -> None:
        """Close the bracket; where a value stays open, look for schedules above it only."""
        floor = self.low
        while self.high is not None and max(floor, self.low) < self.high:
            floor = max(floor, self.low)
            middle = (floor + self.high) // 2
            if self.probe(middle, thorough=True) == Verdict.OPEN:
                floor = middle + 1


@define(eq=False)
class _Minimum:
    layout: Layout
    effort: Effort

    @property
    def problem(self) -> LoopProblem:
        """The problem as it was asked."""
        return self.layout.problem

    def solve(self) -> LoopSolution:
        bound, _ = resource_bound(self.problem)
        limit = max(horizon(self.problem), bound)
        if self._refuted(limit):
            return LoopSolution(SolveStatus.INFEASIBLE, reason=self._conflict())
        bracket = Bracket(self._decide, self._root_bound(bound, limit), limit)
        bracket.gallop()
        if bracket.high is None and bracket.low <= limit:
            bracket.probe(limit, thorough=True)
        if bracket.high is None:
            return self._no_schedule(bracket, limit)
        if bracket.low < bracket.high:
            bracket.high, bracket.starts = self._squeeze(bracket.high, bracket.starts, bracket.low)
            bracket.narrow()
        return self._solution(bracket)

    def _no_schedule(self, bracket: Bracket, limit: int) -> LoopSolution:
        if bracket.low > limit:
            return LoopSolution(SolveStatus.INFEASIBLE, reason=self._conflict())
        reason = f"no schedule found up to interval {limit}, none excluded from {bracket.low}"
        return LoopSolution(SolveStatus.UNKNOWN, bound=bracket.low, reason=reason)

    def _conflict(self) -> str:
        orders = "manual stages, " if self.problem.tasks[0].stage is not None else ""
        return (
            f"pipe-order: no interval satisfies the {orders}orders and dependences of the "
            f"{len(self.problem.tasks)} tasks; change the stages or the source order"
        )

    def _solution(self, bracket: Bracket) -> LoopSolution:
        assert bracket.high is not None
        interval = bracket.high
        base = min(bracket.starts)
        if self.layout.anchored or self.problem.pipe_order or self.problem.stage_order:
            base -= base % interval
        starts = tuple(start - base for start in bracket.starts)
        search = IntervalSearch(self.layout, interval)
        needed = search.versions_of(np.array(starts, dtype=np.int64))
        versions = tuple(int(count) for count in needed)
        broken = broken_constraint(self.problem, interval, starts, versions)
        if broken is not None:
            raise AssertionError(f"loop schedule at interval {interval}: {broken}")
        proven = bracket.low == interval
        status = SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE
        return LoopSolution(status, interval, starts, versions, bracket.low)

    # ------------------------------------------------------------ one interval

    def _decide(self, interval: int, thorough: bool) -> Verdicted:
        search = IntervalSearch(self.layout, interval)
        answer = search.run(self.effort.nodes)
        if answer.verdict == Verdict.OPEN and thorough:
            return solve_interval(search, self.effort.resources)
        return answer

    def _refuted(self, interval: int) -> bool:
        return IntervalSearch(self.layout, interval).root() is None

    def _root_bound(self, low: int, high: int) -> int:
        """The least interval at which propagation alone finds no conflict."""
        if not self._refuted(low):
            return low
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if self._refuted(middle) else (low, middle)
        return high

    def _squeeze(
        self, interval: int, starts: tuple[int, ...], bound: int
    ) -> tuple[int, tuple[int, ...]]:
        """The least interval with the stages of a schedule and its order on every resource."""
        tasks = tuple(
            evolve(task, stage=start // interval)
            for task, start in zip(self.problem.tasks, starts, strict=True)
        )
        phases = [start % interval for start in starts]
        order = tuple(
            (int(a), int(b)) if phases[a] <= phases[b] else (int(b), int(a))
            for a, b in zip(self.layout.pairs.first, self.layout.pairs.second, strict=True)
        )
        fixed = layout_of(
            evolve(
                self.problem,
                tasks=tasks,
                pipe_order=(*self.problem.pipe_order, *order),
                offset=True,
            )
        )
        best = (interval, starts)
        low, high = bound, interval
        while low < high:
            middle = (low + high) // 2
            answer = IntervalSearch(fixed, middle).run(2)
            if answer.verdict == Verdict.FOUND and self._within_pipes(answer.starts, middle):
                best, high = (middle, answer.starts), middle
            else:
                low = middle + 1
        return best

    def _within_pipes(self, starts: tuple[int, ...], interval: int) -> bool:
        if self.problem.offset:
            return True
        tasks = self.problem.tasks
        return all(
            abs(starts[a] - starts[b]) < interval
            for a in range(len(tasks))
            for b in range(a)
            if set(tasks[a].pipes) & set(tasks[b].pipes)
        )
