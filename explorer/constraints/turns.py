"""Rules of roles that take turns (alternating sides).

A role that takes turns passes over the cycles of the others. A barrier shows the parity of its
phase and nothing else, so a wait for a cycle is only right if the phase before it, that of the
cycle `depth` earlier, is known to be over; and what a role keeps for itself it has not seen change
in the iterations of others.

Invariant: `turn-phase` is proven from order alone; no trip count and no timing is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from explorer.constraints.accesses import statement_access
from explorer.constraints.graph import (
    Event,
    Graph,
    graph,
    plan_turns,
)
from explorer.constraints.offsets import body_stages
from explorer.constraints.order import renews, unconditional
from explorer.constraints.rule import Finding, Requirement, Rule, broken, require
from explorer.constraints.spans import visits
from explorer.expr import (
    Const,
    Expr,
    all_of,
    any_of,
    const,
    divides,
    equal,
    evaluate,
    holds,
    product,
    symbols,
)
from explorer.ir.access import is_bulk_load
from explorer.ir.nodes import Block, Define, If, Loop, While, free_vars, walk
from explorer.machine import Machine
from explorer.schedule.extensions import CopyRoute, Side
from explorer.schedule.plan import Plan, PlanSync
from explorer.schedule.turns import alternating, handed_out
from explorer.schedule.ws import WSScope, WSSyncKind


def turn_form(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Turns are taken in one counted scope around the pipeline, all alike, at one stage."""
    scopes, paths, handed = plan.pipeline_scopes, plan.scope_paths, plan_turns(plan)
    loops = {s.id: s for s, _ in walk(plan.kernel.body) if isinstance(s, Loop)}
    for side in alternating(plan.sides):
        over, own = handed_out(side, scopes), scopes.get(side.pipeline, "")
        what = f"the alternating side of {side.pipeline}"
        if over is None or over not in (own, *paths.get(own, ())):
            yield broken(f"{what} hands out {over}, which is not around its scope {own}")
            continue
        if over == WSScope.ROOT:
            yield require(plan.blocks >= 1, f"{what} hands out the tiles of a launch of one each")
        elif over not in loops:
            yield broken(f"{what} hands out {over}, which is not a counted loop")
        if side.roles != handed[over] or len(set(side.roles)) != len(side.roles):
            yield broken(f"{what} gives {over} other turns than {', '.join(handed[over])}")
        yield from _countable(plan, over, own, what)
        lag = [lag for op, lag in plan.lags if over == own and op in _directly_in(plan, own)]
        yield require(all_of(*(equal(each, 0) for each in lag)), f"{what} with a lag in its scope")
    for scope in plan.scopes:
        for role, body in scope.bodies:
            stages = body_stages(plan, scope, role) if scope.id in handed and body else ()
            yield require(
                all_of(*(equal(stages[0], each) for each in stages[1:])),
                f"role {role} has stage offsets in {scope.id}, whose iterations are handed out",
            )
    yield from _one_distribution(plan, handed, paths)


def _directly_in(plan: Plan, scope_id: str) -> set[str]:
    """The ops and loops that some role's body of a scope names."""
    scope = plan.scope(scope_id)
    bodies = scope.bodies if scope else ()
    return {e.id for _, body in bodies for e in body if not isinstance(e, PlanSync)}


def _countable(plan: Plan, over: str, own: str, what: str) -> Iterator[Requirement]:
    """The loops below the turns have trip counts that a role knows without running them."""
    scalars = {s.name for s, _ in walk(plan.kernel.body) if isinstance(s, Define)}
    inside = False
    for block in _blocks_around(plan, own):
        inside = inside or over in (WSScope.ROOT, block.id)
        if not inside or block.id == over:
            continue
        if not isinstance(block, Loop | If):
            yield broken(f"{what}: the cycles of {block.id} cannot be counted ahead of it")
            continue
        bounds = (block.start, block.extent) if isinstance(block, Loop) else (block.cond,)
        if any(free_vars(bound) & scalars for bound in bounds):
            yield broken(f"{what}: {block.id} depends on scalars of the iteration handed out")


def _blocks_around(plan: Plan, scope_id: str) -> tuple[Block, ...]:
    """The blocks around a loop, and the loop."""
    for statement, parents in walk(plan.kernel.body):
        if statement.id == scope_id and isinstance(statement, Loop | While):
            return (*parents, statement)
    return ()


def _one_distribution(
    plan: Plan, handed: Mapping[str, tuple[str, ...]], paths: Mapping[str, tuple[str, ...]]
) -> Iterator[Requirement]:
    """A role takes turns in one scope; below it, it shares pipelines by alternating sides only."""
    sides = {(s.pipeline, role) for s in alternating(plan.sides) for role in s.roles}
    taking: dict[str, str] = {}
    for over, roles in handed.items():
        for role in roles:
            if taking.setdefault(role, over) != over:
                yield broken(f"role {role} takes turns in {taking[role]} and in {over}")
    for scope in plan.scopes:
        for role, body in scope.bodies:
            if taking.get(role) not in paths.get(scope.id, ()):
                continue
            for entry in body:
                if isinstance(entry, PlanSync) and (entry.pipeline, role) not in sides:
                    yield broken(
                        f"role {role} takes turns in {taking[role]}, but not on {entry.pipeline}, "
                        f"which it synchronizes in {scope.id} below"
                    )


def turn_phase(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A role's wait is never for a phase whose parity an unfinished phase shows.

    Without numbers, order that depends on a depth is not relied on.
    """
    yield from _phases(plan, machine, {})


def _phases(plan: Plan, machine: Machine, env: Mapping[str, int]) -> Iterator[Requirement]:
    scopes, handed = plan.pipeline_scopes, plan_turns(plan)
    for side in alternating(plan.sides):
        over = handed_out(side, scopes)
        scope = plan.scope(over or "")
        if scope is None:
            continue
        found = graph(plan, scope, handed[scope.id])
        own = scopes[side.pipeline]
        if _ordered(found, side, env):
            continue
        count, depth = len(side.roles), plan.pipeline(side.pipeline).depth
        cycles = _cycles_a_turn(plan, side, scope.id, own)
        if cycles is None:
            yield broken(f"{_late(side)}, and the cycles of a turn vary")
            continue
        gap = (count - 1) * cycles + 1
        in_order = _in_order(plan, machine, side)
        fits = divides(cycles * count, depth)
        yield require(
            any_of(fits, depth >= gap) if in_order else fits,
            f"{_late(side)}, and its {{depth}} slots are "
            + (f"fewer than {gap}" if in_order else f"not a multiple of {cycles * count} cycles"),
            depth=depth,
        )


def _late(side: Side) -> str:
    roles = " and ".join(side.roles)
    return (
        f"pipeline {side.pipeline}: nothing ends the turn of one of {roles} before the next begins"
    )


def _in_order(plan: Plan, machine: Machine, side: Side) -> bool:
    """Whether the other side's signals complete in the order of the cycles."""
    if any(
        s.pipeline == side.pipeline and s.producer != side.producer
        for s in alternating(plan.sides)
    ):
        return False
    if side.producer:
        return True
    by_threads = {route.op for route in plan.routes if route.route == CopyRoute.ELEMENT}
    buffers = set(plan.pipeline(side.pipeline).buffers)
    return not any(
        machine.async_copy
        and is_bulk_load(op)
        and op.id not in by_threads
        and {region.buffer.name for region in statement_access(op).writes} & buffers
        for op, _ in walk(plan.kernel.body)
    )


def _cycles_a_turn(plan: Plan, side: Side, over: str, own: str) -> int | None:
    """Cycles in one iteration that is handed out; None where they vary."""
    scope = plan.scope(own)
    if scope is None:
        return None
    opens = WSSyncKind.PRODUCER_ACQUIRE if side.producer else WSSyncKind.CONSUMER_WAIT
    per_iteration = sum(
        isinstance(entry, PlanSync) and (entry.pipeline, entry.kind) == (side.pipeline, opens)
        for entry in scope.body(side.roles[0])
    )
    trips: list[Expr] = [const(per_iteration)]
    inside = over == WSScope.ROOT
    for block in _blocks_around(plan, own):
        if inside:
            if not isinstance(block, Loop):
                return None
            trips.append(block.extent)
        inside = inside or block.id == over
    value = product(trips)
    return value.value if isinstance(value, Const) and value.value > 0 else None


def _ordered(found: Graph, side: Side, env: Mapping[str, int]) -> bool:
    """Whether each turn's first wait depends on the end of the turn before."""
    marks = [_turn_events(found, side, role) for role in side.roles]
    if not all(marks):
        return False
    for number, events in enumerate(marks):
        previous = marks[number - 1]
        limit = 0 if number else 1
        if len(side.roles) > 1 and _distance(found, events[0], previous[-1], side, env) > limit:
            return False
    return True


def _turn_events(found: Graph, side: Side, role: str) -> list[Event]:
    """The waits of a turn at the level of the turns, or the loop that holds them."""
    opens = WSSyncKind.PRODUCER_ACQUIRE if side.producer else WSSyncKind.CONSUMER_WAIT
    mine = [event for event in found.events if event.role == role]
    waits = [e for e in mine if e.kind is opens and e.name == side.pipeline]
    return waits or [e for e in mine if e.kind is None]


def _distance(found: Graph, start: Event, goal: Event, side: Side, env: Mapping[str, int]) -> int:
    """The least distance at which `start` depends on `goal`, by order and single-role sides."""
    far = 1 << 60
    answers = [edge for edge in found.answers if edge.event.name != side.pipeline]
    weights = [
        (edge, evaluate(edge.distance, env))
        for edge in (*found.order, *answers)
        if all(symbol.name in env for symbol in symbols(edge.distance))
    ]
    best = dict.fromkeys(found.events, far)
    for edge, weight in weights:
        if edge.event == start and edge in found.order:
            best[edge.on] = weight
    for _ in found.events:
        changed = False
        for edge, weight in weights:
            if best[edge.event] < far and best[edge.event] + weight < best[edge.on]:
                best[edge.on] = best[edge.event] + weight
                changed = True
        if not changed:
            break
    return best[goal]


def decide_turn_phase(plan: Plan, env: Mapping[str, int], machine: Machine) -> Iterator[Finding]:
    """`turn_phase` under numbers."""
    for requirement in _phases(plan, machine, env):
        if not holds(requirement.holds, env):
            yield Finding(requirement)


def turn_private(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """No private value is carried through iterations that other roles run."""
    for over, roles in plan_turns(plan).items():
        if over == WSScope.ROOT:
            continue  # private storage is fresh for every tile
        statements = plan.statements
        order = {name: number for number, name in enumerate(statements)}
        always = unconditional(plan, over)
        for role in roles:
            first: dict[str, tuple[int, str, bool]] = {}
            outside: set[str] = set()
            for visit in visits(plan, role):
                statement = statements.get(visit.op)
                if statement is None or isinstance(statement, Loop):
                    continue
                found = statement_access(statement)
                for region in (*found.reads, *found.writes):
                    name = region.buffer.name
                    if not region.buffer.scope.private:
                        continue
                    if over not in visit.path:
                        outside.add(name)
                        continue
                    fresh = visit.op in always and renews(statement, name)
                    at = (order[visit.op], visit.op, fresh)
                    first[name] = min(first.get(name, at), at)
            for name, (_, op, fresh) in sorted(first.items()):
                if not fresh or name in outside:
                    yield broken(
                        f"role {role} keeps {name} through iterations of {over} that others run: "
                        f"{op} " + ("does not renew it" if not fresh else "is not its only use")
                    )


RULES = (
    Rule(
        "turn-form",
        "form",
        "roles take turns in one counted scope around the pipeline, in one order, at one stage",
        "Extensions.sides, alternating",
        "hand out the pipeline's own loop, a loop around it, or the tiles of a persistent launch",
        turn_form,
    ),
    Rule(
        "turn-phase",
        "safety",
        "a role's wait after others' turns is never for a phase that an older one mimics",
        "PTX ISA, mbarrier.try_wait.parity: a wait sees one bit of the phase",
        "order the turns with a token, or use a ring of a whole number of rounds",
        turn_phase,
        decide=decide_turn_phase,
    ),
    Rule(
        "turn-private",
        "safety",
        "a role that takes turns carries no private value from one of its iterations to the next",
        "Extensions.sides, alternating",
        "keep the value in shared memory, or hand out a loop around its whole use",
        turn_private,
    ),
)
