"""Whether a stored pipe schedule is one of its kernel: every constraint, evaluated again.

Invariant: what was chosen (starts, interval, versions) is taken from the schedule and held against
the kernel's dependences and memories; what is derived (rings, flags) is derived again.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field, fields

from explorer.constraints import Report, Violation
from explorer.constraints.loop_schedule import broken_constraint
from explorer.derive.distances import LoopDependences
from explorer.errors import ScheduleError
from explorer.ir.nodes import Kernel, Loop
from explorer.ir.task_tree import PipeNode
from explorer.machine import Machine
from explorer.passes.schedule_pipes import PipeScheduler, concrete
from explorer.schedule.bound import verify_binding
from explorer.schedule.loop import LineProblem, LoopProblem, LoopSolution, SolveStatus
from explorer.schedule.pipe import LoopSchedule, PipeSchedule

_REMEDY = "schedule the kernel again"


def check_pipes(kernel: Kernel, schedule: PipeSchedule, machine: Machine) -> Report:
    """What a pipe schedule breaks; ScheduleError for one of another kernel or machine."""
    verify_binding(schedule.binding, kernel, machine.name)
    sizes = dict(schedule.binding.params)
    checker = _Checker(kernel, concrete(kernel, machine, sizes), machine, sizes, given=schedule)
    again = checker.run().schedule
    found = [*checker.found, *_other_loops(again, schedule)]
    if again.rings != schedule.rings:
        found.append(_violation("pipe-versions", "the rings are not those that its loops allow"))
    missing = [flag for flag in again.flags if flag not in schedule.flags]
    found += [
        _violation(
            "pipe-flags",
            f"no flag from {flag.source} to {flag.target} after {flag.before}, ahead of "
            f"{flag.after}",
        )
        for flag in missing
    ]
    if not missing and again.flags != schedule.flags:
        found.append(_violation("pipe-flags", "flags beside those that the dependences need"))
    return Report(tuple(found))


def _other_loops(again: PipeSchedule, schedule: PipeSchedule) -> Iterator[Violation]:
    """Loops whose stored figures do not follow from their starts and intervals."""
    if [loop.loop for loop in again.loops] != [loop.loop for loop in schedule.loops]:
        yield _violation("pipe-loops", "the loops are not those of the kernel, each once")
        return
    for derived, stored in zip(again.loops, schedule.loops, strict=True):
        names = (each.name for each in fields(LoopSchedule))
        differing = [name for name in names if getattr(derived, name) != getattr(stored, name)]
        if differing:
            told = ", ".join(differing)
            message = f"loop '{stored.loop}': {told}: not what its starts and interval give"
            yield _violation("pipe-loops", message)
        if stored.bound > stored.interval or (stored.proven and stored.bound != stored.interval):
            message = f"loop '{stored.loop}': interval {stored.interval} and bound {stored.bound}"
            yield _violation("pipe-loops", f"{message} contradict proven={stored.proven}")


def _violation(rule: str, message: str) -> Violation:
    return Violation(rule, "safety", message, (), _REMEDY)


@define(eq=False)
class _Checker(PipeScheduler):
    """Takes starts and versions from `given` in place of the loop scheduler's."""

    given: PipeSchedule = field(kw_only=True)
    found: list[Violation] = field(factory=list, kw_only=True)

    def solve(
        self, loop: Loop | None, nodes: tuple[PipeNode, ...], found: LoopDependences
    ) -> LoopSolution:
        """What the schedule says of one body."""
        where = loop.id if loop else ""
        try:
            plan = self.given.loop(where)
            places = {place.node: place for place in plan.tasks}
            starts = tuple(places[node.id].start for node in nodes)
        except KeyError as missing:
            raise ScheduleError(f"the schedule says nothing of {missing}") from None
        versions: tuple[int, ...] = ()
        if loop is not None:
            rings = [self.given.ring(ring.name) for ring in self.memory(loop, nodes)[0]]
            versions = tuple(ring.versions if ring else 1 for ring in rings)
        asked = self.problem(loop, nodes, found)
        problem = _unrolled(asked) if isinstance(asked, LineProblem) else asked
        repeats = plan.interval if loop is not None else _once(problem)
        broken = broken_constraint(problem, repeats, starts, versions)
        if broken is not None:
            self.found.append(_violation("pipe-order", f"loop '{where}': {broken}"))
        status = SolveStatus.OPTIMAL if plan.proven else SolveStatus.FEASIBLE
        interval = plan.interval if loop is not None else _makespan(problem, starts)
        return LoopSolution(status, interval, starts, versions, plan.bound)


def _unrolled(line: LineProblem) -> LoopProblem:
    """Tasks that run once, as a loop whose iterations are too far apart to meet."""
    return LoopProblem(
        line.tasks, line.dependences, line.exclusions, pipe_order=line.pipe_order, offset=True
    )


def _makespan(problem: LoopProblem, starts: tuple[int, ...]) -> int:
    ends = (at + task.latency for at, task in zip(starts, problem.tasks, strict=True))
    return max(ends) - min(starts)


def _once(problem: LoopProblem) -> int:
    times = (task.latency + task.interval for task in problem.tasks)
    return 4 * sum(times) + sum(each.forward + each.backward for each in problem.exclusions) + 1
