"""Rules of the data itself: what a shift or a version would change about the values read.

The kernel's program order is the meaning. A rule here refuses a schedule under which some op would
read another iteration's value: private storage shifted without versions, rings of storage that
carries values from iteration to iteration, guarded writes into rings, guards that change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from explorer.constraints.offsets import PlacedOp, placed_ops, touched
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.expr import Cond, Expr, Var, symbols
from explorer.ir.access import elements, statement_access
from explorer.ir.nodes import (
    Block,
    Define,
    If,
    Loop,
    Stmt,
    While,
    free_vars,
    walk,
)
from explorer.machine import Machine
from explorer.schedule.plan import Plan, PlanScope, PlanSync
from explorer.schedule.ws import WSScope


def _statements(plan: Plan) -> dict[str, Stmt]:
    return {statement.id: statement for statement, _ in walk(plan.kernel.body)}


def _earlier(a: Expr, place_a: int, b: Expr, place_b: int) -> Cond:
    """Whether step a at its place in the body runs before step b at its place."""
    return a <= b if place_a < place_b else a < b


def private_order(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Every read of private storage sees the write that program order puts before it.

    In the steps of a loop, iteration i of an op at stage s runs at step i + s. For each pair of
    accesses of one buffer, the order of program holds between equal and successive iterations.
    """
    statements = _statements(plan)
    order = {name: number for number, name in enumerate(statements)}
    for scope in plan.scopes:
        if scope.id == WSScope.ROOT:
            continue
        for role, _ in scope.bodies:
            ops = list(placed_ops(plan, scope, role, statements))
            if len({op.stage for op in ops}) < 2:
                continue
            ops.sort(key=lambda op: order[op.statement.id])
            for index, first in enumerate(ops):
                for second in ops[index + 1 :]:
                    yield from _pair(role, scope, first, second)


def _pair(role: str, scope: PlanScope, first: PlacedOp, second: PlacedOp) -> Iterator[Requirement]:
    conflict = _private_conflict(first.statement, second.statement)
    if not conflict or first.stage == second.stage:
        return
    name = min(conflict)
    for earlier, later, turn in ((first, second, 0), (second, first, 1)):
        yield require(
            _earlier(earlier.stage, earlier.place, later.stage + turn, later.place),
            f"role {role} in {scope.id}: {later.statement.id} at stage {{b}} takes {name} of "
            f"another iteration than {earlier.statement.id} at stage {{a}} left for it",
            a=earlier.stage,
            b=later.stage,
        )


def _private_conflict(one: Stmt, other: Stmt) -> set[str]:
    """Private buffers that both touch and at least one writes."""
    a, b = statement_access(one), statement_access(other)
    written = {r.buffer.name for r in (*a.writes, *b.writes) if r.buffer.scope.private}
    return written & set(touched(one)) & set(touched(other))


def matrix_in_flight(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A gemm that lags is the only op of its loop that touches its accumulator and operands.

    Operands in a pipeline are excepted: their slots are released as late as the gemm completes.
    """
    statements = _statements(plan)
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
    statements = _statements(plan)
    for pipeline in plan.pipelines:
        scope, producers, consumers = _parties(plan, pipeline.name)
        if scope is None or scope.id == WSScope.ROOT:
            continue
        for name in pipeline.buffers:
            reader = _first_access_reads(statements[scope.id], name)
            if reader:
                yield broken(
                    f"pipeline {pipeline.name}: {reader} reads {name} before any op of "
                    f"{scope.id} writes it, so its value is carried from iteration to iteration"
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
    sources = {
        statement.name: {element.buffer.name for element in elements(statement.value)}
        for statement, _ in walk(plan.kernel.body)
        if isinstance(statement, Define)
    }
    for statement, _ in walk(plan.kernel.body):
        if not isinstance(statement, If | While | Loop):
            continue
        for scalar in sorted(_guard_scalars(statement) & set(sources)):
            for buffer in sorted(sources[scalar] & (written | rings)):
                yield broken(
                    f"{statement.id} depends on {scalar}, read from {buffer}, which the kernel "
                    "writes: roles could disagree on it"
                )


def _guard_scalars(block: Block) -> frozenset[str]:
    if isinstance(block, Loop):
        return free_vars(block.start) | free_vars(block.extent)
    return free_vars(block.cond) if isinstance(block, If | While) else frozenset()


def _body(plan: Plan) -> Stmt:
    return If("kernel", Var("kernel") < 1, plan.kernel.body)


def scalar_definitions(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C9: a role that uses a scalar defines it itself, earlier."""
    defines = {s.name: s.id for s, _ in walk(plan.kernel.body) if isinstance(s, Define)}
    if not defines:
        return
    statements = _statements(plan)
    parents = {s.id: above for s, above in walk(plan.kernel.body)}
    for role in plan.roles:
        seen: set[str] = set()
        for entry_id in _in_order(plan, role.name, WSScope.ROOT, ()):
            statement = statements.get(entry_id)
            if statement is None:
                continue
            if isinstance(statement, Define):
                seen.add(statement.name)
            guards = [p for p in parents[entry_id] if isinstance(p, If)]
            needed = set().union(*(_guard_scalars(guard) for guard in guards))
            needed |= _used_scalars(statement)
            for scalar in sorted((needed & set(defines)) - seen):
                yield broken(
                    f"role {role.name} uses the scalar {scalar} in {entry_id} without having run "
                    f"{defines[scalar]}"
                )


def _in_order(plan: Plan, role: str, scope_id: str, path: tuple[str, ...]) -> Iterator[str]:
    scope = plan.scope(scope_id)
    if scope is None or scope_id in path:
        return
    for entry in scope.body(role):
        if not isinstance(entry, PlanSync):
            yield entry.id
            yield from _in_order(plan, role, entry.id, (*path, scope_id))


def _used_scalars(statement: Stmt) -> set[str]:
    if isinstance(statement, Loop | While | If):
        return set(_guard_scalars(statement))
    found = statement_access(statement)
    exprs = [
        e for region in (*found.reads, *found.writes) for e in (*region.start, *region.extent)
    ]
    return {symbol.name for expr in exprs for symbol in symbols(expr) if isinstance(symbol, Var)}


RULES = (
    Rule(
        "private-order",
        "safety",
        "an op reads the private value that program order gives it, whatever the stages",
        "W12: an op shifted by s reads the value of iteration i - s",
        "bring the ops to one stage, or place the reader before the next write",
        private_order,
    ),
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
