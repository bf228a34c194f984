"""By how many iterations the entries of a role's body are shifted.

Invariant: the one place that says so; the periodic graph, the event run and the dataflow rules all
use it. An op takes the stage of the open spans whose buffers it touches, else the stage that the
schedule gives it, else the smallest of its body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from explorer.constraints.accesses import statement_access
from explorer.expr import Expr, const, maximum, minimum
from explorer.ir.nodes import Gemm, Stmt
from explorer.schedule.plan import Plan, PlanEntry, PlanOp, PlanScope, PlanSync
from explorer.schedule.ws import WSSyncKind

ZERO = const(0)


def body_offsets(plan: Plan, scope: PlanScope, role: str) -> tuple[Expr, ...]:
    """By entry of a body, the iterations by which it is shifted: its stage, a release's lag."""
    return tuple(
        stage + pipeline_lag(plan, entry.pipeline)
        if isinstance(entry, PlanSync) and entry.kind == WSSyncKind.CONSUMER_RELEASE
        else stage
        for entry, stage in zip(scope.body(role), body_stages(plan, scope, role), strict=True)
    )


def body_stages(plan: Plan, scope: PlanScope, role: str) -> tuple[Expr, ...]:
    """By entry of a body, its stage."""
    body = scope.body(role)
    stated = _stated(body)
    if one_stage(body):
        return tuple(stated[0] for _ in body)
    statements = plan.statements
    placed = {op.place: op.stage for op in placed_ops(plan, scope, role, statements, True)}
    return tuple(
        entry.stage if isinstance(entry, PlanSync) else placed.get(place, stated[0])
        for place, entry in enumerate(body)
    )


def one_stage(body: tuple[PlanEntry, ...]) -> bool:
    """Whether a body gives one stage to all its entries."""
    first, *rest = _stated(body)
    return all(stage == first for stage in rest)


def _stated(body: tuple[PlanEntry, ...]) -> list[Expr]:
    """The stages that a body gives; an op at 0 gives none, unless nothing else does."""
    stages = [entry.stage for entry in body if isinstance(entry, PlanSync)]
    synchronized = bool(stages)
    for entry in body:
        if isinstance(entry, PlanOp) and (entry.stage != ZERO or not synchronized):
            stages.append(entry.stage)
    return stages or [ZERO]


def pipeline_lag(plan: Plan, pipeline: str) -> Expr:
    """Iterations by which the release of a pipeline follows its gemms' issue."""
    if not plan.lags:
        return const(0)
    buffers = set(plan.pipeline(pipeline).buffers)
    lags: list[Expr] = [const(0)]
    for statement in plan.statements.values():
        if isinstance(statement, Gemm):
            read = {region.buffer.name for region in statement_access(statement).reads}
            if read & buffers:
                lags.append(plan.lag(statement.id))
    return maximum(*lags)


def touched(statement: Stmt) -> frozenset[str]:
    """Names of all buffers that a statement reads or writes."""
    return statement_access(statement).names


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
    plan: Plan,
    scope: PlanScope,
    role: str,
    statements: Mapping[str, Stmt],
    with_scopes: bool = False,
) -> Iterator[PlacedOp]:
    """The ops of a role in a scope, in body order; child scopes are left out unless asked for."""
    body = scope.body(role)
    bound = {pipeline.name: set(pipeline.buffers) for pipeline in plan.pipelines}
    smallest = minimum(*_stated(body))
    opened: dict[str, PlanSync] = {}
    for place, entry in enumerate(body):
        if isinstance(entry, PlanSync):
            if entry.kind.opens:
                opened[entry.pipeline] = entry
            else:
                opened.pop(entry.pipeline, None)
            continue
        statement = statements.get(entry.id)
        if statement is None or (not with_scopes and plan.scope(entry.id) is not None):
            continue
        names = touched(statement)
        spans = tuple(s for name, s in opened.items() if names & bound.get(name, set()))
        given = entry.stage if entry.stage != ZERO else smallest
        stage = spans[0].stage if spans else given
        yield PlacedOp(place, statement, spans, stage)
