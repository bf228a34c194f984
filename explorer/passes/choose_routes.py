"""Pass: every global-to-shared copy gets its route, and every signal the arrivals that follow it.

Gemms into tensor memory complete by themselves and are asynchronous from here on.

Without a word in the schedule a copy takes the machine's copy engine where there is one that can
carry it and a pipeline's barrier counts its bytes, else the role's own threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from explorer.ir.access import is_bulk_load
from explorer.ir.nodes import Gemm, Op
from explorer.machine import Scope
from explorer.memory.bulk import bulk_refusal
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft, map_steps, nests
from explorer.program.counts import SideWork, side_signal
from explorer.program.nodes import Cycle, Exec, Signal, Step
from explorer.program.steps import executed, map_execs
from explorer.schedule.extensions import CopyRoute


def choose_routes(plan: Plan) -> Plan:
    """Routes of copies; per-thread, deferred or single arrivals of signals."""
    chosen = {route.op: route.route for route in plan.schedule.extensions.routes}

    def route(execution: Exec) -> Exec:
        if not is_bulk_load(execution.op):
            return evolve(execution, asynchronous=accumulates_apart(execution.op))
        counted = any(use.cycle == Cycle.OPEN for use in execution.uses)
        engine = plan.machine.async_copy and not bulk_refusal(execution.op)
        usual = CopyRoute.BULK if engine and counted else CopyRoute.ELEMENT
        return evolve(execution, route=chosen.get(execution.op.id, usual))

    def change(role: RoleDraft) -> RoleDraft:
        tree = map_steps(role.tree, lambda step: map_execs(step, route))
        return evolve(role, tree=map_steps(tree, lambda step: _signal(tree, step)))

    return plan.map_roles(change)


def _signal(tree: Nest, step: Step) -> Step:
    if not isinstance(step, Signal):
        return step
    return side_signal(step.pipeline, step.full, side_work(tree, step.pipeline))


def accumulates_apart(op: Op) -> bool:
    """Whether an op is a gemm into tensor memory."""
    return isinstance(op, Gemm) and op.c.buffer.scope == Scope.TMEM


def side_work(tree: Nest, pipeline: str) -> SideWork:
    """What one role does to the buffers of a pipeline while it has a cycle open."""
    found = [
        execution
        for nest in nests(tree)
        for item in nest.entries
        if isinstance(item, Entry)
        for execution in executed(item.steps)
        if _opened(execution, pipeline)
    ]
    matrix = [execution for execution in found if accumulates_apart(execution.op)]
    routes = [execution.route for execution in found if execution not in matrix]
    return SideWork(
        bulk=CopyRoute.BULK in routes,
        deferred=CopyRoute.ASYNC in routes,
        threads=not found or None in routes or CopyRoute.ELEMENT in routes,
        carried=all(_carried(tree, pipeline)),
        matrix=bool(matrix),
    )


def _opened(execution: Exec, pipeline: str) -> bool:
    return any(use.pipeline == pipeline and use.cycle == Cycle.OPEN for use in execution.uses)


def _carried(tree: Nest, pipeline: str) -> Iterator[bool]:
    """For every commit: whether the last op before it on the pipeline is a plain bulk copy."""
    for nest in nests(tree):
        last: Exec | None = None
        for item in nest.entries:
            for step in _steps(item):
                if isinstance(step, Signal) and step.pipeline == pipeline:
                    if isinstance(item, Entry):
                        yield last is not None and last.route == CopyRoute.BULK
                        last = None
                elif any(_opened(execution, pipeline) for execution in executed((step,))):
                    plain = isinstance(step, Exec) and isinstance(item, Entry)
                    last = step if plain and isinstance(step, Exec) else None


def _steps(item: Item) -> Iterator[Step]:
    if isinstance(item, Entry):
        yield from item.steps
    else:
        for inner in item.entries:
            yield from _steps(inner)
