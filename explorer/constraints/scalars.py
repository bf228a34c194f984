"""Rules of scalars: what roles must agree on, since each keeps its own.

A scalar is computed by every role that uses it, from the same data and by the same definitions, so
that all roles run the same iterations and take the same branches.

Invariant: a schedule that passes gives every role, wherever it uses a scalar, the value that the
kernel has there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from attrs import Factory, frozen

from explorer.constraints.accesses import statement_access
from explorer.constraints.offsets import body_stages, one_stage
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.constraints.spans import Visit, visits
from explorer.expr import Expr, Var, const, equal, minimum, symbols
from explorer.ir.access import elements
from explorer.ir.nodes import (
    Block,
    Define,
    Fill,
    Gemm,
    Group,
    If,
    Loop,
    Map,
    Stmt,
    Value,
    While,
    free_vars,
    ops,
    walk,
)
from explorer.ir.values import value_exprs
from explorer.machine import Machine
from explorer.schedule.plan import Plan, PlanScope, PlanSync

# By scalar, the definitions that may have given its value.
Reaching = Mapping[str, frozenset[str]]


def uniform_guards(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C7: a guard reads scalars that no role can change, and no buffer of a pipeline."""
    written = {
        region.buffer.name
        for region in statement_access(_body(plan)).writes
        if not region.buffer.scope.private
    }
    rings = {name for pipeline in plan.pipelines for name in pipeline.buffers}
    sources = _scalar_sources(plan)
    for statement, _ in walk(plan.kernel.body):
        if not isinstance(statement, If | While | Loop):
            continue
        for scalar in sorted(_guard_scalars(statement) & set(sources)):
            for buffer in sorted(sources[scalar] & (written | rings)):
                yield broken(
                    f"{statement.id} depends on {scalar}, read from {buffer}, which the kernel "
                    "writes: roles could disagree on it"
                )


def _scalar_sources(plan: Plan) -> dict[str, set[str]]:
    """The buffers that each scalar depends on, through other scalars too."""
    found: dict[str, set[str]] = {}
    uses: dict[str, set[str]] = {}
    for statement, _ in walk(plan.kernel.body):
        if isinstance(statement, Define):
            read = found.setdefault(statement.name, set())
            read |= {element.buffer.name for element in elements(statement.value)}
            uses.setdefault(statement.name, set()).update(_value_vars(statement.value))
    for _ in found:
        for name, others in uses.items():
            for other in others & set(found):
                found[name] |= found[other]
    return found


def _guard_scalars(block: Block) -> frozenset[str]:
    if isinstance(block, Loop):
        return free_vars(block.start) | free_vars(block.extent)
    return free_vars(block.cond) if isinstance(block, If | While) else frozenset()


def _body(plan: Plan) -> Stmt:
    return If("kernel", Var("kernel") < 1, plan.kernel.body)


def scalar_definitions(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C9: a role that uses a scalar has run its definition earlier, under no more guards, and
    at the same stage; it runs every definition that may have given the value."""
    defines = {s.name: s.id for s, _ in walk(plan.kernel.body) if isinstance(s, Define)}
    if not defines:
        return
    places = {s.id: (s, parents) for s, parents in walk(plan.kernel.body)}
    reaching: dict[str, Reaching] = {}
    _flow(plan.kernel.body, {}, reaching)
    for role in plan.roles:
        order = tuple(visit for visit in visits(plan, role.name) if visit.op in places)
        scalars = _Scalars(plan, role.name, defines, places, reaching)
        scalars.ran.update(d.id for visit in order for d, _ in scalars.definitions(visit))
        for visit in order:
            yield from scalars.visit(visit)
        for scope in plan.scopes:
            if not one_stage(scope.body(role.name)):
                yield from scalars.carried(scope, order)


@frozen
class _Definition:
    """Where a role ran the definition of a scalar."""

    op: str
    scope: str
    guards: frozenset[str]


@frozen
class _Scalars:
    plan: Plan
    role: str
    defines: dict[str, str]
    places: dict[str, tuple[Stmt, tuple[Block, ...]]]
    reaching: Mapping[str, Reaching]
    ran: set[str] = Factory(set)
    seen: dict[str, _Definition] = Factory(dict)

    def visit(self, visit: Visit) -> Iterator[Requirement]:
        _, parents = self.places[visit.op]
        guards = frozenset(parent.id for parent in parents if isinstance(parent, If))
        for scalar in self.needed(visit):
            yield from self.use(scalar, visit, guards)
        for each, above in self.definitions(visit):
            inner = frozenset(p.id for p in (*parents, *above) if isinstance(p, If))
            self.seen[each.name] = _Definition(visit.op, visit.path[-1], inner)

    def needed(self, visit: Visit) -> list[str]:
        statement, parents = self.places[visit.op]
        guards = (_guard_scalars(parent) for parent in parents if isinstance(parent, If))
        return sorted(set().union(*guards, _used_scalars(statement)) & set(self.defines))

    def definitions(self, visit: Visit) -> Iterator[tuple[Define, tuple[Block, ...]]]:
        if self.plan.scope(visit.op) is None:
            for each, above in walk((self.places[visit.op][0],)):
                if isinstance(each, Define):
                    yield each, above

    def carried(self, scope: PlanScope, order: tuple[Visit, ...]) -> Iterator[Requirement]:
        """A scalar that a shifted loop changes is used and changed at one stage.

        Otherwise a use would see the value of another iteration. The condition of a while loop
        belongs to the smallest stage, that of the iteration which it begins.
        """
        made: list[tuple[str, str, Expr]] = []
        uses: list[tuple[str, str, Expr]] = []
        loop = self.plan.statements.get(scope.id)
        if isinstance(loop, While):
            smallest = minimum(*body_stages(self.plan, scope, self.role))
            uses += [(name, scope.id, smallest) for name in sorted(free_vars(loop.cond))]
        for visit in order:
            if scope.id in visit.path:
                inside = (*visit.path, visit.op)
                at = self.stage(scope.id, inside[visit.path.index(scope.id) + 1])
                made += [(each.name, visit.op, at) for each, _ in self.definitions(visit)]
                uses += [(name, visit.op, at) for name in self.needed(visit)]
        for (scalar, op, stage), (used, user, at) in product(made, (*uses, *made)):
            if scalar == used:
                yield require(
                    equal(at, stage),
                    f"role {self.role} uses the scalar {scalar} in {user} at stage {{b}}, but "
                    f"changes it in {op} at stage {{a}}",
                    a=stage,
                    b=at,
                )

    def use(self, scalar: str, visit: Visit, guards: frozenset[str]) -> Iterator[Requirement]:
        made = self.seen.get(scalar)
        what = f"role {self.role} uses the scalar {scalar} in {visit.op}"
        missed = sorted(self.sources(visit, scalar) - self.ran)
        if made is None:
            yield broken(f"{what} without having run {self.defines[scalar]}")
        elif missed:
            yield broken(f"{what} and does not run {missed[0]}, which changes it")
        elif made.guards - guards:
            yield broken(f"{what}, but has run {made.op} only under {min(made.guards - guards)}")
        elif made.scope in visit.path:
            inner = (*visit.path, visit.op)
            child = inner[visit.path.index(made.scope) + 1]
            a, b = (self.stage(made.scope, name) for name in (made.op, child))
            yield require(
                equal(a, b),
                f"{what} at stage {{b}}, but runs {made.op} at stage {{a}}",
                a=a,
                b=b,
            )

    def sources(self, visit: Visit, scalar: str) -> frozenset[str]:
        """The definitions that may have given a scalar the value that an op sees."""
        inside = [visit.op]
        if self.plan.scope(visit.op) is None:
            inside = [each.id for each, _ in walk((self.places[visit.op][0],))]
        found = (self.reaching[name].get(scalar, frozenset()) for name in inside)
        return frozenset().union(*found)

    def stage(self, scope_id: str, name: str) -> Expr:
        scope = self.plan.scope(scope_id)
        assert scope is not None
        stages = body_stages(self.plan, scope, self.role)
        for entry, stage in zip(scope.body(self.role), stages, strict=True):
            if not isinstance(entry, PlanSync) and entry.id == name:
                return stage
        return const(0)


def _flow(
    body: tuple[Stmt, ...], before: Reaching, found: dict[str, Reaching]
) -> dict[str, frozenset[str]]:
    """The definitions behind a body; `found` gets those in front of each statement."""
    state = dict(before)
    for statement in body:
        if isinstance(statement, Loop | While):
            # What an iteration leaves reaches the next one, and the loop's own condition.
            for _ in range(2):
                state = _either(state, _flow(statement.body, state, found))
        found[statement.id] = _either(found.get(statement.id, {}), state)
        if isinstance(statement, If):
            state = _either(state, _flow(statement.body, state, found))
        elif isinstance(statement, Group):
            state = _flow(statement.body, state, found)
        elif isinstance(statement, Define):
            state[statement.name] = frozenset((statement.id,))
    return state


def _either(one: Reaching, other: Reaching) -> dict[str, frozenset[str]]:
    empty: frozenset[str] = frozenset()
    return {name: one.get(name, empty) | other.get(name, empty) for name in {*one, *other}}


def _used_scalars(statement: Stmt) -> set[str]:
    """The run-time integers in a statement's own bounds, regions, values and conditions."""
    if isinstance(statement, Loop | While | If):
        return set(_guard_scalars(statement))
    found = statement_access(statement)
    exprs = [
        e for region in (*found.reads, *found.writes) for e in (*region.start, *region.extent)
    ]
    used = {symbol.name for expr in exprs for symbol in symbols(expr) if isinstance(symbol, Var)}
    for op in ops((statement,)):
        match op:
            case Define() | Fill():
                used |= _value_vars(op.value)
            case Gemm():
                used |= free_vars(op.clear_accum)
            case Map():
                for store, guard in zip(op.stores, op.guards, strict=True):
                    used |= _value_vars(store.value) | free_vars(guard)
    return used


def _value_vars(value: Value) -> set[str]:
    return {name for expr in value_exprs(value) for name in free_vars(expr)}


RULES = (
    Rule(
        "uniform-guard",
        "safety",
        "guards and loop bounds depend on data that no op writes",
        "R-C7, W9.5",
        "read the scalar from a tensor that the kernel does not write",
        uniform_guards,
    ),
    Rule(
        "scalar-definition",
        "safety",
        "a role that uses a scalar has run its definitions",
        "R-C9",
        "place the defining ops in every role that uses it, before the use",
        scalar_definitions,
    ),
)
