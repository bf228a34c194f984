"""Whether starts and versions are a schedule, constraint by constraint as the model states them.

Written apart from the search and from the solver's model, so that neither vouches for itself.
"""

from __future__ import annotations

from explorer.schedule.loop import LoopProblem


def broken_constraint(
    problem: LoopProblem, interval: int, starts: tuple[int, ...], versions: tuple[int, ...]
) -> str | None:
    """The first constraint that a schedule breaks, in one line; None where it breaks none."""
    checks = (_stage_problem, _dependence_problem, _resource_problem, _memory_problem)
    if interval < 1 or min(starts) < 0:
        return f"interval {interval} and first start {min(starts)}: at least 1 and 0"
    found = (check(problem, interval, starts, versions) for check in checks)
    return next((each for each in found if each), None)


def _stage_problem(
    problem: LoopProblem, interval: int, starts: tuple[int, ...], _: tuple[int, ...]
) -> str | None:
    lowest = min(start // interval for start in starts)
    for task, start in zip(problem.tasks, starts, strict=True):
        if task.stage is not None and start // interval - lowest != task.stage - min(
            each.stage or 0 for each in problem.tasks
        ):
            return f"task '{task.name}' starts in stage {start // interval}, not {task.stage}"
    for first, second in problem.pipe_order:
        if starts[first] % interval > starts[second] % interval:
            return f"pipe order of tasks {first} and {second}"
    for first, second in problem.stage_order:
        if starts[first] // interval > starts[second] // interval:
            return f"stage order of tasks {first} and {second}"
    return None


def _dependence_problem(
    problem: LoopProblem, interval: int, starts: tuple[int, ...], versions: tuple[int, ...]
) -> str | None:
    for edge in problem.dependences:
        distance = edge.distance if edge.ring is None else versions[edge.ring]
        if starts[edge.after] - starts[edge.before] < edge.latency - interval * distance:
            return (
                f"task {edge.after} starts less than {edge.latency} cycles after task "
                f"{edge.before}, {distance} iterations apart"
            )
    return None


def _resource_problem(
    problem: LoopProblem, interval: int, starts: tuple[int, ...], _: tuple[int, ...]
) -> str | None:
    for a, first in enumerate(problem.tasks):
        for b in range(a + 1, len(problem.tasks)):
            second = problem.tasks[b]
            gaps = (first.interval, second.interval)
            if first.resources & second.resources and _meet(starts[a], starts[b], gaps, interval):
                return f"tasks {a} and {b} meet on {sorted(first.resources & second.resources)}"
            same_pipe = set(first.pipes) & set(second.pipes)
            if not problem.offset and same_pipe and abs(starts[a] - starts[b]) >= interval:
                return f"tasks {a} and {b} of one pipe are a whole interval apart"
    for each in problem.exclusions:
        pair = (starts[each.first], starts[each.second])
        if _meet(*pair, (each.forward, each.backward), interval):
            return f"owners {each.first} and {each.second} overlap"
    return None


def _meet(one: int, two: int, gaps: tuple[int, int], interval: int) -> bool:
    apart = two % interval - one % interval
    orders = ((apart, *gaps), (-apart, *reversed(gaps)))
    return not any(d >= own and interval - d >= other for d, own, other in orders)


def _memory_problem(
    problem: LoopProblem, _: int, __: tuple[int, ...], versions: tuple[int, ...]
) -> str | None:
    if any(not 1 <= count <= problem.num_stages for count in versions):
        return f"versions {versions}: each is from 1 to {problem.num_stages}"
    for group in problem.groups:
        taken = sum(versions[ring] * problem.rings[ring].version_bytes for ring in group.rings)
        if taken > group.capacity_bytes and group.rings:
            return f"{group.name}: {taken} B > {group.capacity_bytes} B"
    return None
