"""Pass: the rewrites of the kernel that the schedule asks for."""

from __future__ import annotations

from attrs import evolve

from explorer.passes.plan import Plan
from explorer.schedule.plan import scheduled_kernel


def rewrite_kernel(plan: Plan) -> Plan:
    """The kernel with staged stores through their buffers and swapped gemms transposed."""
    return evolve(plan, kernel=scheduled_kernel(plan.kernel, plan.schedule.extensions))
