"""The concrete checker: a schedule, every rule, and a reason for each 'no'.

Invariant: it evaluates the same requirements that the solver holds, under the schedule's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve, frozen

from explorer.constraints.rule import Requirement, Rule
from explorer.constraints.rules import TIERS
from explorer.errors import InputError, ScheduleError
from explorer.expr import holds, substitute_cond, symbols
from explorer.ir.nodes import Kernel, replace_symbols
from explorer.machine import Machine, machine_named
from explorer.schedule.bound import Schedule, verify_binding
from explorer.schedule.extensions import Extensions
from explorer.schedule.plan import Plan, open_plan
from explorer.schedule.ws import WSSchedule

# Values that the smallest change of a number is looked for among, by the prefix of its name.
_REPAIRS: Mapping[str, range] = {
    "depth": range(1, 257),
    "stage": range(9),
    "lag": range(9),
    "warps": range(1, 33),
    "nreg": range(0, 257, 8),
    "blocks": range(529),
    "split": range(1, 33),
    "stream": range(2),
}


@frozen
class Violation:
    """A broken rule: its id and kind, the message with numbers, and what would mend it."""

    rule: str
    kind: str
    message: str
    values: tuple[tuple[str, int], ...]
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}; {self.remedy}"


@frozen
class Report:
    """What the checker found; `ok` where no rule is broken."""

    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether the schedule is legal."""
        return not self.violations


def check(
    kernel: Kernel,
    schedule: Schedule | WSSchedule | None = None,
    machine: Machine | str = "h200",
) -> Report:
    """Which rules a schedule breaks.

    A Schedule is bound: ScheduleError if to something else, and it fixes the kernel's Params. A
    WSSchedule, or None for the one that the kernel's author attached, is for a kernel without open
    Params.
    """
    target = machine_named(machine) if isinstance(machine, str) else machine
    if target.family == "pipe":
        raise InputError(
            f"machine {target.name} has pipes and no roles: explorer.check_pipes(...) checks its "
            "schedules"
        )
    if isinstance(schedule, Schedule):
        verify_binding(schedule.binding, kernel, target.name)
        concrete = kernel.at(**schedule.params)
        return check_parts(concrete, schedule.ws, schedule.extensions, target)
    attached = schedule or getattr(kernel, "schedule", None)
    if attached is None:
        raise ScheduleError(f"kernel {kernel.name} carries no schedule; pass one")
    if kernel.params:
        raise ScheduleError(
            f"kernel {kernel.name} has open Params {', '.join(kernel.params)}: fix them with "
            "kernel.at(...), or pass a bound Schedule"
        )
    return check_parts(kernel, attached, Extensions(), target)


def check_parts(
    kernel: Kernel, ws: WSSchedule, extensions: Extensions, machine: Machine
) -> Report:
    """Check a schedule of a concrete kernel."""
    plan, values = open_plan(kernel, ws, extensions)
    return check_plan(plan, values, machine)


def check_plan(plan: Plan, env: Mapping[str, int], machine: Machine) -> Report:
    """Check a plan under values for all its Params."""
    sizes = {name: env[name] for name in plan.kernel.params}
    if sizes:
        plan = evolve(plan, kernel=replace_symbols(plan.kernel, sizes))
    found: dict[Violation, None] = {}
    for tier in TIERS:
        for rule in tier:
            found.update(dict.fromkeys(_broken(rule, plan, env, machine)))
        if found:
            break
    return Report(tuple(found))


def _broken(
    rule: Rule, plan: Plan, env: Mapping[str, int], machine: Machine
) -> Iterator[Violation]:
    if rule.decide is not None:
        for finding in rule.decide(plan, env, machine):
            yield _violation(rule, finding.requirement, env, finding.note)
        return
    for requirement in rule.requirements(plan, machine):
        if not holds(requirement.holds, env):
            yield _violation(rule, requirement, env)


def _violation(
    rule: Rule, requirement: Requirement, env: Mapping[str, int], note: str = ""
) -> Violation:
    return Violation(
        rule.id,
        rule.kind,
        requirement.text(env) + note,
        tuple(requirement.numbers(env).items()),
        smallest_change(requirement, env) or rule.remedy,
    )


def smallest_change(requirement: Requirement, env: Mapping[str, int]) -> str:
    """The change of one number, nearest to its value, that makes the requirement hold; or ''."""
    best: tuple[float, str] | None = None
    for symbol in sorted(symbols(requirement.holds), key=str):
        name = symbol.name
        repairs = _REPAIRS.get(name.split("_")[0])
        if repairs is None or name not in env:
            continue
        others = {key: value for key, value in env.items() if key != name}
        cond = substitute_cond(requirement.holds, others)
        for value in sorted(repairs, key=lambda v: abs(v - env[name])):
            if holds(cond, {name: value}):
                cost = abs(value - env[name]) / (abs(env[name]) + 1)
                if best is None or cost < best[0]:
                    best = cost, f"{name.replace('_', ' of ', 1)} {value} fits"
                break
    return best[1] if best else ""
