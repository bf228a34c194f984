"""The events of a scope and what each depends on, as one graph for all iterations.

In one scope every role repeats its events: its synchronization entries, and the child loops in
which it synchronizes. Event e of iteration i depends on: the event before it in its role; for a
wait, the commit of the same cycle; for an acquire, the release of the cycle `depth` earlier; for a
child loop, whatever stands before that loop in the other roles that synchronize in it. Each of
these has a fixed distance in iterations. Where n roles take turns, n iterations make one round:
an event stands once for each of its iterations in a round, and distances are in rounds.

Invariant: distances are Exprs over the plan's numbers, the same for the checker and the solver.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from explorer.constraints.offsets import body_offsets
from explorer.expr import Expr, ceildiv, const
from explorer.schedule.plan import Plan, PlanScope, PlanSync
from explorer.schedule.turns import alternating, handed_out, turns
from explorer.schedule.ws import WSSyncKind


@frozen(cache_hash=True)
class Event:
    """A synchronization entry of a role, or (kind None) a child loop with such entries.

    `name` is the pipeline or the loop; `offset` its shift in iterations; `turn` its iteration
    within a round; `index` numbers the cycles of a side within a round, of which there are
    `cycles`.
    """

    role: str
    place: int
    kind: WSSyncKind | None
    name: str
    offset: Expr
    turn: int = 0
    index: int = 0
    cycles: int = 1

    def __str__(self) -> str:
        return f"{self.role} {self.kind.value if self.kind else 'loop'}({self.name})"


Edges = dict[tuple[Event, Event], Expr]


@frozen
class Edge:
    """What an event depends on, and how many rounds back."""

    event: Event
    on: Event
    distance: Expr


@frozen
class Graph:
    """The events of a scope, by role in order, and their dependences by what causes them."""

    events: tuple[Event, ...]
    order: tuple[Edge, ...]
    answers: tuple[Edge, ...]
    entries: tuple[Edge, ...]

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All dependences."""
        return (*self.order, *self.answers, *self.entries)


def plan_turns(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Per scope whose iterations are handed out, the roles that take turns."""
    return turns(plan.sides, plan.pipeline_scopes)


def synchronizes(plan: Plan, role: str, scope_id: str, above: tuple[str, ...] = ()) -> bool:
    """Whether a role has synchronization entries in a loop or in the loops inside it."""
    scope = plan.scope(scope_id)
    if scope is None or scope_id in above:
        return False
    return any(
        isinstance(entry, PlanSync) or synchronizes(plan, role, entry.id, (*above, scope_id))
        for entry in scope.body(role)
    )


def graphs(plan: Plan) -> Iterator[tuple[PlanScope, Graph]]:
    """The graphs of every scope; inside a loop that roles enter in turn, one for each of them."""
    if not alternating(plan.sides):
        yield from ((scope, graph(plan, scope)) for scope in plan.scopes)
        return
    handed, paths = plan_turns(plan), plan.scope_paths
    for scope in plan.scopes:
        outer = [handed[each] for each in paths.get(scope.id, ()) if each in handed]
        if not outer:
            yield scope, graph(plan, scope, handed.get(scope.id, ()))
            continue
        for role in outer[0]:
            others = frozenset(outer[0]) - {role}
            yield scope, graph(plan, scope, handed.get(scope.id, ()), others)


def graph(
    plan: Plan,
    scope: PlanScope,
    in_turn: tuple[str, ...] = (),
    absent: frozenset[str] = frozenset(),
) -> Graph:
    """The graph of one scope, without the roles that are `absent`."""
    found = tuple(_events(plan, scope, in_turn, absent))
    order: list[Edge] = []
    before: dict[Event, Edge] = {}
    for role in dict.fromkeys(event.role for event in found):
        own = [event for event in found if event.role == role]
        for index, event in enumerate(own):
            last, turn = own[index - 1], 1 if index == 0 else 0
            before[event] = Edge(event, last, last.offset - event.offset + turn)
            if last is not event:
                order.append(before[event])
    answers = [edge for e in found if e.kind and e.kind.opens for edge in _answers(plan, e, found)]
    entries = [edge for e in found if e.kind is None for edge in _entries(e, found, before)]
    return Graph(found, tuple(order), tuple(answers), tuple(entries))


def _events(
    plan: Plan, scope: PlanScope, in_turn: tuple[str, ...], absent: frozenset[str]
) -> Iterator[Event]:
    known = {pipeline.name for pipeline in plan.pipelines}
    for role, body in scope.bodies:
        if role in absent:
            continue
        once = []
        offsets = body_offsets(plan, scope, role)
        counts: dict[tuple[WSSyncKind | None, str], int] = {}
        for place, entry in enumerate(body):
            kind = entry.kind if isinstance(entry, PlanSync) else None
            name = entry.pipeline if isinstance(entry, PlanSync) else entry.id
            if name not in known if kind else not synchronizes(plan, role, name):
                continue
            rank = counts.get((kind, name), 0)
            counts[kind, name] = rank + 1
            event = Event(role, place, kind, name, offsets[place], index=rank)
            once.append(event)
        for number, turn in enumerate(_turns_of(role, in_turn)):
            for event in once:
                per_turn = counts[event.kind, event.name]
                shared = in_turn if _alternates(plan, scope, event) else ()
                first = turn if shared else number
                rounds = len(shared) if shared else len(_turns_of(role, in_turn))
                yield evolve(
                    event,
                    turn=turn,
                    index=event.index + first * per_turn,
                    cycles=per_turn * rounds,
                )


def _turns_of(role: str, in_turn: tuple[str, ...]) -> tuple[int, ...]:
    if role in in_turn:
        return (in_turn.index(role),)
    return tuple(range(max(len(in_turn), 1)))


def _alternates(plan: Plan, scope: PlanScope, event: Event) -> bool:
    """Whether an event's cycles are counted with those of the roles that take turns with it."""
    if event.kind is None:
        return False
    return any(
        side.pipeline == event.name
        and side.producer == event.kind.producer
        and event.role in side.roles
        and handed_out(side, {event.name: scope.id}) == scope.id
        for side in alternating(plan.sides)
    )


def _answers(plan: Plan, event: Event, found: tuple[Event, ...]) -> Iterator[Edge]:
    """A wait on the commits of its cycle; an acquire on the releases `depth` cycles earlier."""
    producer = event.kind is WSSyncKind.PRODUCER_ACQUIRE
    answer = WSSyncKind.CONSUMER_RELEASE if producer else WSSyncKind.PRODUCER_COMMIT
    ahead = plan.pipeline(event.name).depth if producer else const(0)
    for other in found:
        if other.name == event.name and other.kind == answer:
            yield Edge(event, other, ceildiv(ahead + (other.index - event.index), other.cycles))


def _entries(event: Event, found: tuple[Event, ...], before: dict[Event, Edge]) -> Iterator[Edge]:
    """A child loop depends on what stands before it in the other roles that enter it."""
    for other in found:
        same = other.kind is None and (other.name, other.turn) == (event.name, event.turn)
        if same and other.role != event.role and before[other].on is not other:
            yield Edge(event, before[other].on, before[other].distance)
