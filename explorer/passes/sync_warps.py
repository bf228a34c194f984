"""Pass: barriers inside a role, where one of its threads writes what another reads.

Ops of one role follow each other thread by thread. Where an op touches shared data that an earlier
op of the same role wrote, or writes what an earlier one read, all threads meet in between. A wait
on a pipeline orders the buffers of that pipeline by itself, a ticket the workspace, and tensors
that the role only writes are written in disjoint tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from attrs import evolve, field, frozen

from explorer.ir.access import access
from explorer.machine import Scope
from explorer.passes.plan import Plan, RoleDraft
from explorer.program.counts import role_threads
from explorer.program.nodes import Exec, For, Repeat, RoleSync, Step, Wait, When
from explorer.program.steps import executed

Sharers: TypeAlias = Mapping[str, frozenset[str]]


def sync_warps(plan: Plan) -> Plan:
    """A RoleSync before every op that conflicts with an earlier one of a role of many threads."""
    bound = {p.name: frozenset(p.buffers) for p in plan.schedule.ws.pipelines}
    handed_over = frozenset(buffer.name for buffer in plan.workspace)

    def change(role: RoleDraft) -> RoleDraft:
        if role_threads(role.role, plan.machine) == 1:
            return role
        syncer = Syncer(bound, read_names(role.steps) - handed_over)
        return evolve(role, steps=syncer.synced(role.steps))

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

    def spread(self, sharers: Sharers) -> _Touched:
        """With the buffers that share bytes with those touched."""
        return _Touched(with_sharers(self.read, sharers), with_sharers(self.written, sharers))


def with_sharers(names: frozenset[str], sharers: Sharers) -> frozenset[str]:
    """The names and those of all buffers that share their bytes."""
    return names.union(*(sharers.get(name, ()) for name in names))


@frozen
class Syncer:
    """Puts RoleSyncs into a role's body.

    `bound` are the buffers of each pipeline, `read` those that the role reads, `sharers` those
    that take some of a buffer's bytes. A wait for the full side of a pipeline orders what `landed`
    names, besides its own buffers.
    """

    bound: Mapping[str, frozenset[str]]
    read: frozenset[str]
    sharers: Sharers = field(factory=dict)
    landed: Sharers = field(factory=dict)

    def synced(self, body: tuple[Step, ...]) -> tuple[Step, ...]:
        """The body of a tile that follows another."""
        _, after_one_tile = self.steps(body, _Touched())
        steps, _ = self.steps(body, after_one_tile)
        return steps

    def steps(self, body: tuple[Step, ...], before: _Touched) -> tuple[tuple[Step, ...], _Touched]:
        result: list[Step] = []
        state = before
        for step in body:
            match step:
                case Wait(pipeline, full):
                    names = self.bound.get(pipeline, frozenset())
                    if full:
                        names |= self.landed.get(pipeline, frozenset())
                    state = state.without(names)
                    result.append(step)
                case RoleSync():
                    state = _Touched()
                    result.append(step)
                case Exec():
                    touched = self.touched(step)
                    if state.conflicts(touched.spread(self.sharers)):
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


def read_names(steps: tuple[Step, ...]) -> frozenset[str]:
    """The buffers that some op reads."""
    return frozenset(
        region.buffer.name for each in executed(steps) for region in access(each.op).reads
    )
