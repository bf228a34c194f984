"""The concrete checker: a schedule, every rule, and a reason for each 'no'.

Invariant: it evaluates the same requirements that the solver holds, under the schedule's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve, frozen

from explorer.constraints.rule import Requirement, Rule
from explorer.constraints.rules import MEANING, STRUCTURE
from explorer.errors import IllegalSchedule
from explorer.expr import holds, substitute_cond, symbols
from explorer.ir.nodes import Kernel, replace_symbols
from explorer.machine import Machine
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
    "blocks": range(257),
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

    def raise_if_broken(self) -> None:
        """IllegalSchedule with every violation, one a line."""
        if self.violations:
            raise IllegalSchedule("\n".join(map(str, self.violations)))


def check(kernel: Kernel, schedule: Schedule, machine: Machine) -> Report:
    """Check a schedule of a kernel with open Params; ScheduleError if it is bound elsewhere."""
    verify_binding(schedule.binding, kernel, machine.name)
    return check_parts(kernel.at(**schedule.params), schedule.ws, schedule.extensions, machine)


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
    for tier in (STRUCTURE, MEANING):
        for rule in tier:
            found.update(dict.fromkeys(_broken(rule, plan, env, machine)))
        if found:
            break
    return Report(tuple(found))


def _broken(
    rule: Rule, plan: Plan, env: Mapping[str, int], machine: Machine
) -> Iterator[Violation]:
    refused = [each for each in rule.requirements(plan, machine) if not holds(each.holds, env)]
    if refused and rule.confirm is not None:
        counterexample = rule.confirm(plan, env)
        if counterexample is not None:
            yield _violation(rule, refused[0], env, f"; {counterexample}")
        return
    for requirement in refused:
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
