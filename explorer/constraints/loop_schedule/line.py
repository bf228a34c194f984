"""Tasks that run once: the schedule that ends first.

The search for loops serves here too: at an interval beyond every sum of times nothing wraps
around, and the makespan takes the place of the interval as what is minimised.

Invariant: OPTIMAL means that an earlier end was refuted.
"""

from __future__ import annotations

from explorer.constraints.loop_schedule.bounds import busy_cycles, horizon
from explorer.constraints.loop_schedule.layout import layout_of
from explorer.constraints.loop_schedule.model import solve_interval
from explorer.constraints.loop_schedule.scheduler import Bracket, Effort
from explorer.constraints.loop_schedule.search import IntervalSearch, Verdict, Verdicted
from explorer.schedule.loop import LineProblem, LoopProblem, LoopSolution, SolveStatus


def schedule_line(line: LineProblem, effort: Effort | None = None) -> LoopSolution:
    """The starts of least makespan; the solution's `interval` is the makespan."""
    spent = effort or Effort()
    once = 4 * horizon(line)
    problem = LoopProblem(
        line.tasks, line.dependences, line.exclusions, pipe_order=line.pipe_order, offset=True
    )
    layout = layout_of(problem, anchored=True)

    def search(makespan: int) -> IntervalSearch:
        return IntervalSearch(layout, once, makespan)

    def decide(makespan: int, thorough: bool) -> Verdicted:
        asked = search(makespan)
        answer = asked.run(spent.nodes)
        if answer.verdict == Verdict.OPEN and thorough:
            return solve_interval(asked, spent.resources)
        return answer

    limit = horizon(line)
    if search(limit).root() is None:
        reason = "pipe-order: the dependences and orders of the tasks form a cycle"
        return LoopSolution(SolveStatus.INFEASIBLE, reason=reason)
    low, high = 0, limit
    floor = max((_ends(line), *busy_cycles(line).values()))
    low = max(low, floor)
    if search(low).root() is None:
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if search(middle).root() is None else (low, middle)
        low = high
    bracket = Bracket(decide, low, limit)
    bracket.gallop()
    bracket.narrow()
    if bracket.high is None:
        return LoopSolution(
            SolveStatus.UNKNOWN, bound=bracket.low, reason=f"nothing found up to {limit} cycles"
        )
    proven = bracket.low == bracket.high
    status = SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE
    return LoopSolution(status, bracket.high, bracket.starts, bound=bracket.low)


def _ends(line: LineProblem) -> int:
    return max(task.latency for task in line.tasks)
