"""Running the events of a schedule, to confirm or drop a refusal of the deadlock rule.

Waits are monotone: nothing that is enabled is ever disabled by another role, so one greedy run
decides for given trip counts, and longer loops only add waits. Static extents are used as they
are, up to the length at which every cycle of the periodic graph shows; others are tried from 0 up.

Invariant: `smallest_hang` returns a run that was executed, or None where no run hangs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from explorer.constraints.offsets import entry_offset
from explorer.expr import Const, evaluate
from explorer.ir.nodes import Loop, walk
from explorer.schedule.plan import Plan, PlanSync
from explorer.schedule.ws import WSScope, WSSyncKind

MAX_EVENTS = 200_000


@frozen
class Sync:
    """One executed synchronization of a role."""

    kind: WSSyncKind
    pipeline: str


@frozen
class Blocked:
    """A role that waits for ever: at which entry, for which cycle."""

    role: str
    sync: Sync
    cycle: int
    depth: int

    def __str__(self) -> str:
        full = self.sync.kind == WSSyncKind.CONSUMER_WAIT
        parity = (self.cycle // self.depth) & 1
        return (
            f"{self.role} at the {'full' if full else 'empty'} barrier of {self.sync.pipeline}, "
            f"slot {self.cycle % self.depth}, parity {parity if full else parity ^ 1}"
        )


@frozen
class Hang:
    """The trip counts of a run that hangs, and the blocked roles."""

    extents: tuple[tuple[str, int], ...]
    blocked: tuple[Blocked, ...]

    def __str__(self) -> str:
        trips = ", ".join(f"{name} {extent}" for name, extent in self.extents)
        return f"hangs at extent {trips}: " + "; ".join(map(str, self.blocked))


def role_events(
    plan: Plan,
    role: str,
    env: Mapping[str, int],
    extents: Mapping[str, int],
    scope_id: str = WSScope.ROOT,
    path: tuple[str, ...] = (),
) -> Iterator[Sync]:
    """The synchronization of a role in emitted order: prologue, steady loop, epilogue (W8)."""
    scope = plan.scope(scope_id)
    if scope is None or scope_id in path or not scope.body(role):
        return
    body = scope.body(role)
    offsets = [evaluate(entry_offset(plan, entry), env) for entry in body]
    first = min(evaluate(entry.stage, env) for entry in body)
    extent = 1 if scope_id == WSScope.ROOT else extents[scope_id]
    for step in range(extent + max(offsets) - first):
        for entry, offset in zip(body, offsets, strict=True):
            if not 0 <= step - (offset - first) < extent:
                continue
            if isinstance(entry, PlanSync):
                yield Sync(entry.kind, entry.pipeline)
            else:
                yield from role_events(plan, role, env, extents, entry.id, (*path, scope_id))


def run(plan: Plan, env: Mapping[str, int], extents: Mapping[str, int]) -> Hang | None:
    """One greedy run under those trip counts; the hang, or None where all roles finish."""
    depths = {p.name: evaluate(p.depth, env) for p in plan.pipelines}
    counts: dict[tuple[str, str, WSSyncKind], int] = {}
    sides: dict[tuple[str, WSSyncKind], list[str]] = {}
    for scope in plan.scopes:
        for role, body in scope.bodies:
            for entry in body:
                if isinstance(entry, PlanSync):
                    roles = sides.setdefault((entry.pipeline, entry.kind), [])
                    if role not in roles:
                        roles.append(role)

    def signalled(pipeline: str, kind: WSSyncKind) -> int:
        roles = sides.get((pipeline, kind), [])
        return min((counts.get((role, pipeline, kind), 0) for role in roles), default=0)

    def enabled(role: str, sync: Sync) -> bool:
        done = counts.get((role, sync.pipeline, sync.kind), 0)
        if sync.kind == WSSyncKind.CONSUMER_WAIT:
            return done < signalled(sync.pipeline, WSSyncKind.PRODUCER_COMMIT)
        if sync.kind == WSSyncKind.PRODUCER_ACQUIRE:
            released = signalled(sync.pipeline, WSSyncKind.CONSUMER_RELEASE)
            return done < depths[sync.pipeline] + released
        return True

    queues = {role.name: role_events(plan, role.name, env, extents) for role in plan.roles}
    heads = {role: next(queue, None) for role, queue in queues.items()}
    executed = 0
    moved = True
    while moved and executed < MAX_EVENTS:
        moved = False
        for role in tuple(heads):
            while (head := heads[role]) is not None and enabled(role, head):
                key = (role, head.pipeline, head.kind)
                counts[key] = counts.get(key, 0) + 1
                heads[role] = next(queues[role], None)
                executed, moved = executed + 1, True
    blocked = tuple(
        Blocked(role, head, counts.get((role, head.pipeline, head.kind), 0), depths[head.pipeline])
        for role, head in heads.items()
        if head is not None and not enabled(role, head)
    )
    return Hang(tuple(extents.items()), blocked) if blocked else None


def smallest_hang(plan: Plan, env: Mapping[str, int]) -> Hang | None:
    """The hang with the smallest trip counts among those that the kernel can have, or None."""
    loops = {s.id: s for s, _ in walk(plan.kernel.body) if isinstance(s, Loop)}
    entered = [scope.id for scope in plan.scopes if scope.id != WSScope.ROOT]
    limit = _telling_extent(plan, env)
    extents = {name: loops[name].extent for name in entered if name in loops}
    static = {name: value.value for name, value in extents.items() if isinstance(value, Const)}
    for extent in range(limit + 1):
        trips = {name: min(extent, static.get(name, extent)) for name in entered}
        hang = run(plan, env, trips)
        if hang is not None:
            return hang
        if all(name in static and static[name] <= extent for name in entered):
            return None
    return None


def _telling_extent(plan: Plan, env: Mapping[str, int]) -> int:
    """Iterations after which every cycle of the periodic graph has shown: depths and shifts."""
    depths = sum(min(evaluate(p.depth, env), 64) for p in plan.pipelines)
    shifts = max(
        (
            evaluate(entry_offset(plan, entry), env)
            for scope in plan.scopes
            for _, body in scope.bodies
            for entry in body
        ),
        default=0,
    )
    return min(depths + shifts + 2, 256)
