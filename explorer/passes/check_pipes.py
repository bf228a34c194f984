"""Whether a stored pipe schedule is one of its kernel: every constraint, evaluated again.

Invariant: what was chosen (starts, interval, versions) is taken from the schedule and held against
the kernel's dependences and memories; what is derived (rings, flags) is derived again.
"""

from __future__ import annotations

from attrs import define, field

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
from explorer.schedule.pipe import PipeSchedule

_REMEDY = "schedule the kernel again"


def check_pipes(kernel: Kernel, schedule: PipeSchedule, machine: Machine) -> Report:
    """What a pipe schedule breaks; ScheduleError for one of another kernel or machine."""
    verify_binding(schedule.binding, kernel, machine.name)
    sizes = dict(schedule.binding.params)
    checker = _Checker(kernel, concrete(kernel, machine, sizes), machine, sizes, given=schedule)
    again = checker.run().schedule
    found = list(checker.found)
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
        interval = plan.interval if loop is not None else _once(problem)
        broken = broken_constraint(problem, interval, starts, versions)
        if broken is not None:
            self.found.append(_violation("pipe-order", f"loop '{where}': {broken}"))
        status = SolveStatus.OPTIMAL if plan.proven else SolveStatus.FEASIBLE
        return LoopSolution(status, plan.interval, starts, versions, plan.bound)


def _unrolled(line: LineProblem) -> LoopProblem:
    """Tasks that run once, as a loop whose iterations are too far apart to meet."""
    return LoopProblem(
        line.tasks, line.dependences, line.exclusions, pipe_order=line.pipe_order, offset=True
    )


def _once(problem: LoopProblem) -> int:
    times = (task.latency + task.interval for task in problem.tasks)
    return 4 * sum(times) + sum(each.forward + each.backward for each in problem.exclusions) + 1
