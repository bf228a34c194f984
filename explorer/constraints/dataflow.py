"""Rules of the data itself: what a shift or a version would change about the values read.

The kernel's program order is the meaning. A rule here refuses a schedule under which some op would
read another iteration's value: private storage shifted without versions, rings of storage that
carries values from iteration to iteration, guarded writes into rings. Scalars are in `scalars`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from explorer.constraints.accesses import statement_access
from explorer.constraints.offsets import touched
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.ir.nodes import (
    If,
    Loop,
    Stmt,
    While,
    walk,
)
from explorer.machine import Machine
from explorer.schedule.plan import Plan, PlanScope, PlanSync
from explorer.schedule.ws import WSScope


def matrix_in_flight(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A gemm that lags is the only op of its loop that touches its accumulator and operands.

    Operands in a pipeline are excepted: their slots are released as late as the gemm completes.
    """
    statements = plan.statements
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
    statements = plan.statements
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
)
