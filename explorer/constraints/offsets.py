"""By how many iterations the entries of a role's body are shifted.

Invariant: the one place that says so; the periodic graph, the event run and the dataflow rules all
use it. An op takes the stage of the open spans whose buffers it touches, else the stage that the
schedule gives it, else the smallest of its body (RULEBOOK W8).
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.expr import Expr, const, maximum, minimum
from explorer.ir.access import statement_access
from explorer.ir.nodes import Gemm, Stmt, walk
from explorer.schedule.plan import Plan, PlanEntry, PlanOp, PlanScope, PlanSync
from explorer.schedule.ws import WSSyncKind


def entry_offset(plan: Plan, entry: PlanEntry) -> Expr:
    """Iterations by which a synchronization is shifted: its stage, and a release's lag."""
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


def touched(statement: Stmt) -> frozenset[str]:
    """Names of all buffers that a statement reads or writes."""
    found = statement_access(statement)
    return frozenset(region.buffer.name for region in (*found.reads, *found.writes))


@frozen
class PlacedOp:
    """An op or group in a role's body: its place, the spans around it, and its stage.

    `spans` are the open synchronizations of the pipelines whose buffers it touches.
    """

    place: int
    statement: Stmt
    spans: tuple[PlanSync, ...]
    stage: Expr


def placed_ops(
    plan: Plan, scope: PlanScope, role: str, statements: dict[str, Stmt]
) -> Iterator[PlacedOp]:
    """The ops of a role in a scope, in body order; child scopes are left out."""
    body = scope.body(role)
    bound = {pipeline.name: set(pipeline.buffers) for pipeline in plan.pipelines}
    stages = [entry.stage for entry in body if isinstance(entry, PlanSync)]
    stages += [entry.stage for entry in body if isinstance(entry, PlanOp)]
    smallest = minimum(*stages) if stages else const(0)
    opened: dict[str, PlanSync] = {}
    for place, entry in enumerate(body):
        if isinstance(entry, PlanSync):
            if entry.kind.opens:
                opened[entry.pipeline] = entry
            else:
                opened.pop(entry.pipeline, None)
            continue
        statement = statements.get(entry.id)
        if statement is None or plan.scope(entry.id) is not None:
            continue
        names = touched(statement)
        spans = tuple(s for name, s in opened.items() if names & bound.get(name, set()))
        given = entry.stage if entry.stage != const(0) else smallest
        stage = spans[0].stage if spans else given
        yield PlacedOp(place, statement, spans, stage)
