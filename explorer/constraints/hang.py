"""Running the events of a schedule, to confirm or drop a refusal of the deadlock rule.

Waits are monotone: nothing that is enabled is ever disabled by another role, so one greedy run
decides for given trip counts, and longer loops only add waits. Static extents are used as they
are, up to the length at which the cycle that was found must show.

Invariant: a `Hang` is a run that was executed; `smallest_hang` gives None only where a run at the
longest telling trip counts has finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import Factory, define, frozen

from explorer.constraints.graph import plan_turns
from explorer.constraints.offsets import body_offsets
from explorer.expr import Const, evaluate
from explorer.ir.nodes import Loop, walk
from explorer.schedule.plan import Plan, PlanEntry, PlanSync
from explorer.schedule.turns import alternating
from explorer.schedule.ws import WSScope, WSSyncKind

MAX_EVENTS = 60_000
ROOT = WSScope.ROOT


@frozen
class Sync:
    """One synchronization of a role, about one cycle of a pipeline."""

    kind: WSSyncKind
    pipeline: str
    cycle: int


@frozen
class Blocked:
    """A role that waits for ever: at which entry, for which cycle."""

    role: str
    sync: Sync
    depth: int

    def __str__(self) -> str:
        full = self.sync.kind == WSSyncKind.CONSUMER_WAIT
        parity = (self.sync.cycle // self.depth) & 1
        return (
            f"{self.role} at the {'full' if full else 'empty'} barrier of {self.sync.pipeline}, "
            f"slot {self.sync.cycle % self.depth}, parity {parity if full else parity ^ 1}"
        )


@frozen
class Hang:
    """The trip counts of a run that hangs, and the blocked roles."""

    extents: tuple[tuple[str, int], ...]
    blocked: tuple[Blocked, ...]

    def __str__(self) -> str:
        named = {("tiles" if name == ROOT else name): extent for name, extent in self.extents}
        trips = ", ".join(f"{name} {extent}" for name, extent in named.items())
        return f"hangs at extent {trips}: " + "; ".join(map(str, self.blocked))


@frozen
class TooLong:
    """A hang that takes more events than are run; `extent` iterations of `scope` show it."""

    scope: str
    extent: int

    def __str__(self) -> str:
        return f"hangs at latest at extent {self.scope} {self.extent}"


class _Truncated(Exception):
    """A run took more than MAX_EVENTS events."""


@define
class _Events:
    """The synchronization of one role in emitted order: prologue, steady loop, epilogue (W8)."""

    plan: Plan
    role: str
    env: Mapping[str, int]
    extents: Mapping[str, int]
    in_turn: Mapping[str, tuple[str, ...]]
    alternating: frozenset[tuple[str, bool]]
    counts: dict[tuple[str, WSSyncKind], int] = Factory(dict)

    def scope(self, scope_id: str, passing: bool, path: tuple[str, ...]) -> Iterator[Sync]:
        scope = self.plan.scope(scope_id)
        if scope is None or scope_id in path or not scope.body(self.role):
            return
        body = scope.body(self.role)
        shifts = [evaluate(o, self.env) for o in body_offsets(self.plan, scope, self.role)]
        extent = self.extents.get(scope_id, 1)
        for step in _steps(shifts, extent):
            for entry, shift in zip(body, shifts, strict=True):
                if shift <= step < shift + extent:
                    passed = passing or not self.owns(scope_id, step - shift)
                    yield from self.entry(entry, passed, (*path, scope_id))

    def owns(self, scope_id: str, iteration: int) -> bool:
        roles = self.in_turn.get(scope_id, ())
        return self.role not in roles or iteration % len(roles) == roles.index(self.role)

    def entry(self, entry: PlanEntry, passing: bool, path: tuple[str, ...]) -> Iterator[Sync]:
        if not isinstance(entry, PlanSync):
            yield from self.scope(entry.id, passing, path)
            return
        key = entry.pipeline, entry.kind
        if not passing:
            yield Sync(entry.kind, entry.pipeline, self.counts.get(key, 0))
        if not passing or (entry.pipeline, entry.kind.producer) in self.alternating:
            self.counts[key] = self.counts.get(key, 0) + 1


def _steps(shifts: list[int], extent: int) -> Iterator[int]:
    """The steps in which some entry runs."""
    starts = sorted(set(shifts))
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        stop = start + extent
        yield from range(start, stop if following is None else min(stop, following))


class _Run:
    """One greedy run of all roles."""

    def __init__(self, plan: Plan, env: Mapping[str, int], extents: Mapping[str, int]) -> None:
        self.depths = {p.name: evaluate(p.depth, env) for p in plan.pipelines}
        self.closed: dict[tuple[str, WSSyncKind, int], int] = {}
        self.needed = _signallers(plan)
        self.left = MAX_EVENTS
        taken = plan_turns(plan)
        sides = alternating(plan.sides)
        self.queues = {
            role.name: _Events(
                plan,
                role.name,
                env,
                extents,
                taken,
                frozenset((s.pipeline, s.producer) for s in sides if role.name in s.roles),
            ).scope(ROOT, False, ())
            for role in plan.roles
        }
        self.heads = {role: next(queue, None) for role, queue in self.queues.items()}

    def enabled(self, sync: Sync) -> bool:
        cycle, answer = sync.cycle, WSSyncKind.PRODUCER_COMMIT
        if sync.kind == WSSyncKind.PRODUCER_ACQUIRE:
            answer = WSSyncKind.CONSUMER_RELEASE
            cycle -= self.depths.get(sync.pipeline, 1)
        elif sync.kind != WSSyncKind.CONSUMER_WAIT:
            return True
        done = self.closed.get((sync.pipeline, answer, cycle), 0)
        return cycle < 0 or done >= self.needed.get((sync.pipeline, answer), 1)

    def advance(self, role: str) -> bool:
        """Let a role run until it waits; whether it moved."""
        moved = False
        while (head := self.heads[role]) is not None and self.enabled(head):
            key = (head.pipeline, head.kind, head.cycle)
            self.closed[key] = self.closed.get(key, 0) + 1
            self.heads[role] = next(self.queues[role], None)
            moved = True
            self.left -= 1
            if not self.left:
                raise _Truncated
        return moved

    def blocked(self) -> tuple[Blocked, ...]:
        while sum(self.advance(role) for role in self.heads):
            pass
        return tuple(
            Blocked(role, head, self.depths.get(head.pipeline, 1))
            for role, head in self.heads.items()
            if head is not None
        )


def _signallers(plan: Plan) -> dict[tuple[str, WSSyncKind], int]:
    """How many roles close each cycle of a side: all of it, or the one whose turn it is."""
    roles: dict[tuple[str, WSSyncKind], set[str]] = {}
    for scope in plan.scopes:
        for role, body in scope.bodies:
            for entry in body:
                if isinstance(entry, PlanSync):
                    roles.setdefault((entry.pipeline, entry.kind), set()).add(role)
    in_turn = {(side.pipeline, side.producer) for side in alternating(plan.sides)}
    return {
        key: 1 if (key[0], key[1].producer) in in_turn else len(found)
        for key, found in roles.items()
    }


def run(plan: Plan, env: Mapping[str, int], extents: Mapping[str, int]) -> Hang | None:
    """One greedy run under those trip counts; the hang, or None where all roles finish."""
    blocked = _Run(plan, env, extents).blocked()
    return Hang(tuple(extents.items()), blocked) if blocked else None


def smallest_hang(
    plan: Plan, env: Mapping[str, int], scope_id: str, needed: int, repeated: bool
) -> Hang | TooLong | None:
    """The hang with the smallest trip counts among those that the kernel can have, or None.

    `needed` iterations of the scope hold the cycle that was found; `repeated` says that a block
    runs the root once for each of several tiles.
    """
    loops = {s.id: s for s, _ in walk(plan.kernel.body) if isinstance(s, Loop)}
    entered = [scope.id for scope in plan.scopes if scope.id != ROOT]
    extents = {name: loops[name].extent for name in entered if name in loops}
    static = {name: value.value for name, value in extents.items() if isinstance(value, Const)}
    if repeated:
        entered.append(ROOT)

    def trial(extent: int) -> Hang | None:
        return run(plan, env, {name: min(extent, static.get(name, extent)) for name in entered})

    longest = max(needed, _telling_extent(plan, env))
    try:
        low, high, found = 0, longest, trial(longest)
        while found is not None and low < high:
            middle = (low + high) // 2
            shorter = trial(middle)
            if shorter is None:
                low = middle + 1
            else:
                high, found = middle, shorter
        return found
    except _Truncated:
        return TooLong(scope_id, min(needed, static.get(scope_id, needed)))


def _telling_extent(plan: Plan, env: Mapping[str, int]) -> int:
    """Iterations after which an inner loop cannot finish without all its roles."""
    depths = max((min(evaluate(p.depth, env), 64) for p in plan.pipelines), default=0)
    shifts = max(
        (
            min(evaluate(offset, env), 64)
            for scope in plan.scopes
            for role, body in scope.bodies
            if body
            for offset in body_offsets(plan, scope, role)
        ),
        default=0,
    )
    return depths + shifts + 2
