"""Rules of nested pipelines, and of asynchronous work on a side."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from explorer.constraints.accesses import statement_access
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.constraints.spans import visits
from explorer.expr import equal
from explorer.ir.access import is_bulk_load
from explorer.ir.nodes import Copy, Gemm, Loop, Op, Stmt, While, ops
from explorer.machine import Machine, Scope
from explorer.schedule.extensions import CopyRoute
from explorer.schedule.plan import Plan, PlanOp, PlanSync


def nested_scopes(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-B4: pipelines that share a buffer stand in strictly nested scopes."""
    scopes, above = plan.pipeline_scopes, plan.scope_paths
    for one, other in combinations(plan.pipelines, 2):
        shared = sorted(set(one.buffers) & set(other.buffers))
        first, second = scopes.get(one.name), scopes.get(other.name)
        if not shared or first is None or second is None:
            continue
        if first not in above.get(second, ()) and second not in above.get(first, ()):
            yield broken(
                f"pipelines {one.name} in {first} and {other.name} in {second} share {shared[0]} "
                "but their scopes are not nested"
            )


def one_pipeline_written(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C6: an op's writes belong to one pipeline of its scope."""
    scopes = plan.pipeline_scopes
    for scope, op in _placed(plan):
        written = {region.buffer.name for region in statement_access(op).writes}
        rings = sorted(
            p.name
            for p in plan.pipelines
            if scopes.get(p.name) == scope and written & set(p.buffers)
        )
        if len(rings) > 1:
            yield broken(f"{op.id} writes buffers of {', '.join(rings)}")


def async_side(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-B6: an asynchronous copy runs in a producer span of its own role."""
    for role, statement, opened in _async_statements(plan, machine):
        for copy in _async_copies(plan, statement):
            written = {region.buffer.name for region in statement_access(copy).writes}
            rings = {p.name for p in plan.pipelines if written & set(p.buffers)}
            if rings and not rings & opened:
                yield broken(
                    f"role {role} runs the asynchronous copy {copy.id} outside a producer span of "
                    f"{', '.join(sorted(rings))}, so no barrier counts it"
                )


def async_direct(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C8: an asynchronous copy is placed by itself, not inside a group or a compound loop."""
    rings = {name for pipeline in plan.pipelines for name in pipeline.buffers}
    if not machine.async_copy:
        return
    for _, statement in _placed(plan):
        for copy in _async_copies(plan, statement):
            alone = len(list(ops((statement,)))) == 1 and not isinstance(statement, Loop | While)
            if not alone and isinstance(copy, Copy) and copy.dst.buffer.name in rings:
                yield broken(f"{statement.id} holds the asynchronous copy {copy.id} among others")


def _async_copies(plan: Plan, statement: Stmt) -> Iterator[Op]:
    by_threads = {route.op for route in plan.routes if route.route == CopyRoute.ELEMENT}
    return (op for op in ops((statement,)) if is_bulk_load(op) and op.id not in by_threads)


def _async_statements(plan: Plan, machine: Machine) -> Iterator[tuple[str, Stmt, frozenset[str]]]:
    """Every placed op or group, with its role and the pipelines that the role has acquired."""
    if not machine.async_copy:
        return
    statements = plan.statements
    producing = {
        (role, entry.pipeline)
        for scope in plan.scopes
        for role, body in scope.bodies
        for entry in body
        if isinstance(entry, PlanSync) and entry.kind.producer
    }
    for role in plan.roles:
        for visit in visits(plan, role.name):
            if plan.scope(visit.op) is None and visit.op in statements:
                mine = frozenset(p for p in visit.opened if (role.name, p) in producing)
                yield role.name, statements[visit.op], mine


def tensor_memory(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-B7, R-B8: a tensor-memory gemm has one warp and an accumulator in a pipeline."""
    rings = {name for pipeline in plan.pipelines for name in pipeline.buffers}
    for scope in plan.scopes:
        for role, body in scope.bodies:
            named = {entry.id for entry in body if isinstance(entry, PlanOp)}
            for op in ops(plan.kernel.body):
                if op.id not in named or not isinstance(op, Gemm):
                    continue
                if op.c.buffer.scope != Scope.TMEM:
                    continue
                if op.c.buffer.name not in rings:
                    yield broken(f"{op.id} accumulates into {op.c.buffer.name}, in no pipeline")
                yield from _single_warp(plan, role, op)
                yield require(
                    plan.lag(op.id) <= 0,
                    f"{op.id} has lag {{lag}}, but tensor memory's gemms free their slots "
                    "themselves when they complete",
                    lag=plan.lag(op.id),
                )


def _single_warp(plan: Plan, role: str, op: Gemm) -> Iterator[Requirement]:
    warps = plan.role(role).warps
    yield require(
        equal(warps, 1),
        f"role {role} issues {op.id} to tensor memory with {{warps}} warps, not 1",
        warps=warps,
    )


def _placed(plan: Plan) -> Iterator[tuple[str, Stmt]]:
    statements = plan.statements
    for scope in plan.scopes:
        for _, body in scope.bodies:
            for entry in body:
                if isinstance(entry, PlanOp) and plan.scope(entry.id) is None:
                    statement = statements.get(entry.id)
                    if statement is not None:
                        yield scope.id, statement


RULES = (
    Rule(
        "nested-pipelines",
        "form",
        "pipelines that share a buffer stand in strictly nested scopes",
        "R-B4",
        "use one pipeline, or put one of them into an outer loop",
        nested_scopes,
    ),
    Rule(
        "one-pipeline-written",
        "form",
        "the writes of one op belong to one pipeline of its scope",
        "R-C6",
        "split the op, or bind both buffers to one pipeline",
        one_pipeline_written,
    ),
    Rule(
        "async-side",
        "safety",
        "an asynchronous copy is counted by a side that its own role signals",
        "R-B6",
        "place the copy between acquire and commit of its pipeline",
        async_side,
    ),
    Rule(
        "async-direct",
        "form",
        "an asynchronous copy is placed by itself",
        "R-C8",
        "place the copy as an op of its own, or copy by the role's threads",
        async_direct,
    ),
    Rule(
        "tensor-memory",
        "safety",
        "a tensor-memory gemm is issued by one warp into an accumulator of a pipeline",
        "R-B7, R-B8; PTX ISA, tcgen05.commit",
        "give the role one warp and bind the accumulator",
        tensor_memory,
    ),
)
