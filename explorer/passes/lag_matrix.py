"""Pass: matrix ops that complete iterations later hand their slots back that much later.

    W gemm R        ->   W gemm(async) drain(lag) [i >= lag: R]     in the loop
                         drain(0), min(lag, extent) times R         after it

The drain's constant relies on the FIFO order of a role's matrix ops: at most `lag` in flight
leaves the one of `lag` iterations ago complete, whatever was issued in between.

A token that is given back right behind the loop is given back before the last drain: it orders
what roles issue, so that the next role's matrix ops queue up behind those still in flight.
"""

from __future__ import annotations

from attrs import evolve

from explorer.errors import ScheduleError
from explorer.expr import TRUE, Const, const, minimum
from explorer.ir.nodes import Gemm
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft, map_nests
from explorer.program.nodes import Cycle, Drain, Exec, For, Signal, Step
from explorer.program.steps import executed, map_execs, when
from explorer.schedule.extensions import Extensions, SideMode


def lag_matrix(plan: Plan) -> Plan:
    """Asynchronous matrix ops, drains, and delayed releases with their tail."""
    extensions = plan.schedule.extensions
    if not any(lag.lag for lag in extensions.lags):
        return plan

    tokens = frozenset(p.name for p in plan.schedule.ws.pipelines if not p.buffers)

    def change(role: RoleDraft) -> RoleDraft:
        def nest(each: Nest) -> Nest:
            return _lag(_hand_on(each, tokens), extensions)

        return evolve(role, tree=map_nests(role.tree, nest))

    return plan.map_roles(change)


def _hand_on(nest: Nest, tokens: frozenset[str]) -> Nest:
    """Tails of child loops behind the tokens that directly follow them."""
    items = list(nest.entries)
    for index, (item, behind) in enumerate(zip(nest.entries, nest.entries[1:], strict=False)):
        if not isinstance(item, Nest) or not item.after or item.guard != TRUE:
            continue
        token = isinstance(behind, Entry) and all(
            isinstance(step, Signal) and step.pipeline in tokens for step in behind.steps
        )
        if token and isinstance(behind, Entry) and behind.stage == item.stage:
            items[index] = evolve(item, after=())
            items[index + 1] = evolve(behind, steps=(*behind.steps, *item.after))
    return evolve(nest, entries=tuple(items))


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
    if nest.loop is None:
        raise ScheduleError(f"lag of {names}: it needs a loop around the gemm")
    lag = max(extensions.lag(execution.op.id) for execution in lagging)
    held = {u.pipeline for e in lagging for u in e.uses if u.cycle == Cycle.OPEN}
    for pipeline in held:
        side = extensions.side(pipeline, producer=False)
        if side is not None and side.mode == SideMode.ALTERNATING and nest.passed:
            raise ScheduleError(f"lag of {names}: '{pipeline}' has an alternating side; use lag 0")
    return _delayed(nest, lag, held, {execution.op.id for execution in lagging})


def _delayed(nest: Nest, lag: int, held: set[str], gemms: set[str]) -> Nest:
    def issue(execution: Exec) -> Exec:
        return evolve(execution, asynchronous=execution.op.id in gemms)

    cond = const(lag) <= nest.iteration
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
    tail: tuple[Step, ...] = (Drain(0),)
    if released:
        count = minimum(lag, nest.trips)
        tail += (For(f"{nest.index}_tail", Const(0), count, tuple(released)),)
    return evolve(nest, entries=tuple(items), after=(*nest.after, *tail))
