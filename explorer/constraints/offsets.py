"""By how many iterations an entry of a role's body is shifted.

Invariant: the one place that says so; the periodic graph and the event run both use it.
"""

from __future__ import annotations

from explorer.expr import Expr, const, maximum
from explorer.ir.access import statement_access
from explorer.ir.nodes import Gemm, walk
from explorer.schedule.plan import Plan, PlanEntry, PlanSync
from explorer.schedule.ws import WSSyncKind


def entry_offset(plan: Plan, entry: PlanEntry) -> Expr:
    """Iterations by which an entry follows its body's stage 0: its stage, and a release's lag."""
    if isinstance(entry, PlanSync) and entry.kind == WSSyncKind.CONSUMER_RELEASE:
        return entry.stage + pipeline_lag(plan, entry.pipeline)
    return entry.stage


def pipeline_lag(plan: Plan, pipeline: str) -> Expr:
    """Iterations by which the release of a pipeline follows its gemms' issue."""
    if not plan.lags:
        return const(0)
    buffers = set(plan.pipeline(pipeline).buffers)
    lags: list[Expr] = [const(0)]
    for statement, _ in walk(plan.kernel.body):
        if isinstance(statement, Gemm):
            read = {region.buffer.name for region in statement_access(statement).reads}
            if read & buffers:
                lags.append(plan.lag(statement.id))
    return maximum(*lags)
