"""When a role's last touch of one buffer is certain to come before another touch: handovers.

Bytes may serve two buffers X and Y where, in every tile, all touches of X come before all touches
of Y, and, where the block goes on to another tile, all touches of Y before the next ones of X. For
roles that differ only a pipeline can order them: r signals a side after its touch, s waits on that
side before its own. Let a tile have N cycles of the pipeline, r at least g signals after its last
touch, s at least w waits before its first one, and let a wait for cycle c answer to the signal of
cycle c - D: D is 0 on the full side, the depth on the empty one. The w-th wait of the tile `turn`
tiles later is for cycle turn N + w - 1, and the signal that it answers to is not before r's touch
if

    turn N + w - 1 - D >= N - g.

For the next tile that is w + g >= D + 1, whatever N is. For the same tile, w + g >= N + D + 1
holds for every N where all waits come first (w = N, g > D) or all signals follow (g = N, w > D).
Both roles have the same N, which the rules of cycles see to. Later tiles follow, since N >= 0.

The staging buffer of an epilogue over the bytes of Q, in attention: a consumer reads Q in its last
score gemm, which it has waited for, and writes its staging buffer after that: program order, with
a meeting of the role's threads in between (`passes.share_bytes`). The copy into Q comes before,
since the consumer waited for Q's full barrier. Q is released after the store has read the staging
buffer, and the next copy into Q waits for that release of every consumer: w = 1, g = 1, depth 1.
Where Q is released before the store, as it could be without the staging buffer, and the block goes
on to another tile, nothing orders the next copy into Q behind the store, and the two share no
bytes. With two consumers one may still multiply while the other stages its rows; nothing orders
them, but each reads and writes its own rows, which are the same bytes where both buffers lie the
same way at the same offset.

Invariant: a handover is never claimed for what the emitters leave open: asynchronous work counts
from where it is known to have completed, and a skipped or conditional signal does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property

from attrs import field, frozen

from explorer.expr import Const
from explorer.ir.nodes import Copy, Region
from explorer.machine import Scope
from explorer.program.nodes import (
    Cycle,
    Drain,
    Exec,
    For,
    Program,
    Repeat,
    Signal,
    Skip,
    Step,
    Wait,
    When,
)
from explorer.program.steps import every_step
from explorer.schedule.extensions import CopyRoute

Match = Callable[[Step], bool]
Body = tuple[Step, ...]
Path = tuple[int, ...]


@frozen
class Contact:
    """One op of a role that touches a region: `path` leads to it from the body of its frame.

    `rows` are the rows that it touches, None where they are not known.
    """

    role: str
    path: Path
    step: Exec = field(eq=False)
    region: Region = field(eq=False)
    write: bool
    rows: tuple[int, int] | None

    @property
    def engine(self) -> bool:
        """Whether a copy engine lands it, at a time that only its barrier tells."""
        return self.step.route in (CopyRoute.BULK, CopyRoute.ASYNC)

    @property
    def stores(self) -> bool:
        """Whether it reads a tile on its way out, which may go on after the op was issued."""
        op = self.step.op
        return isinstance(op, Copy) and op.dst.buffer.scope == Scope.GLOBAL


@frozen
class Frame:
    """The bodies that all roles repeat in step: those of a tile, or of a loop that all share."""

    program: Program
    bodies: tuple[tuple[str, Body], ...]
    repeated: bool

    def body(self, role: str) -> Body:
        """A role's body; empty where it has none in the frame."""
        return self._bodies.get(role, ())

    def events(self, role: str, pipeline: str) -> tuple[Wait | Signal, ...]:
        """A role's waits and signals of a pipeline; none where some of them lie outside the frame
        or some role passes over cycles."""
        return self._events.get((role, pipeline), ())

    @cached_property
    def _bodies(self) -> dict[str, Body]:
        return dict(self.bodies)

    @cached_property
    def _events(self) -> dict[tuple[str, str], tuple[Wait | Signal, ...]]:
        found: dict[tuple[str, str], tuple[Wait | Signal, ...]] = {}
        whole: Counter[tuple[str, str]] = Counter()
        passed: set[str] = set()
        for role in self.program.roles:
            name = role.role.name
            for step in every_step(role.body):
                if isinstance(step, Skip):
                    passed.add(step.pipeline)
                elif isinstance(step, Wait | Signal):
                    whole[name, step.pipeline] += 1
            for step in every_step(self.body(name)):
                if isinstance(step, Wait | Signal):
                    key = (name, step.pipeline)
                    found[key] = (*found.get(key, ()), step)
        return {
            key: steps
            for key, steps in found.items()
            if key[1] not in passed and len(steps) == whole[key]
        }


def loop(step: Step) -> bool:
    """Whether a step's body may run more than once."""
    return isinstance(step, For | Repeat)


def _inner(step: Step) -> Body:
    return step.body if isinstance(step, For | When | Repeat) else ()


def least(body: Body, match: Match) -> int:
    """How many matching steps a run of the body is certain to make."""
    count = 0
    for step in body:
        if isinstance(step, For):
            count += _trips(step) * least(step.body, match)
        else:
            count += match(step)
    return count


def _trips(step: For) -> int:
    if isinstance(step.start, Const) and isinstance(step.stop, Const):
        return max(0, step.stop.value - step.start.value)
    return 0


def exactly(body: Body, match: Match) -> int | None:
    """How many matching steps every run of the body makes; None where that depends."""
    count = 0
    for step in body:
        inner = exactly(_inner(step), match)
        if (
            isinstance(step, For)
            and isinstance(step.start, Const)
            and isinstance(step.stop, Const)
        ):
            if inner is None:
                return None
            count += _trips(step) * inner
        elif inner != 0:
            return None
        count += match(step)
    return count


def holds_any(body: Body, match: Match) -> bool:
    """Whether a body has a matching step at all."""
    return any(match(step) for step in every_step(body))


def before(body: Body, path: Path, match: Match) -> int:
    """Matching steps that are certain to come before the first run of a step."""
    at, rest = path[0], path[1:]
    count = least(body[:at], match)
    return count + (before(_inner(body[at]), rest, match) if rest else 0)


def after(body: Body, path: Path, match: Match) -> int:
    """Matching steps that are certain to come after the last run of a step."""
    at, rest = path[0], path[1:]
    count = least(body[at + 1 :], match)
    return count + (after(_inner(body[at]), rest, match) if rest else 0)


def all_before(body: Body, path: Path, match: Match) -> bool:
    """Whether every matching step comes before the first run of a step."""
    at, rest = path[0], path[1:]
    inner = _inner(body[at])
    if holds_any(body[at + 1 :], match) or (rest and loop(body[at]) and holds_any(inner, match)):
        return False
    return all_before(inner, rest, match) if rest else True


def all_after(body: Body, path: Path, match: Match) -> bool:
    """Whether every matching step comes after the last run of a step."""
    at, rest = path[0], path[1:]
    inner = _inner(body[at])
    if holds_any(body[:at], match) or (rest and loop(body[at]) and holds_any(inner, match)):
        return False
    return all_after(inner, rest, match) if rest else True


def guards(body: Body, path: Path) -> tuple[tuple[object, ...], ...]:
    """What the run of a step depends on, outermost first: loops and conditions."""
    if len(path) < 2:
        return ()
    step = body[path[0]]
    return (_head(step), *guards(_inner(step), path[1:]))


def _head(step: Step) -> tuple[object, ...]:
    match step:
        case For(var, start, stop):
            return ("for", var, start, stop)
        case Repeat(cond):
            return ("while", cond)
        case When(cond):
            return ("if", cond)
    raise TypeError(f"{step!r} has no body")


def precedes(body: Body, first: Path, second: Path) -> bool:
    """Whether every run of one step comes before every run of another."""
    at, other = first[0], second[0]
    if at != other:
        return at < other
    if len(first) < 2 or len(second) < 2 or loop(body[at]):
        return False
    return precedes(_inner(body[at]), first[1:], second[1:])


def completion(body: Body, contact: Contact) -> Path | None:
    """Where what an op does is known to be done in its own role; None where the role is not
    told."""
    if contact.engine:
        return None
    if not contact.step.asynchronous:
        return contact.path
    found: Path | None = None
    here = body
    for level, at in enumerate(contact.path):
        for later in range(at + 1, len(here)):
            step = here[later]
            if isinstance(step, Drain) and step.pending == 0:
                found = (*contact.path[:level], later)
                break
        here = _inner(here[at])
    return found


@frozen
class Order:
    """What is certain about the order of touches within a frame.

    `buffers` are the two that would share bytes: a store out of them is known to have read its
    tile where a pipeline that binds one of them is signalled.
    """

    frame: Frame
    buffers: frozenset[str]

    def direct(self, first: Contact, second: Contact, turn: int) -> bool:
        """Whether `first` is done before `second` begins, `turn` (0 or 1) runs later."""
        body = self.frame.body(first.role)
        done = completion(body, first)
        if first.role == second.role:
            alone = second.step.multicast == 1
            return alone and done is not None and (turn > 0 or precedes(body, done, second.path))
        return any(
            self._through(first, done, second, turn, pipeline, full)
            for pipeline, full in self._sides(first)
        )

    def _sides(self, first: Contact) -> Iterator[tuple[str, bool]]:
        """The sides whose signals say that a touch is done."""
        if first.engine:
            counted = self._counted(first)
            if counted is not None:
                yield counted, True
            return
        for barriers in self.frame.program.barriers:
            name = barriers.pipeline
            bound = {r.buffer.name for r in self.frame.program.rings if name in dict(r.levels)}
            if not first.stores or bound & self.buffers:
                yield name, True
                yield name, False

    def _counted(self, contact: Contact) -> str | None:
        """The pipeline at whose full barrier a copy lands, where the next signal is that of the
        copy's own cycle: with several cycles open it would be an older one's."""
        for use in reversed(contact.step.uses):
            own = use.buffer == contact.region.buffer.name and use.cycle == Cycle.OPEN
            events = self.frame.events(contact.role, use.pipeline)
            if own and any(isinstance(each, Wait) and not each.full for each in events):
                turns = (isinstance(each, Wait) == (k % 2 == 0) for k, each in enumerate(events))
                return use.pipeline if all(turns) else None
        return None

    def _through(
        self,
        first: Contact,
        done: Path | None,
        second: Contact,
        turn: int,
        pipeline: str,
        full: bool,
    ) -> bool:
        at = first.path if first.engine else done
        signal, wait = _signals(pipeline, full), _waits(pipeline, full)
        given_by = self.frame.events(first.role, pipeline)
        signals = [s for s in given_by if isinstance(s, Signal) and signal(s)]
        waits = any(wait(step) for step in self.frame.events(second.role, pipeline))
        if at is None or not signals or not waits:
            return False
        if not first.engine and not all(s.threads for s in signals):
            return False
        if second.step.multicast > min(s.blocks for s in signals):
            return False
        giving, taking = self.frame.body(first.role), self.frame.body(second.role)
        lag = 0 if full else self._depth(pipeline)
        given, taken = after(giving, at, signal), before(taking, second.path, wait)
        if turn:
            return given + taken > lag
        count, other = exactly(giving, signal), exactly(taking, wait)
        if count is not None and count == other:
            return given + taken > count + lag
        return (all_before(taking, second.path, wait) and given > lag) or (
            all_after(giving, at, signal) and taken > lag
        )

    def _depth(self, pipeline: str) -> int:
        return next(b.depth for b in self.frame.program.barriers if b.pipeline == pipeline)


def _waits(pipeline: str, full: bool) -> Match:
    return lambda step: isinstance(step, Wait) and (step.pipeline, step.full) == (pipeline, full)


def _signals(pipeline: str, full: bool) -> Match:
    return lambda step: isinstance(step, Signal) and (step.pipeline, step.full) == (pipeline, full)
