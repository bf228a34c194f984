"""Pass: every pipeline gets its barriers, initialised with the arrivals of one cycle."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from explorer.passes.plan import Entry, Plan, nests
from explorer.program.counts import role_threads, side_count
from explorer.program.nodes import Barriers, Signal
from explorer.program.steps import signals
from explorer.schedule.extensions import SideMode


def count_arrivals(plan: Plan) -> Plan:
    """The full and empty barriers of every pipeline."""

    def count(pipeline: str, full: bool) -> int:
        side = plan.schedule.extensions.side(pipeline, producer=full)
        return side_count(side.mode if side else SideMode.SHARED, _signalled(plan, pipeline, full))

    barriers = tuple(
        Barriers(p.name, p.depth, count(p.name, True), count(p.name, False))
        for p in plan.schedule.ws.pipelines
    )
    return evolve(plan, barriers=barriers)


def _signalled(plan: Plan, pipeline: str, full: bool) -> Iterator[tuple[int, Signal]]:
    """For every role on a side: its threads, and a signal of it."""
    for role in plan.roles:
        found = (
            signal
            for nest in nests(role.tree)
            for item in nest.entries
            if isinstance(item, Entry)
            for signal in signals(item.steps)
            if (signal.pipeline, signal.full) == (pipeline, full)
        )
        first = next(found, None)
        if first is not None:
            yield role_threads(role.role, plan.machine), first
