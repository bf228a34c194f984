"""Pass: matrix ops that complete iterations later hand their slots back that much later.

    W gemm R        ->   W gemm(async) drain(lag) [i >= lag: R]     in the loop
                         drain(0), min(lag, extent) times R         after it

The drain's constant relies on the FIFO order of a role's matrix ops: at most `lag` in flight
leaves the one of `lag` iterations ago complete, whatever was issued in between.
"""

from __future__ import annotations

from attrs import evolve

from explorer.errors import ScheduleError
from explorer.expr import Const, Expr, Var, const, minimum
from explorer.ir.nodes import Gemm, Loop
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft, map_nests
from explorer.program.nodes import Cycle, Drain, Exec, For, Signal, Step
from explorer.program.steps import executed, map_execs, when
from explorer.schedule.extensions import Extensions, SideMode


def lag_matrix(plan: Plan) -> Plan:
    """Asynchronous matrix ops, drains, and delayed releases with their tail."""
    extensions = plan.schedule.extensions
    if not any(lag.lag for lag in extensions.lags):
        return plan

    def change(role: RoleDraft) -> RoleDraft:
        return evolve(role, tree=map_nests(role.tree, lambda nest: _lag(nest, extensions)))

    return plan.map_roles(change)


def _lag(nest: Nest, extensions: Extensions) -> Nest:
    lagging = [
        execution
        for item in nest.entries
        if isinstance(item, Entry)
        for execution in executed(item.steps)
        if isinstance(execution.op, Gemm) and extensions.lag(execution.op.id)
    ]
    if not lagging:
        return nest
    names = ", ".join(f"'{execution.op.id}'" for execution in lagging)
    if not isinstance(nest.loop, Loop):
        raise ScheduleError(f"lag of {names}: it needs a counted loop around the gemm")
    lag = max(extensions.lag(execution.op.id) for execution in lagging)
    held = {u.pipeline for e in lagging for u in e.uses if u.cycle == Cycle.OPEN}
    for pipeline in held:
        side = extensions.side(pipeline, producer=False)
        if side is not None and side.mode == SideMode.ALTERNATING and nest.passed:
            raise ScheduleError(f"lag of {names}: '{pipeline}' has an alternating side; use lag 0")
    return _delayed(nest, nest.loop, lag, held, {execution.op.id for execution in lagging})


def _delayed(nest: Nest, loop: Loop, lag: int, held: set[str], gemms: set[str]) -> Nest:
    def issue(execution: Exec) -> Exec:
        return evolve(execution, asynchronous=execution.op.id in gemms)

    cond = const(lag) <= Var(loop.var) - loop.start
    items: list[Item] = []
    released: list[Step] = []
    seen: set[str] = set()
    for item in nest.entries:
        if isinstance(item, Nest):
            items.append(item)
            continue
        steps: list[Step] = []
        for step in item.steps:
            if isinstance(step, Signal) and not step.full and step.pipeline in held:
                steps += ([] if released else [Drain(lag)]) + list(when(cond, (step,)))
                released.append(step)
            else:
                steps.append(map_execs(step, issue))
        seen |= {execution.op.id for execution in executed(item.steps)} & gemms
        items.append(evolve(item, steps=tuple(steps)))
        if seen == gemms and not held:
            items.append(Entry((Drain(lag),), item.stage))
            seen = set()
    count: Expr = minimum(lag, loop.extent)
    tail: tuple[Step, ...] = (Drain(0),)
    if released:
        tail += (For(f"{loop.var}_tail", Const(0), count, tuple(released)),)
    return evolve(nest, entries=tuple(items), after=(*nest.after, *tail))
