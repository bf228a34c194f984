"""Pass: in a cluster, what several blocks would fetch alike is fetched once, a share by each.

A copy is multicast where it is the same for all blocks of the cluster (`ir.uniform`), travels by
the copy engine, and fills its slot alone: no other op writes the buffer, all others touch it in
the consumers' open cycles, and the producers of its pipelines do not take turns. The consumers of
these pipelines then arrive at the empty barriers of the whole cluster, so that a block overwrites
a slot when all blocks have freed it.

Invariant: an overwrite by another block is ordered after exactly what the block's own would be.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from explorer.errors import ScheduleError
from explorer.expr import Const
from explorer.ir.access import access
from explorer.ir.nodes import Copy
from explorer.ir.uniform import copied_rows, row_share, uniform_copies
from explorer.passes.plan import Entry, Plan, RoleDraft, map_steps, nests
from explorer.program.launch import rank
from explorer.program.nodes import Cycle, Exec, Signal, Step
from explorer.program.steps import executed, map_execs, signals
from explorer.schedule.extensions import CopyRoute, Launch, SideMode


def share_copies(plan: Plan) -> Plan:
    """Multicast copies by rows, and releases that reach the whole cluster."""
    launch = plan.schedule.extensions.launch
    if launch.cluster == 1:
        return plan
    if launch.cluster_axis >= len(plan.kernel.grid):
        raise ScheduleError(
            f"cluster: axis {launch.cluster_axis}, but the grid has {len(plan.kernel.grid)}"
        )
    uniform = uniform_copies(plan.kernel, plan.kernel.grid[launch.cluster_axis][0])
    shared = [e for e in _copies(plan) if e.op.id in uniform and _alone(plan, e)]
    names = {execution.op.id for execution in shared}
    pipelines = {use.pipeline for execution in shared for use in execution.uses}

    def change(step: Step) -> Step:
        if isinstance(step, Signal) and not step.full and step.pipeline in pipelines:
            return evolve(step, blocks=launch.cluster)
        return map_execs(step, lambda e: _shared(e, launch) if e.op.id in names else e)

    return plan.map_roles(lambda role: evolve(role, tree=map_steps(role.tree, change)))


def _shared(execution: Exec, launch: Launch) -> Exec:
    copy, count = execution.op, launch.cluster
    assert isinstance(copy, Copy)
    rows = copied_rows(copy)
    if not isinstance(rows, Const) or rows.value % count:
        raise ScheduleError(f"cluster: {copy.id} has {rows} rows, not {count} equal shares")
    return evolve(execution, op=row_share(copy, rank(launch), count), multicast=count)


def _executions(plan: Plan) -> Iterator[tuple[RoleDraft, Exec]]:
    for role in plan.roles:
        for nest in nests(role.tree):
            for item in nest.entries:
                if isinstance(item, Entry):
                    yield from ((role, execution) for execution in executed(item.steps))


def _copies(plan: Plan) -> Iterator[Exec]:
    return (e for _, e in _executions(plan) if e.route == CopyRoute.BULK)


def _alone(plan: Plan, copy: Exec) -> bool:
    """Whether a copy is its buffer's only write, and consumers alone touch it besides."""
    assert isinstance(copy.op, Copy)
    buffer = copy.op.dst.buffer.name
    pipelines = {use.pipeline for use in copy.uses}
    producers = [plan.schedule.extensions.side(name, producer=True) for name in pipelines]
    if any(side is not None and side.mode == SideMode.ALTERNATING for side in producers):
        return False
    for role, execution in _executions(plan):
        found = access(execution.op)
        written = any(region.buffer.name == buffer for region in found.writes)
        if not written and all(region.buffer.name != buffer for region in found.reads):
            continue
        uses = [use for use in execution.uses if use.buffer == buffer]
        if not uses or any(use.cycle != Cycle.OPEN for use in uses):
            return False
        if written != (execution is copy) or any(
            (name, written) not in _closed(role) for name in pipelines
        ):
            return False
    return True


def _closed(role: RoleDraft) -> set[tuple[str, bool]]:
    """(pipeline, side) of every signal of a role; the producer's side is True."""
    return {
        (signal.pipeline, signal.full)
        for nest in nests(role.tree)
        for item in nest.entries
        if isinstance(item, Entry)
        for signal in signals(item.steps)
    }
