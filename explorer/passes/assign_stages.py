"""Pass: every entry gets its iteration offset, counted from the smallest stage of its body.

An op takes the stage of the open spans that it touches, or the one that the schedule gives it (0
gives none), else the smallest (0 in a body without waits and signals). Equal stages cancel.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from explorer.errors import ScheduleError
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft, map_nests
from explorer.program.nodes import Cycle, Exec, Signal, Wait
from explorer.program.steps import executed


def assign_stages(plan: Plan) -> Plan:
    """Offsets of all entries; ScheduleError names R-H1, R-H2 or R-H4."""

    def change(role: RoleDraft) -> RoleDraft:
        given = {
            each.op: each.stage
            for each in plan.schedule.extensions.stages
            if each.role == role.role.name and each.stage
        }
        return evolve(role, tree=map_nests(role.tree, _Stager(given).nest))

    return plan.map_roles(change)


@frozen
class _Stager:
    given: dict[str, int]

    def nest(self, nest: Nest) -> Nest:
        stated = [item.stage for item in nest.entries if item.stage is not None]
        named = [self.given[n] for item in nest.entries for n in _names(item) if n in self.given]
        unstaged = any(not set(_names(item)) <= set(self.given) for item in nest.entries)
        smallest = min([*stated, *named, *([0] if unstaged and not stated else [])], default=0)
        opened: dict[str, int] = {}
        items: list[Item] = []
        for item in nest.entries:
            if item.stage is None:
                stage = self.op_stage(item, opened, smallest)
            else:
                stage = item.stage
                _track(item, opened)
            items.append(evolve(item, stage=stage - smallest))
        if nest.loop is None and any(item.stage for item in items):
            raise ScheduleError("R-H4: stages differ in the root body; only a loop can be shifted")
        return evolve(nest, entries=tuple(items))

    def op_stage(self, item: Item, opened: dict[str, int], smallest: int) -> int:
        touched = {
            use.pipeline
            for execution in _executions(item)
            for use in execution.uses
            if use.cycle == Cycle.OPEN and use.pipeline in opened
        }
        spans = {opened[pipeline] for pipeline in touched}
        spans |= {self.given[name] for name in _names(item) if name in self.given}
        if len(spans) > 1:
            names = ", ".join(sorted(touched))
            raise ScheduleError(
                f"R-H2: '{', '.join(_names(item))}' is at stages {sorted(spans)} through {names}; "
                "bring the spans that it touches to one stage"
            )
        return spans.pop() if spans else smallest


def _track(item: Item, opened: dict[str, int]) -> None:
    assert isinstance(item, Entry) and item.stage is not None
    for step in item.steps:
        if isinstance(step, Wait):
            opened[step.pipeline] = item.stage
        elif isinstance(step, Signal):
            at = opened.pop(step.pipeline, item.stage)
            if at != item.stage:
                raise ScheduleError(
                    f"R-H1: pipeline '{step.pipeline}' is opened at stage {at} and closed at "
                    f"stage {item.stage}; use one stage for both"
                )


def _executions(item: Item) -> Iterator[Exec]:
    if isinstance(item, Entry):
        yield from executed(item.steps)
    else:
        for inner in item.entries:
            yield from _executions(inner)


def _names(item: Item) -> tuple[str, ...]:
    if isinstance(item, Nest):
        return (item.scope,)
    return tuple(execution.op.id for execution in executed(item.steps))
