"""From an executed op to the accesses that the memory model checks.

Invariant: a box covers every element that the op touches; where an index depends on data that is
not simulated, it is the whole dimension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve, frozen

from explorer.expr import TRUE, Cond, Const, Var, evaluate
from explorer.ir.access import Access, access
from explorer.ir.elementwise import condition_lanes
from explorer.ir.nodes import Map, Op, Region, Rewrite, Store
from explorer.machine import Scope
from explorer.program.memory_model import Box, Needs, Spans, Touch
from explorer.program.nodes import Exec

if TYPE_CHECKING:
    from explorer.program.machine_state import World


@frozen
class _Plan:
    """The regions of one Exec that need checking; reads that the op also writes need nothing."""

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    updated: frozenset[str]
    atomic: bool


class Toucher:
    """Records the accesses of one role of one block."""

    def __init__(self, world: World, block: int, role: str) -> None:
        self.world = world
        self.block = block
        self.role = role
        self.plans: dict[int, _Plan] = {}
        self.levels = {r.buffer.name: r.levels for r in world.program.rings}
        self.sharing = frozenset(n for n in self.levels if world.program.sharers(n))

    def touch(
        self,
        step: Exec,
        cycles: dict[tuple[str, str], int],
        actor: str,
        tick: int,
        clock: dict[str, int],
        scalars: dict[str, int],
    ) -> None:
        """Check and record all accesses of an op; FaultFound carries a race."""
        plan = self.plans.get(id(step))
        if plan is None or _guarded(step.op):
            plan = self.plan(step, executed_access(step.op, scalars))
        for write, regions in ((False, plan.reads), (True, plan.writes)):
            for region in regions:
                needs = Needs.NOTHING
                if not write and region.buffer.name not in plan.updated:
                    needs = self.needs(region.buffer.name)
                touch = self.access(step, region, write, cycles, actor, tick, scalars, needs, plan)
                self.world.memory.record(touch, clock)

    def plan(self, step: Exec, found: Access) -> _Plan:
        writes = tuple(region for region in found.writes if self.checked(region))
        plan = _Plan(
            tuple(region for region in found.reads if self.checked(region)),
            writes,
            frozenset(region.buffer.name for region in writes),
            isinstance(step.op, Map) and any(store.atomic for store in step.op.stores),
        )
        self.plans[id(step)] = plan
        return plan

    def checked(self, region: Region) -> bool:
        """Private data matters only next to asynchronous work, read-only tensors never."""
        if region.buffer.scope.private:
            return self.world.asynchronous
        return region.buffer.scope != Scope.GLOBAL or region.buffer.name in self.world.written

    def needs(self, buffer: str) -> Needs:
        levels = self.levels.get(buffer, ())
        if not levels:
            return Needs.NOTHING
        return Needs.THIS_CYCLE if any(depth > 1 for _, depth in levels) else Needs.WRITTEN

    def access(
        self,
        step: Exec,
        region: Region,
        write: bool,
        cycles: dict[tuple[str, str], int],
        actor: str,
        tick: int,
        scalars: dict[str, int],
        needs: Needs,
        plan: _Plan,
    ) -> Touch:
        buffer = region.buffer
        levels = self.levels.get(buffer.name, ())
        cycle = tuple(cycles[(buffer.name, pipeline)] for pipeline, _ in levels)
        version = tuple(c % depth for c, (_, depth) in zip(cycle, levels, strict=True))
        block = -1 if buffer.scope == Scope.GLOBAL else self.block
        owner = self.role if buffer.scope.private else ""
        box = _box(region, scalars)
        return Touch(
            (block, owner, buffer.name, version),
            box,
            write,
            plan.atomic,
            self.block,
            self.role,
            step.op.id,
            actor,
            tick,
            cycle,
            needs,
            self.spans(buffer.name, version, box),
        )

    def spans(self, buffer: str, version: tuple[int, ...], box: Box) -> Spans:
        """The byte ranges of a box of a buffer that shares bytes with another."""
        placement = self.world.program.placement
        if placement is None or buffer not in self.sharing:
            return ()
        place, at = placement.buffer(buffer), 0
        for number, (_, depth) in zip(version, self.levels[buffer], strict=True):
            at = at * depth + number
        shape = self.world.shape(self.world.program.ring(buffer).buffer)
        return place.spans(at, _rows(box, shape))


def _guarded(op: Op) -> bool:
    return isinstance(op, Map) and any(guard != TRUE for guard in op.guards)


def executed_access(op: Op, scalars: dict[str, int]) -> Access:
    """What an op touches under these scalars; a guarded store counts where its guard holds."""
    if not isinstance(op, Map) or not _guarded(op):
        return access(op)
    found = [
        access(part)
        for store, guard in zip(op.stores, op.guards, strict=True)
        if (part := _active_part(op, store, guard, scalars)) is not None
    ]
    return Access(
        tuple(region for each in found for region in each.reads),
        tuple(region for each in found for region in each.writes),
    )


def _active_part(op: Map, store: Store, guard: Cond, scalars: dict[str, int]) -> Map | None:
    """The smallest box of lanes around those whose guard holds; None where none does."""
    whole = evolve(op, stores=(store,), guards=(guard,))
    try:
        extents = [evaluate(extent, scalars) for _, extent in op.axes]
        lanes = np.meshgrid(*(np.arange(e) for e in extents), indexing="ij", sparse=True)
        env = {**scalars, **{name: lane for (name, _), lane in zip(op.axes, lanes, strict=True)}}
        mask = np.broadcast_to(condition_lanes(guard, env), extents)
    except KeyError:
        return whole
    if not mask.any():
        return None
    spans = [(int(along.min()), int(along.max()) + 1) for along in np.nonzero(mask)]
    shift = {
        name: Var(name) + low for (name, _), (low, _) in zip(op.axes, spans, strict=True) if low
    }
    moved = Rewrite(shift).stmt(whole)
    assert isinstance(moved, Map)
    axes = tuple(
        (name, Const(high - low)) for (name, _), (low, high) in zip(op.axes, spans, strict=True)
    )
    return evolve(moved, axes=axes)


def _rows(box: Box, shape: tuple[int, ...]) -> tuple[int, int]:
    """The rows, all dimensions but the last counted through, that a box reaches from and to."""
    low, last = 0, 0
    for (start, stop), size in zip(box[:-1], shape[:-1], strict=True):
        low, last = low * size + start, last * size + stop - 1
    return low, last + 1


def _box(region: Region, scalars: dict[str, int]) -> Box:
    box = []
    for start, extent, size in zip(region.start, region.extent, region.buffer.shape, strict=True):
        try:
            low = evaluate(start, scalars)
            box.append((low, low + evaluate(extent, scalars)))
        except KeyError:
            box.append((0, evaluate(size, scalars)))
    return tuple(box)
