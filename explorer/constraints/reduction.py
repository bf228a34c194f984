"""Rules of a reduction that blocks share: what may be divided among blocks that do not know of
each other, in parts (split) or in equal ranges of the last tiles (stream).

No rule speaks of waiting, for nobody waits: a part that is not the last goes on to its next tile.

Invariant: what is refused here is what `passes.split_reduction` gives no meaning to, or what would
run an op of the kernel once a part instead of once a tile.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.graph import plan_turns
from explorer.constraints.rule import Requirement, Rule, literal, require
from explorer.errors import ScheduleError
from explorer.expr import (
    Expr,
    all_of,
    any_of,
    const,
    divides,
    equal,
    maximum,
    negate,
    product,
    round_up,
    select,
    total,
)
from explorer.ir.nodes import Gemm
from explorer.machine import Machine
from explorer.schedule.plan import Plan, PlanEntry, PlanOp
from explorer.schedule.reduction import Reduction, alike_tiles, reduction_of
from explorer.schedule.ws import WSScope

# Partial sums above this are no longer read back from the last cache.
WORKSPACE_BYTES = 1 << 28


def split_reduction(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A reduction that is shared is a loop of sums, whose roles alone run what follows it."""
    yield require(plan.split >= 1, "split {split} < 1", split=plan.split)
    if plan.split == const(1) and plan.stream == const(0):
        return
    for reason in _reasons(plan, machine):
        yield require(plan.split <= 1, f"split {{split}}: {literal(reason)}", split=plan.split)
        yield require(equal(plan.stream, 0), f"stream: {literal(reason)}")


def _reasons(plan: Plan, machine: Machine) -> Iterator[str]:
    if machine.registers is None:
        yield f"{machine.name} has no workspace that blocks share"
    try:
        found = reduction_of(plan.kernel)
    except ScheduleError as problem:
        yield str(problem)
        return
    root, loop = plan.scope(WSScope.ROOT), found.loop.id
    if root is None or plan.scope(loop) is None:
        yield f"{loop} is no scope of the schedule"
        return
    if WSScope.ROOT in plan_turns(plan):
        yield "roles take turns on tiles, whose parts have different numbers of cycles"
    holders = tuple(role.name for role in plan.roles if _adds(plan, role.name))
    if len(holders) != 1 and not any(set(holders) == set(s.roles) for s in plan.splits):
        yield f"{', '.join(holders)} add to sums, but are neither one role nor split by rows"
    for role, body in root.bodies:
        yield from _misplaced(found, role, body, role in holders)


def _adds(plan: Plan, role: str) -> bool:
    return any(isinstance(op, Gemm) for op in plan.ops.get(role, ()))


def _misplaced(
    found: Reduction, role: str, body: tuple[PlanEntry, ...], holds: bool
) -> Iterator[str]:
    """Ops that the kernel has behind the loop, in another place or another role."""
    passed = False
    for entry in body:
        if not isinstance(entry, PlanOp):
            continue
        passed = passed or entry.id == found.loop.id
        if entry.id in found.behind and not (passed and holds):
            why = "before it" if holds else "without its sums"
            yield f"role {role} runs {entry.id}, which follows {found.loop.id}, {why}"


def streamed_tiles(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A streamed launch has resident blocks, a whole wave of tiles and a partial one behind it."""
    if plan.stream == const(0):
        return
    whole = equal(plan.stream, 0)
    yield require(
        any_of(whole, equal(plan.split, 1)), "stream and split {split}", split=plan.split
    )
    yield require(any_of(whole, plan.blocks > 0), "stream without resident blocks")
    try:
        loop = reduction_of(plan.kernel).loop
    except ScheduleError:
        return
    if not alike_tiles(plan.kernel, loop):
        yield require(
            whole, f"stream: tiles have different or unknown numbers of iterations of {loop.var}"
        )
        return
    tiles = _walked_tiles(plan, machine)
    yield require(
        any_of(whole, loop.extent > 1),
        "stream: a tile of {extent} iterations cannot be cut",
        extent=loop.extent,
    )
    yield require(
        any_of(whole, plan.blocks < tiles),
        "stream: {tiles} tiles are no wave and a part for {blocks} blocks",
        tiles=tiles,
        blocks=plan.blocks,
    )
    yield require(
        any_of(whole, equal(plan.blocks, 0), negate(divides(maximum(plan.blocks, 1), tiles))),
        "stream: {tiles} tiles are whole waves of {blocks} blocks",
        tiles=tiles,
        blocks=plan.blocks,
    )


def _walked_tiles(plan: Plan, machine: Machine) -> Expr:
    """The tiles of a launch, its axis of clusters rounded up to whole ones."""
    extents = []
    for axis, (_, extent) in enumerate(plan.kernel.grid):
        walked = extent
        for size in machine.cluster_sizes[1:]:
            chosen = all_of(equal(plan.cluster, size), equal(plan.cluster_axis, axis))
            walked = select(chosen, round_up(extent, size), walked)
        extents.append(walked)
    return product(extents)


def split_workspace(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The sums of all parts fit the memory set aside for them."""
    if plan.split == const(1) and plan.stream == const(0):
        return
    try:
        found = reduction_of(plan.kernel)
    except ScheduleError:
        return
    tiles = _walked_tiles(plan, machine)
    sums = total(buffer.bits for buffer in found.sums) // 8
    # By the part, since the solver divides a number more easily than it multiplies two unknowns.
    yield require(
        any_of(equal(plan.split, 1), tiles * sums <= const(WORKSPACE_BYTES) // plan.split),
        f"{{tiles}} tiles of {{sums}} B in {{split}} parts > {WORKSPACE_BYTES} B",
        tiles=tiles,
        sums=sums,
        split=plan.split,
    )
    # Two parts at each place where the ranges of two blocks meet.
    yield require(
        any_of(equal(plan.stream, 0), 2 * plan.blocks * sums <= WORKSPACE_BYTES),
        f"stream: 2 parts of {{sums}} B for {{blocks}} blocks > {WORKSPACE_BYTES} B",
        sums=sums,
        blocks=plan.blocks,
    )


RULES = (
    Rule(
        "split-reduction",
        "safety",
        "a shared reduction only adds to sums, and only roles that hold them run what follows it",
        "parts add up only where nothing else is carried from trip to trip",
        "use split 1, and no stream",
        split_reduction,
    ),
    Rule(
        "streamed-tiles",
        "form",
        "a streamed launch has resident blocks, and tiles that fill more than one wave of them, "
        "the last one in part",
        "Launch; without a partial wave all blocks work to the end",
        "use stream 0",
        streamed_tiles,
    ),
    Rule(
        "split-workspace",
        "form",
        "the partial sums of a shared reduction fit the workspace",
        "a shared reduction pays where tiles are few, and so are its sums",
        "fewer parts, or split 1 and stream 0",
        split_workspace,
    ),
)
