"""Pass: stores that the schedule stages go through a shared buffer of the kernel."""

from __future__ import annotations

from attrs import evolve

from explorer.ir.transforms import stage_store
from explorer.passes.plan import Plan


def route_stores(plan: Plan) -> Plan:
    """The kernel with every staged store in two halves, `<op>_stage` and `<op>`."""
    kernel = plan.kernel
    for staged in plan.schedule.extensions.staged:
        kernel = stage_store(kernel, staged.op, staged.staging)
    return evolve(plan, kernel=kernel)
