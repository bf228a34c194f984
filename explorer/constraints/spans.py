"""Rules of spans (R-D): who may touch a ring's buffers, when, and in which order.

Spans are read off each role's body: an acquire or wait opens one, the matching commit or release
closes it, and the ops between run inside it, those of child scopes included.

Invariant: a schedule that passes touches every buffer that several roles share under a pipeline
that orders them as the kernel's program order does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from explorer.constraints.accesses import statement_access
from explorer.constraints.graph import plan_turns
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.expr import equal
from explorer.ir.nodes import Loop, Stmt, While, ops
from explorer.ir.transforms import row_fragments, shares_meet
from explorer.machine import Machine, Scope
from explorer.schedule.plan import Plan, PlanEntry, PlanPipeline, PlanSync
from explorer.schedule.ws import WSScope


def spans(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-D1, R-D2, R-D3, R-H1: spans open and close in turn, in one body, at one stage."""
    for scope in plan.scopes:
        for role, body in scope.bodies:
            opened: dict[tuple[str, bool], PlanSync] = {}
            where = f"role {role} in {scope.id}"
            for entry in body:
                if not isinstance(entry, PlanSync):
                    continue
                key = (entry.pipeline, entry.kind.producer)
                if entry.kind.opens:
                    if key in opened:
                        yield broken(
                            f"{where}: {entry.pipeline} {entry.kind.value} while still open"
                        )
                    opened[key] = entry
                    continue
                start = opened.pop(key, None)
                if start is None:
                    yield broken(f"{where}: {entry.pipeline} {entry.kind.value} of no open span")
                else:
                    yield require(
                        equal(start.stage, entry.stage),
                        f"{where}: {entry.pipeline} {start.kind.value} at stage {{a}}, "
                        f"{entry.kind.value} at stage {{b}}",
                        a=start.stage,
                        b=entry.stage,
                    )
            for pipeline, _ in opened:
                yield broken(f"{where}: the span of {pipeline} is never closed")
            yield from _one_stage(where, body)


def _one_stage(where: str, body: tuple[PlanEntry, ...]) -> Iterator[Requirement]:
    """Cycles are counted in the order in which they run: spans of a ring keep to one stage."""
    first: dict[str, PlanSync] = {}
    for entry in body:
        if isinstance(entry, PlanSync) and entry.kind.opens:
            start = first.setdefault(entry.pipeline, entry)
            yield require(
                equal(start.stage, entry.stage),
                f"{where}: cycles of {entry.pipeline} at stages {{a}} and {{b}} change places",
                a=start.stage,
                b=entry.stage,
            )


@frozen
class Visit:
    """An op as a role comes to it: the scopes it is in, and its role's spans around it.

    `opened` are the pipelines whose spans are open; `passed` those whose entries stand earlier in
    one of the bodies around the op.
    """

    role: str
    op: str
    path: tuple[str, ...]
    opened: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()


def visits(plan: Plan, role: str) -> Iterator[Visit]:
    """Every op of a role, in order."""
    yield from _visits(plan, Visit(role, "", ()), WSScope.ROOT)


def _visits(plan: Plan, at: Visit, scope_id: str) -> Iterator[Visit]:
    scope = plan.scope(scope_id)
    if scope is None or scope_id in at.path:
        return
    path, opened, passed = (*at.path, scope_id), at.opened, at.passed
    for entry in scope.body(at.role):
        if not isinstance(entry, PlanSync):
            visit = Visit(at.role, entry.id, path, opened, passed)
            yield visit
            yield from _visits(plan, visit, entry.id)
        elif entry.kind.opens:
            opened |= {entry.pipeline}
        else:
            opened -= {entry.pipeline}
            passed |= {entry.pipeline}


def coverage(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-D5 to R-D9, W9.1, W9.8: data that several roles touch is ordered by pipelines."""
    statements = {
        name: statement
        for name, statement in plan.statements.items()
        if not isinstance(statement, Loop | While)
    }
    rings = _Rings(plan)
    touched: dict[str, set[str]] = {}
    seen = {role.name: tuple(visits(plan, role.name)) for role in plan.roles}
    held = {role: row_fragments(plan.ops[role]) for each in plan.splits for role in each.roles}
    for role in plan.roles:
        for visit in seen[role.name]:
            statement = statements.get(visit.op)
            if statement is None or plan.scope(visit.op) is not None:
                continue
            for buffer in sorted(_on_chip(statement)):
                if buffer in rings.bound:
                    yield from rings.access(visit, buffer)
                    continue
                touched.setdefault(buffer, set()).add(_party(plan, role.name))
                if role.name in held:
                    yield from _row_divided(role.name, held[role.name], statement, buffer)
    for buffer, parties in sorted(touched.items()):
        if len(parties) > 1:
            yield broken(
                f"roles {', '.join(sorted(parties))} touch {buffer}, which is in no pipeline"
            )
    yield from _global_data(plan, statements, seen)


class _Rings:
    """The pipelines that bind each buffer, outermost first, and who stands on them."""

    def __init__(self, plan: Plan) -> None:
        scopes, self.paths = plan.pipeline_scopes, plan.scope_paths
        self.scopes = scopes
        self.bound: dict[str, list[PlanPipeline]] = {}
        for pipeline in plan.pipelines:
            for buffer in pipeline.buffers:
                self.bound.setdefault(buffer, []).append(pipeline)
        for levels in self.bound.values():
            levels.sort(key=lambda level: len(self.paths.get(scopes.get(level.name, ""), ())))
        self.sides = {
            (role, entry.pipeline): entry.kind.producer
            for scope in plan.scopes
            for role, body in scope.bodies
            for entry in body
            if isinstance(entry, PlanSync)
        }

    def access(self, visit: Visit, buffer: str) -> Iterator[Requirement]:
        what = f"role {visit.role} touches {buffer} in {visit.op}"
        levels = self.bound[buffer]
        around = [level for level in levels if self.scopes.get(level.name) in visit.path]
        if not around:
            names = ", ".join(level.name for level in levels)
            yield broken(f"{what}, outside the scope of {names}")
            return
        for level in levels:
            if (visit.role, level.name) not in self.sides:
                yield broken(f"{what}, which {level.name} binds, but is on neither side of it")
                return
        if around[-1].name not in visit.opened:
            yield broken(f"{what} outside every span of {around[-1].name}")
        for outer in around[:-1]:
            yield from self.outer(visit, outer, what)
        for inner in levels[len(around) :]:
            if visit.path[-1] not in self.paths.get(self.scopes.get(inner.name, ""), ()):
                yield require(
                    inner.depth <= 1,
                    f"{what}, beside the scope of {inner.name}, whose depth is {{depth}}",
                    depth=inner.depth,
                )

    def outer(self, visit: Visit, level: PlanPipeline, what: str) -> Iterator[Requirement]:
        """An access in a loop inside the scope of an enclosing pipeline."""
        if level.name in visit.opened:
            return
        if self.sides[visit.role, level.name]:
            yield broken(f"{what} without holding the enclosing pipeline {level.name}")
        elif level.name in visit.passed:
            yield require(
                level.depth <= 1,
                f"{what} behind its own release of {level.name}, whose depth is {{depth}}",
                depth=level.depth,
            )


def _global_data(
    plan: Plan, statements: Mapping[str, Stmt], seen: Mapping[str, tuple[Visit, ...]]
) -> Iterator[Requirement]:
    """Global data that one role writes is touched by no other: no barrier orders it."""
    handed = plan_turns(plan)
    sharing = {role: "+".join(roles) for roles in handed.values() for role in roles}
    writers: dict[str, set[str]] = {}
    users: dict[str, set[str]] = {}
    for role in plan.roles:
        party = sharing.get(role.name, _party(plan, role.name))
        for visit in seen[role.name]:
            if visit.op not in statements or plan.scope(visit.op) is not None:
                continue
            found = statement_access(statements[visit.op])
            for regions, parties in ((found.writes, (writers, users)), (found.reads, (users,))):
                for region in regions:
                    if region.buffer.scope == Scope.GLOBAL:
                        for table in parties:
                            table.setdefault(region.buffer.name, set()).add(party)
    for name in sorted(writers):
        if len(users[name]) > 1:
            yield broken(
                f"roles {', '.join(sorted(users[name]))} touch {name} in global memory, which "
                "no barrier orders"
            )


@frozen
class Use:
    """An access of a ring's buffer inside a span: its place in the kernel, its cycle's rank.

    `turn` is the iteration of a round in which its role runs it, None where it runs all.
    """

    op: str
    buffer: str
    producer: bool
    rank: int
    order: int
    reads: bool
    writes: bool
    turn: int | None = None

    def before(self, other: Use) -> bool:
        """Whether the kernel has it before another access of the same iteration or round."""
        if self.turn is None or other.turn is None:
            return self.order < other.order
        return (self.turn, self.order) < (other.turn, other.order)


def ring_order(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """In every cycle the producer's accesses come first in program order, the consumer's last.

    A pipeline runs the producer's span of a cycle before the consumer's. Of two conflicting
    accesses the one that the kernel puts first must be in an earlier cycle, or in the same cycle
    on the producer's side; what a consumer reads was written in its own cycle. Roles that take
    turns run different iterations, in the order of their turns.
    """
    order = {name: number for number, name in enumerate(plan.statements)}
    scopes = plan.pipeline_scopes
    for pipeline in plan.pipelines:
        uses = tuple(_uses(plan, pipeline, scopes.get(pipeline.name, ""), order))
        made = [use for use in uses if use.producer]
        taken = [use for use in uses if not use.producer]
        for use in taken:
            for other in made:
                if use.buffer != other.buffer or not (use.writes or other.writes):
                    continue
                before = use.before(other)
                if use.rank >= other.rank if before else other.rank > use.rank:
                    first, second = (use, other) if before else (other, use)
                    yield broken(
                        f"pipeline {pipeline.name} runs {second.op} before {first.op}, but the "
                        f"kernel has {first.op} first, and both touch {use.buffer}"
                    )
            written = any(
                each.writes and (each.buffer, each.rank) == (use.buffer, use.rank) for each in made
            )
            if use.reads and not written:
                yield require(
                    pipeline.depth <= 1,
                    f"{use.op} reads {use.buffer} in cycle {use.rank} of an iteration, in which "
                    f"no producer of {pipeline.name} writes it, and depth is {{depth}}",
                    depth=pipeline.depth,
                )


def _uses(
    plan: Plan, pipeline: PlanPipeline, scope_id: str, order: dict[str, int]
) -> Iterator[Use]:
    scope = plan.scope(scope_id)
    if scope is None or not pipeline.buffers:
        return
    statements = plan.statements
    in_turn = plan_turns(plan).get(scope_id, ())
    for role, body in scope.bodies:
        side: bool | None = None
        turn = in_turn.index(role) if role in in_turn else None
        rank = -1
        for entry in body:
            if isinstance(entry, PlanSync):
                if entry.pipeline == pipeline.name:
                    side = entry.kind.producer if entry.kind.opens else None
                    rank += entry.kind.opens
                continue
            if side is None:
                continue
            for op in _placed_below(plan, entry.id, role):
                found = statement_access(statements[op])
                read = {region.buffer.name for region in found.reads}
                written = {region.buffer.name for region in found.writes}
                for name in sorted((read | written) & set(pipeline.buffers)):
                    reads, writes = name in read, name in written
                    yield Use(op, name, side, rank, order[op], reads, writes, turn)


def _placed_below(plan: Plan, name: str, role: str) -> Iterator[str]:
    scope = plan.scope(name)
    if scope is None:
        yield name
        return
    for entry in scope.body(role):
        if not isinstance(entry, PlanSync):
            yield from _placed_below(plan, entry.id, role)


def _row_divided(
    role: str, held: frozenset[str], statement: Stmt, buffer: str
) -> Iterator[Requirement]:
    """Roles that split rows may share a buffer without a pipeline where each keeps to its rows."""
    for op in ops((statement,)):
        if shares_meet(op, held, buffer):
            yield broken(
                f"role {role} touches rows of {buffer} in {op.id} that another role of its split "
                "touches too, and no pipeline orders them"
            )


def _party(plan: Plan, role: str) -> str:
    split = next((s for s in plan.splits if role in s.roles), None)
    return "+".join(split.roles) if split else role


def _on_chip(statement: Stmt) -> set[str]:
    found = statement_access(statement)
    return {
        region.buffer.name
        for region in (*found.reads, *found.writes)
        if not region.buffer.scope.private and region.buffer.scope != Scope.GLOBAL
    }


RULES = (
    Rule(
        "span-pairing",
        "safety",
        "acquire and commit, wait and release, alternate in one body and at one stage",
        "R-D1, R-D2, R-D3, R-H1",
        "close every span in the body that opens it, at the same stage",
        spans,
    ),
    Rule(
        "dependence-coverage",
        "safety",
        "every access of shared data that another role touches is inside a span of its pipeline",
        "R-D5, R-D6, R-D7, R-D8, R-D9, W9.1, W9.8, W11",
        "bind the buffer to a pipeline and move the op between its wait and its release",
        coverage,
    ),
    Rule(
        "ring-order",
        "safety",
        "a pipeline hands data over in the kernel's program order, each cycle written anew",
        "W9.3; the program order is the meaning",
        "put the role that comes first on the producer's side, and use depth 1 for carried data",
        ring_order,
    ),
)
