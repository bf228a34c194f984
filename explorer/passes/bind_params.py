"""Pass: the schedule is bound to this kernel and machine, and the kernel's Params are fixed."""

from __future__ import annotations

from attrs import evolve

from explorer.passes.plan import Plan
from explorer.schedule.bound import verify_binding


def bind_params(plan: Plan) -> Plan:
    """ScheduleError if the schedule belongs to another kernel, machine or set of Params."""
    verify_binding(plan.schedule.binding, plan.kernel, plan.machine.name)
    return evolve(plan, kernel=plan.kernel.at(**plan.schedule.params))
