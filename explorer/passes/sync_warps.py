"""Pass: barriers inside a role, where one of its threads writes what another reads.

Ops of one role follow each other thread by thread. Where an op touches shared data that an earlier
op of the same role wrote, or writes what an earlier one read, all threads meet in between. A wait
on a pipeline orders the buffers of that pipeline by itself, and tensors that the role only writes
are written in disjoint tiles.
"""

from __future__ import annotations

from attrs import evolve, frozen

from explorer.ir.access import access
from explorer.machine import Scope
from explorer.passes.plan import Plan, RoleDraft
from explorer.program.counts import role_threads
from explorer.program.nodes import Exec, For, Repeat, RoleSync, Step, Wait, When
from explorer.program.steps import executed


def sync_warps(plan: Plan) -> Plan:
    """A RoleSync before every op that conflicts with an earlier one of a role of many threads."""
    bound = {p.name: frozenset(p.buffers) for p in plan.schedule.ws.pipelines}

    def change(role: RoleDraft) -> RoleDraft:
        if role_threads(role.role, plan.machine) == 1:
            return role
        syncer = _Syncer(bound, _read_names(role.steps))
        _, after_one_tile = syncer.steps(role.steps, _Touched())
        steps, _ = syncer.steps(role.steps, after_one_tile)
        return evolve(role, steps=steps)

    return plan.map_roles(change)


@frozen
class _Touched:
    """Shared buffers read and written since the threads last met."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()

    def __or__(self, other: _Touched) -> _Touched:
        return _Touched(self.read | other.read, self.written | other.written)

    def without(self, names: frozenset[str]) -> _Touched:
        return _Touched(self.read - names, self.written - names)

    def conflicts(self, later: _Touched) -> bool:
        return bool(later.written & (self.read | self.written) or later.read & self.written)


@frozen
class _Syncer:
    bound: dict[str, frozenset[str]]
    read: frozenset[str]

    def steps(self, body: tuple[Step, ...], before: _Touched) -> tuple[tuple[Step, ...], _Touched]:
        result: list[Step] = []
        state = before
        for step in body:
            match step:
                case Wait(pipeline):
                    state = state.without(self.bound.get(pipeline, frozenset()))
                    result.append(step)
                case RoleSync():
                    state = _Touched()
                    result.append(step)
                case Exec():
                    touched = self.touched(step)
                    if state.conflicts(touched):
                        result.append(RoleSync())
                        state = _Touched()
                    state |= touched
                    result.append(step)
                case For() | Repeat():
                    _, once = self.steps(step.body, state)
                    inner, after = self.steps(step.body, state | once)
                    state |= after
                    result.append(evolve(step, body=inner))
                case When():
                    inner, after = self.steps(step.body, state)
                    state |= after
                    result.append(evolve(step, body=inner))
                case _:
                    result.append(step)
        return tuple(result), state

    def touched(self, execution: Exec) -> _Touched:
        found = access(execution.op)
        written = (region.buffer for region in found.writes if not region.buffer.scope.private)
        return _Touched(
            frozenset(r.buffer.name for r in found.reads if not r.buffer.scope.private),
            frozenset(b.name for b in written if b.scope != Scope.GLOBAL or b.name in self.read),
        )


def _read_names(steps: tuple[Step, ...]) -> frozenset[str]:
    return frozenset(
        region.buffer.name for each in executed(steps) for region in access(each.op).reads
    )
