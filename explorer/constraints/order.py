"""The order of a role's own ops, and the copies of private buffers that stages ask for.

The kernel's program order is the meaning: an op may run earlier or later than the kernel puts it,
but it must read what it would read there.

Invariant: what counts as renewed here is what the passes give copies to.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.constraints.accesses import statement_access
from explorer.constraints.offsets import PlacedOp, body_stages, placed_ops, touched
from explorer.constraints.rule import Requirement, Rule, require
from explorer.constraints.spans import visits
from explorer.expr import Cond, Const, Expr, collect, evaluate
from explorer.ir.access import Access
from explorer.ir.nodes import Group, If, Loop, Region, Stmt, While, ops, walk
from explorer.machine import Machine
from explorer.schedule.copies import Touch, copies_needed, overwrites
from explorer.schedule.plan import Plan, PlanScope, PlanSync
from explorer.schedule.ws import WSScope


def _earlier(a: Expr, place_a: int, b: Expr, place_b: int) -> Cond:
    """Whether step a at its place in the body runs before step b at its place."""
    return a <= b if place_a < place_b else a < b


def program_order(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Within a role, conflicting ops keep the order of the kernel, whatever their stages.

    In the steps of a loop, iteration i of an op at stage s runs at step i + s. For each pair of
    accesses of one buffer, the order of program holds between equal and successive iterations;
    between successive ones not where every iteration renews the buffer, which then gets as many
    copies as it needs, and not for rings, whose slots are handed back.
    """
    statements = plan.statements
    order = {name: number for number, name in enumerate(statements)}
    rings = frozenset(name for pipeline in plan.pipelines for name in pipeline.buffers)
    for scope in plan.scopes:
        for role, body in scope.bodies:
            if not body:
                continue
            placed = list(placed_ops(plan, scope, role, statements, with_scopes=True))
            placed.sort(key=lambda op: order[op.statement.id])
            places = [op.place for op in placed]
            shifted = len({op.stage for op in placed}) > 1
            if not shifted and places == sorted(places):
                continue
            kept = renewed_buffers(plan, scope, role, placed) | rings if shifted else rings
            yield from _Order(plan, scope, role, kept).requirements(placed)


@frozen
class _Order:
    """The order of one role's ops in one scope; `kept` are buffers that outlive an iteration."""

    plan: Plan
    scope: PlanScope
    role: str
    kept: frozenset[str]

    def requirements(self, placed: list[PlacedOp]) -> Iterator[Requirement]:
        touches = [role_access(self.plan, self.role, op.statement) for op in placed]
        for index, first in enumerate(placed):
            for number in range(index + 1, len(placed)):
                found = conflicts(touches[index], touches[number])
                if found:
                    yield from self.pair(first, placed[number], found)

    def pair(
        self, first: PlacedOp, second: PlacedOp, found: dict[str, bool]
    ) -> Iterator[Requirement]:
        level = first.stage == second.stage
        now = {name for name, meet in found.items() if meet or not level}
        for earlier, later, turn, names in (
            (first, second, 0, now),
            (second, first, 1, set(found) - self.kept),
        ):
            if names:
                yield require(
                    _earlier(earlier.stage, earlier.place, later.stage + turn, later.place),
                    f"role {self.role} in {self.scope.id}: {later.statement.id} at stage {{b}} "
                    f"takes {min(names)} of another iteration than {earlier.statement.id} at "
                    "stage {a} left for it"
                    if first.stage != second.stage
                    else f"role {self.role} in {self.scope.id} runs {later.statement.id} before "
                    f"{earlier.statement.id}, but the kernel has it after, and both touch "
                    f"{min(names)}",
                    a=earlier.stage,
                    b=later.stage,
                )


def role_access(plan: Plan, role: str, statement: Stmt) -> Access:
    """What a role's share of a statement touches: of a scope, the ops that the role runs in it."""
    scope = plan.scope(statement.id)
    if scope is None or not isinstance(statement, Loop | While):
        return statement_access(statement)
    found = [
        role_access(plan, role, plan.kernel.statement(entry.id))
        for entry in scope.body(role)
        if not isinstance(entry, PlanSync) and entry.id != scope.id
    ]
    return Access(
        tuple(region for each in found for region in each.reads),
        tuple(region for each in found for region in each.writes),
    )


def conflicts(one: Access, other: Access) -> dict[str, bool]:
    """Buffers that both touch and one writes; whether they can meet in one iteration."""
    found: dict[str, bool] = {}
    pairs = [(a, b) for a in one.writes for b in (*other.writes, *other.reads)]
    for a, b in (*pairs, *((a, b) for a in one.reads for b in other.writes)):
        if a.buffer.name == b.buffer.name:
            found[a.buffer.name] = found.get(a.buffer.name, False) or not _apart(a, b)
    return found


def _apart(one: Region, other: Region) -> bool:
    """Whether two regions of one buffer are known to have no element in common."""
    for a, size_a, b, size_b in zip(one.start, one.extent, other.start, other.extent, strict=True):
        match collect(b - a), size_a, size_b:
            case Const(shift), Const(first), Const(second) if shift >= first or -shift >= second:
                return True
    return False


def renewed_buffers(
    plan: Plan, scope: PlanScope, role: str, placed: list[PlacedOp]
) -> frozenset[str]:
    """Private buffers that each iteration of a scope writes first, and that only it touches.

    `placed` are the role's ops there in program order.
    """
    private = {buffer.name for buffer in plan.kernel.buffers if buffer.scope.private}
    inside = private & {name for op in placed for name in touched(op.statement)}
    outside = {
        name
        for visit in visits(plan, role)
        if scope.id not in visit.path and plan.scope(visit.op) is None
        for name in touched(plan.kernel.statement(visit.op))
    }
    always = unconditional(plan, scope.id)
    found = set()
    for name in inside - outside:
        first = next(op.statement for op in placed if name in touched(op.statement))
        if first.id in always and renews(first, name):
            found.add(name)
    return frozenset(found)


def unconditional(plan: Plan, scope_id: str) -> frozenset[str]:
    """Ids of the statements that every iteration of a scope runs once, under no condition."""
    found = set()
    for statement, parents in walk(plan.kernel.body):
        blocks = [parent.id for parent in parents if not isinstance(parent, Group)]
        if (blocks[-1] if blocks else WSScope.ROOT) == scope_id:
            found.add(statement.id)
    return frozenset(found)


def renews(statement: Stmt, name: str) -> bool:
    """Whether a statement is an op that writes all of a buffer and reads none of it."""
    if isinstance(statement, Loop | While | If | Group):
        return False
    return overwrites(statement, name)


def private_copies(plan: Plan, role: str) -> dict[str, int]:
    """Private buffers of a role that need copies where its ops stand at several fixed stages."""
    found: dict[str, int] = {}
    for scope in plan.scopes:
        stages = body_stages(plan, scope, role) if scope.body(role) else ()
        if len(set(stages)) < 2 or not all(isinstance(stage, Const) for stage in stages):
            continue
        statements = plan.statements
        order = {name: number for number, name in enumerate(statements)}
        placed = list(placed_ops(plan, scope, role, statements, with_scopes=True))
        placed.sort(key=lambda op: order[op.statement.id])
        for name in renewed_buffers(plan, scope, role, placed):
            touches = [
                Touch(order[op.id], (evaluate(each.stage), each.place), overwrites(op, name))
                for each in placed
                for op in ops((each.statement,))
                if name in touched(op)
            ]
            found[name] = copies_needed(touches)
    return found


RULES = (
    Rule(
        "program-order",
        "safety",
        "within a role, ops that touch the same data keep the kernel's order, whatever the stages",
        "program order is the meaning; W12: an op shifted by s reads iteration i - s",
        "place the ops in the kernel's order, or bring them to one stage",
        program_order,
    ),
)
