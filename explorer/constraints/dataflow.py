"""Rules of the data itself: what a shift or a version would change about the values read.

The kernel's program order is the meaning. A rule here refuses a schedule under which some op would
read another iteration's value: private storage shifted without versions, rings of storage that
carries values from iteration to iteration, guarded writes into rings, guards that change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from attrs import frozen

from explorer.constraints.accesses import statement_access
from explorer.constraints.offsets import body_stages, touched
from explorer.constraints.order import statements_of
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.constraints.spans import Visit, visits
from explorer.expr import Expr, Var, const, equal, symbols
from explorer.ir.access import elements
from explorer.ir.nodes import (
    Block,
    Define,
    Fill,
    Gemm,
    If,
    Loop,
    Map,
    Stmt,
    Value,
    While,
    free_vars,
    ops,
    walk,
)
from explorer.ir.values import value_exprs
from explorer.machine import Machine
from explorer.schedule.plan import Plan, PlanScope, PlanSync
from explorer.schedule.ws import WSScope


def matrix_in_flight(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A gemm that lags is the only op of its loop that touches its accumulator and operands.

    Operands in a pipeline are excepted: their slots are released as late as the gemm completes.
    """
    statements = statements_of(plan)
    rings = {name for pipeline in plan.pipelines for name in pipeline.buffers}
    for name, lag in plan.lags:
        gemm = statements.get(name)
        if gemm is None:
            yield broken(f"a lag is given for {name}, which the kernel has not")
            continue
        in_flight = touched(gemm) - rings
        for scope in plan.scopes:
            for role, body in scope.bodies:
                named = [entry.id for entry in body if not isinstance(entry, PlanSync)]
                if name not in named:
                    continue
                for other in named:
                    statement = statements.get(other)
                    if other == name or statement is None:
                        continue
                    shared = sorted(in_flight & touched(statement))
                    if shared and scope.id != WSScope.ROOT:
                        yield require(
                            lag <= 0,
                            f"role {role} in {scope.id}: {other} touches {shared[0]} while {name} "
                            "may still be in flight, {lag} iterations late",
                            lag=lag,
                        )


def loop_carried(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A ring of more than one version holds no value that the next iteration reads.

    In the pipeline's scope the first access of each buffer is a write, the consumers do not write
    it and the producers do not read it.
    """
    statements = statements_of(plan)
    for pipeline in plan.pipelines:
        scope, producers, consumers = _parties(plan, pipeline.name)
        if scope is None or scope.id == WSScope.ROOT:
            continue
        for name in pipeline.buffers:
            reader = _first_access_reads(statements[scope.id], name)
            if reader:
                yield require(
                    pipeline.depth <= 1,
                    f"pipeline {pipeline.name} has {{depth}} versions, but {reader} reads {name} "
                    f"before any op of {scope.id} writes it: its value is carried from iteration "
                    "to iteration",
                    depth=pipeline.depth,
                )
            for role, writes in (*product(producers, (False,)), *product(consumers, (True,))):
                for op in _ops_below(plan, scope, role):
                    found = statement_access(statements[op])
                    regions = found.writes if writes else found.reads
                    if any(region.buffer.name == name for region in regions):
                        verb = "writes" if writes else "reads"
                        side = "consumer" if writes else "producer"
                        yield require(
                            pipeline.depth <= 1,
                            f"pipeline {pipeline.name} has {{depth}} versions, but its {side} "
                            f"{role} {verb} {name} in {op}",
                            depth=pipeline.depth,
                        )


def _parties(
    plan: Plan, pipeline: str
) -> tuple[PlanScope | None, tuple[str, ...], tuple[str, ...]]:
    found: PlanScope | None = None
    roles: dict[bool, list[str]] = {True: [], False: []}
    for scope in plan.scopes:
        for role, body in scope.bodies:
            for entry in body:
                if isinstance(entry, PlanSync) and entry.pipeline == pipeline:
                    found = scope
                    if role not in roles[entry.kind.producer]:
                        roles[entry.kind.producer].append(role)
    return found, tuple(roles[True]), tuple(roles[False])


def _first_access_reads(loop: Stmt, buffer: str) -> str:
    """The op that reads a buffer before any op of the loop writes it; '' where none does."""
    for statement, _ in walk((loop,)):
        if isinstance(statement, Loop | If | While):
            continue
        found = statement_access(statement)
        if any(region.buffer.name == buffer for region in found.reads):
            return statement.id
        if any(region.buffer.name == buffer for region in found.writes):
            return ""
    return ""


def _ops_below(plan: Plan, scope: PlanScope, role: str) -> Iterator[str]:
    for entry in scope.body(role):
        if isinstance(entry, PlanSync):
            continue
        child = plan.scope(entry.id)
        if child is None:
            yield entry.id
        elif child is not scope:
            yield from _ops_below(plan, child, role)


def guarded_write(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A ring of more than one version is written in every iteration.

    A skipped write would expose the value of `depth` iterations ago.
    """
    rings = {name: ring for ring in plan.pipelines for name in ring.buffers}
    for statement, parents in walk(plan.kernel.body):
        guard = next((parent for parent in reversed(parents) if isinstance(parent, If)), None)
        if guard is None or isinstance(statement, Loop | If | While):
            continue
        for region in statement_access(statement).writes:
            ring = rings.get(region.buffer.name)
            if ring is not None:
                yield require(
                    ring.depth <= 1,
                    f"{statement.id} writes {region.buffer.name} only if {guard.cond}, but "
                    f"pipeline {ring.name} has {{depth}} versions",
                    depth=ring.depth,
                )


def uniform_guards(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C7: a guard reads scalars that no role can change, and no buffer of a pipeline."""
    written = {
        region.buffer.name
        for region in statement_access(_body(plan)).writes
        if not region.buffer.scope.private
    }
    rings = {name for pipeline in plan.pipelines for name in pipeline.buffers}
    sources = _scalar_sources(plan)
    for statement, _ in walk(plan.kernel.body):
        if not isinstance(statement, If | While | Loop):
            continue
        for scalar in sorted(_guard_scalars(statement) & set(sources)):
            for buffer in sorted(sources[scalar] & (written | rings)):
                yield broken(
                    f"{statement.id} depends on {scalar}, read from {buffer}, which the kernel "
                    "writes: roles could disagree on it"
                )


def _scalar_sources(plan: Plan) -> dict[str, set[str]]:
    """The buffers that each scalar depends on, through other scalars too."""
    found: dict[str, set[str]] = {}
    uses: dict[str, set[str]] = {}
    for statement, _ in walk(plan.kernel.body):
        if isinstance(statement, Define):
            read = found.setdefault(statement.name, set())
            read |= {element.buffer.name for element in elements(statement.value)}
            uses.setdefault(statement.name, set()).update(_value_vars(statement.value))
    for _ in found:
        for name, others in uses.items():
            for other in others & set(found):
                found[name] |= found[other]
    return found


def _guard_scalars(block: Block) -> frozenset[str]:
    if isinstance(block, Loop):
        return free_vars(block.start) | free_vars(block.extent)
    return free_vars(block.cond) if isinstance(block, If | While) else frozenset()


def _body(plan: Plan) -> Stmt:
    return If("kernel", Var("kernel") < 1, plan.kernel.body)


def scalar_definitions(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C9: a role that uses a scalar has run its definition earlier, under no more guards, and
    at the same stage."""
    defines = {s.name: s.id for s, _ in walk(plan.kernel.body) if isinstance(s, Define)}
    if not defines:
        return
    for role in plan.roles:
        seen: dict[str, _Definition] = {}
        for visit in visits(plan, role.name):
            yield from _Scalars(plan, role.name, defines, seen).visit(visit)


@frozen
class _Definition:
    """Where a role ran the definition of a scalar."""

    op: str
    scope: str
    guards: frozenset[str]


@frozen
class _Scalars:
    plan: Plan
    role: str
    defines: dict[str, str]
    seen: dict[str, _Definition]

    def visit(self, visit: Visit) -> Iterator[Requirement]:
        found = next(
            ((s, above) for s, above in walk(self.plan.kernel.body) if s.id == visit.op), None
        )
        if found is None:
            return
        statement, parents = found
        guards = [p for p in parents if isinstance(p, If)]
        needed = set().union(*(_guard_scalars(guard) for guard in guards))
        needed |= _used_scalars(statement)
        for scalar in sorted(needed & set(self.defines)):
            yield from self.use(scalar, visit, frozenset(guard.id for guard in guards))
        for each, above in walk((statement,)):
            if isinstance(each, Define) and self.plan.scope(visit.op) is None:
                inner = frozenset(p.id for p in (*parents, *above) if isinstance(p, If))
                self.seen[each.name] = _Definition(visit.op, visit.path[-1], inner)

    def use(self, scalar: str, visit: Visit, guards: frozenset[str]) -> Iterator[Requirement]:
        made = self.seen.get(scalar)
        what = f"role {self.role} uses the scalar {scalar} in {visit.op}"
        if made is None:
            yield broken(f"{what} without having run {self.defines[scalar]}")
        elif made.guards - guards:
            yield broken(f"{what}, but has run {made.op} only under {min(made.guards - guards)}")
        elif made.scope in visit.path:
            inner = (*visit.path, visit.op)
            child = inner[visit.path.index(made.scope) + 1]
            a, b = (self.stage(made.scope, name) for name in (made.op, child))
            yield require(
                equal(a, b),
                f"{what} at stage {{b}}, but runs {made.op} at stage {{a}}",
                a=a,
                b=b,
            )

    def stage(self, scope_id: str, name: str) -> Expr:
        scope = self.plan.scope(scope_id)
        assert scope is not None
        stages = body_stages(self.plan, scope, self.role)
        for entry, stage in zip(scope.body(self.role), stages, strict=True):
            if not isinstance(entry, PlanSync) and entry.id == name:
                return stage
        return const(0)


def _used_scalars(statement: Stmt) -> set[str]:
    """The run-time integers in a statement's own bounds, regions, values and conditions."""
    if isinstance(statement, Loop | While | If):
        return set(_guard_scalars(statement))
    found = statement_access(statement)
    exprs = [
        e for region in (*found.reads, *found.writes) for e in (*region.start, *region.extent)
    ]
    used = {symbol.name for expr in exprs for symbol in symbols(expr) if isinstance(symbol, Var)}
    for op in ops((statement,)):
        match op:
            case Define() | Fill():
                used |= _value_vars(op.value)
            case Gemm():
                used |= free_vars(op.clear_accum)
            case Map():
                for store, guard in zip(op.stores, op.guards, strict=True):
                    used |= _value_vars(store.value) | free_vars(guard)
    return used


def _value_vars(value: Value) -> set[str]:
    return {name for expr in value_exprs(value) for name in free_vars(expr)}


RULES = (
    Rule(
        "matrix-in-flight",
        "safety",
        "no other op of the loop touches the operands of a gemm that completes iterations later",
        "PTX ISA, wgmma.mma_async: registers in flight must not be accessed before the wait",
        "use lag 0 for this gemm",
        matrix_in_flight,
    ),
    Rule(
        "loop-carried",
        "safety",
        "storage that carries values between iterations is not versioned",
        "W9.3; tile-ai/tilelang#2668",
        "use depth 1, or take the buffer out of the pipeline",
        loop_carried,
    ),
    Rule(
        "guarded-write",
        "safety",
        "a ring of more than one version is written in every iteration",
        "W9.4",
        "use depth 1, or write unconditionally",
        guarded_write,
    ),
    Rule(
        "uniform-guard",
        "safety",
        "guards and loop bounds depend on data that no op writes",
        "R-C7, W9.5",
        "read the scalar from a tensor that the kernel does not write",
        uniform_guards,
    ),
    Rule(
        "scalar-definition",
        "form",
        "a role that uses a scalar has run its definition",
        "R-C9",
        "place the defining op in every role that uses it, before the use",
        scalar_definitions,
    ),
)
