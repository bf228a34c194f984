"""Pass: blocks that share the reduction of a tile leave their sums, and the last adds them up.

    clear loop[0, extent) store   ->   clear loop[part's share] sums -> workspace[tile, part]
                                       ticket; when last: sums <- all parts of the tile, store

In a split reduction every tile is shared: the grid gets one more axis, the parts, and a tile's
place in the workspace is its ordinal among the tiles of one part. In a streamed launch a tile that
is cut has two parts, and its place is that of the cut; a tile that is not cut is worked on as if
nothing were shared. Either way a block knows nothing of the others that have part of its tile.

Invariant: sums are added in the order of the parts, whoever comes last, so that the result does
not depend on timing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve, frozen

from explorer.errors import ScheduleError
from explorer.expr import (
    TRUE,
    Cond,
    Expr,
    IntLike,
    Var,
    all_of,
    const,
    equal,
    evaluate,
    product,
    substitute,
    substitute_cond,
)
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Copy,
    Element,
    Gemm,
    Loop,
    Map,
    Region,
    Store,
    Value,
    whole,
)
from explorer.machine import Scope
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft, nests
from explorer.program.launch import TILE, UNIT, stream_of, walked_extents
from explorer.program.nodes import Exec, Ticket
from explorer.program.steps import executed, substitute_steps, when
from explorer.schedule.extensions import Launch
from explorer.schedule.reduction import (
    Reduction,
    Share,
    alike_tiles,
    last_name,
    part_name,
    reduction_of,
    share_of,
)
from explorer.schedule.stream import StreamedLoop

# The last part adds every other one in a statement of its own.
PARTS_MOST = 256


def split_reduction(plan: Plan) -> Plan:
    """The loop's shares, the ops that hand sums over, and what numbers the shares."""
    launch = plan.schedule.extensions.launch
    if launch.stream:
        return _streamed(plan, launch)
    if launch.split == 1:
        return plan
    if launch.split > PARTS_MOST:
        raise ScheduleError(f"split {launch.split} > {PARTS_MOST} parts; use a smaller split")
    found, grid = reduction_of(plan.kernel), plan.kernel.grid
    part = part_name(found.loop)
    tiles = product([extent for _, extent in walked_extents(grid, launch)])
    share = share_of(found.loop, Var(part), launch.split)
    splitter = _Splitter(found, share, launch.split, Var(part), tiles, TILE % tiles)
    kernel = evolve(plan.kernel, grid=(*grid, (part, const(launch.split))))
    return splitter.plan(evolve(plan, kernel=kernel))


def _streamed(plan: Plan, launch: Launch) -> Plan:
    found, grid = reduction_of(plan.kernel), plan.kernel.grid
    tiles = product([extent for _, extent in walked_extents(grid, launch)])
    if launch.split > 1:
        raise ScheduleError(f"stream: split {launch.split} shares the reduction already")
    if not alike_tiles(plan.kernel, found.loop):
        raise ScheduleError(f"stream: tiles have different or unknown numbers of {found.loop.var}")
    if not launch.blocks or evaluate(tiles) < launch.blocks:
        raise ScheduleError(f"stream: {launch.blocks} resident blocks for {tiles} tiles")
    loop = StreamedLoop(found.loop.var, found.loop.extent)
    stream, size = stream_of(grid, launch, loop), launch.cluster
    slot = stream.cut(UNIT // size, loop.part) * size + UNIT % size
    share = Share(loop.first, loop.extent)
    splitter = _Splitter(found, share, 2, loop.part, stream.cuts * size, slot, loop.cut)
    return splitter.plan(evolve(plan, streamed=loop))


@frozen
class _Splitter:
    """`share` of the loop is part `part` of `parts`, where the tile is `shared` at all.

    The sums of a shared tile lie at `slot` of `slots` of the workspace.
    """

    found: Reduction
    share: Share
    parts: int
    part: Expr
    slots: Expr
    slot: Expr
    shared: Cond = TRUE

    def plan(self, plan: Plan) -> Plan:
        return evolve(
            plan,
            roles=tuple(self.role(role) for role in plan.roles),
            workspace=tuple(self.workspace(buffer) for buffer in self.found.sums),
        )

    def role(self, draft: RoleDraft) -> RoleDraft:
        return evolve(draft, tree=evolve(draft.tree, entries=tuple(self.entries(draft.tree))))

    def entries(self, root: Nest) -> Iterator[Item]:
        """The root's entries: the loop's share, then sums handed over, the rest under the last."""
        added = set(_added_to(root))
        held = tuple(buffer for buffer in self.found.sums if buffer.name in added)
        behind = summed = False
        for item in root.entries:
            if isinstance(item, Nest) and item.scope == self.found.loop.id:
                behind = True
                yield self.shared_loop(item)
            elif behind and isinstance(item, Entry) and any(executed(item.steps)):
                if not held:
                    raise ScheduleError(
                        "split-reduction: a role without sums has ops behind the loop "
                        f"'{self.found.loop.id}'"
                    )
                if not summed:
                    yield from self.handed_over(held)
                summed = True
                yield evolve(item, steps=when(self.last, item.steps))
            else:
                yield item

    # ------------------------------------------------------------ the loop's share

    def shared_loop(self, nest: Nest) -> Nest:
        loop = self.found.loop
        env = {loop.var: Var(loop.var) + self.share.offset}
        entries = tuple(_moved(item, env) for item in nest.entries)
        return evolve(nest, loop=evolve(loop, extent=self.share.extent), entries=entries)

    # ------------------------------------------------------------ sums

    @property
    def last(self) -> Cond:
        return equal(Var(self.scalar), 1)

    @property
    def scalar(self) -> str:
        return last_name(self.found.loop)

    def workspace(self, buffer: Buffer) -> Buffer:
        shape = (self.slots, const(self.parts), *buffer.shape)
        return Buffer(f"{buffer.name}_parts", shape, buffer.dtype, Scope.GLOBAL)

    def handed_over(self, held: tuple[Buffer, ...]) -> Iterator[Item]:
        for buffer in held:
            space = self.workspace(buffer)
            place = Region(
                space,
                (self.slot, self.part, *(const(0) for _ in buffer.shape)),
                (const(1), const(1), *buffer.shape),
                frozenset((0, 1)),
            )
            copy = Exec(Copy(f"{buffer.name}_part", whole(buffer), place))
            yield Entry(when(self.shared, (copy,)))
        yield Entry((Ticket(self.scalar, self.slot, self.parts, self.shared),))
        for buffer in held:
            add = Exec(self.sum_of(buffer))
            yield Entry(when(all_of(self.last, self.shared), (add,)))

    def sum_of(self, buffer: Buffer) -> Map:
        """buffer[i, ...] <- workspace[tile, 0, i, ...] + workspace[tile, 1, i, ...] + ..."""
        axes = tuple((f"{buffer.name}_{n}", size) for n, size in enumerate(buffer.shape))
        at = tuple(Var(name) for name, _ in axes)
        space = self.workspace(buffer)
        value: Value = Element(space, (self.slot, const(0), *at))
        for part in range(1, self.parts):
            value = Arith("+", value, Element(space, (self.slot, const(part), *at)))
        return Map(f"{buffer.name}_sum", axes, (Store(buffer, at, value),), (TRUE,))


def _moved(item: Item, env: Mapping[str, IntLike]) -> Item:
    """An entry of the loop with its iteration counted from the start of the share."""
    if isinstance(item, Entry):
        return evolve(item, steps=substitute_steps(item.steps, env))
    loop = item.loop
    if isinstance(loop, Loop):
        start, extent = substitute(loop.start, env), substitute(loop.extent, env)
        loop = evolve(loop, start=start, extent=extent)
    elif loop is not None:
        loop = evolve(loop, cond=substitute_cond(loop.cond, env))
    entries = tuple(_moved(inner, env) for inner in item.entries)
    return evolve(item, loop=loop, guard=substitute_cond(item.guard, env), entries=entries)


def _added_to(root: Nest) -> Iterator[str]:
    """The sums that gemms of a role add to."""
    for nest in nests(root):
        for item in nest.entries:
            if isinstance(item, Entry):
                ops = (execution.op for execution in executed(item.steps))
                yield from (op.c.buffer.name for op in ops if isinstance(op, Gemm))
