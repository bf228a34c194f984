"""Bounds of the least interval that need no search.

Invariant: no schedule has an interval below `resource_bound`; if there is none at `horizon`, there
is none at all.
"""

from __future__ import annotations

from collections import defaultdict

from explorer.schedule.loop import LineProblem, LoopProblem


def resource_bound(problem: LoopProblem) -> tuple[int, str]:
    """The interval that the busiest resource or the longest exclusion asks for, and why."""
    best, why = 1, "one cycle"
    for task in problem.tasks:
        if task.interval > best:
            best, why = task.interval, f"task '{task.name}' issues every {task.interval} cycles"
    for resource, busy in busy_cycles(problem).items():
        if busy > best:
            best, why = busy, f"'{resource}' is busy for {busy} cycles"
    for exclusion in problem.exclusions:
        span = exclusion.forward + exclusion.backward
        if span > best:
            names = [problem.tasks[at].name for at in (exclusion.first, exclusion.second)]
            best, why = span, f"'{names[0]}' and '{names[1]}' hand a storage over and back"
    return best, why


def busy_cycles(problem: LoopProblem | LineProblem) -> dict[str, int]:
    """The cycles that the tasks of every resource take together."""
    busy: dict[str, int] = defaultdict(int)
    for task in problem.tasks:
        for resource in sorted(task.resources):
            busy[resource] += task.interval
    return dict(busy)


def horizon(problem: LoopProblem | LineProblem) -> int:
    """An interval at which a schedule exists if there is one at any.

    With its stages and orders fixed, a schedule's phases are the longest paths over bounds that
    join two tasks within one interval. A path leaves each task once, so phases stay below the sum
    over tasks of the largest gap after each; an interval of that sum and one more gap then meets
    all bounds that cross an interval.
    """
    gaps = [max(task.latency, task.interval, 1) for task in problem.tasks]
    for edge in problem.dependences:
        gaps[edge.before] = max(gaps[edge.before], edge.latency)
    for exclusion in problem.exclusions:
        gaps[exclusion.first] = max(gaps[exclusion.first], exclusion.forward)
        gaps[exclusion.second] = max(gaps[exclusion.second], exclusion.backward)
    return sum(gaps) + max(gaps) + 1
