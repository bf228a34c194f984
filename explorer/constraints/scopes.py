"""Rules of scopes: what stands where (R-C1 to R-C5), and the stages of a body (R-H).

Invariant: `NAMES` and `STRUCTURE` rules read only names, so that every other one may presume that
names, scopes and places fit the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.accesses import statement_access
from explorer.constraints.graph import plan_turns
from explorer.constraints.offsets import body_stages, one_stage, placed_ops
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.expr import all_of, any_of, const, equal
from explorer.ir.nodes import Group, If, Kernel, Loop, While, walk
from explorer.machine import Machine
from explorer.schedule.plan import Plan, PlanOp
from explorer.schedule.ws import WSScope

# Prologue and epilogue have a step for each iteration in flight.
MAX_IN_FLIGHT = 64


def extension_names(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The extensions name roles, pipelines and ops that exist."""
    for name in plan.unknown:
        yield broken(name)


def scope_loops(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C3: a scope is a serial or unrolled loop of unit step, or a while loop."""
    blocks = plan.statements
    for scope in plan.scopes:
        statement = blocks.get(scope.id)
        if statement is not None and not isinstance(statement, Loop | While):
            kind = type(statement).__name__.lower()
            yield broken(f"scope {scope.id} is a {kind}, not a serial, unrolled or while loop")


def placement(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C1, R-C2: every statement is placed, once a role, in the scope that holds it."""
    ids = [scope.id for scope in plan.scopes]
    if WSScope.ROOT not in ids:
        yield broken(f"there is no root scope ({WSScope.ROOT})")
    for name in sorted({name for name in ids if ids.count(name) > 1}):
        yield broken(f"scope {name} is given twice")
    roles = {role.name for role in plan.roles}
    homes = scope_homes(plan.kernel)
    placed: set[str] = set()
    for scope in plan.scopes:
        if scope.id != WSScope.ROOT and scope.id not in homes:
            yield broken(f"the kernel has no loop {scope.id}")
        names = [role for role, _ in scope.bodies]
        for role in sorted({role for role in names if names.count(role) > 1}):
            yield broken(f"scope {scope.id} has two bodies for role {role}")
        for role, body in scope.bodies:
            if role not in roles:
                yield broken(f"scope {scope.id} has a body for the unknown role {role}")
            named = [entry.id for entry in body if isinstance(entry, PlanOp)]
            placed.update(named)
            for name in sorted({name for name in named if named.count(name) > 1}):
                yield broken(f"role {role} runs {name} twice in {scope.id}")
            for name in dict.fromkeys(named):
                home = homes.get(name)
                if home is None:
                    yield broken(f"the kernel has no statement {name}")
                elif home != scope.id:
                    yield broken(f"{name} stands in {home}, but role {role} runs it in {scope.id}")
    scoped = set(ids)
    for name, home in homes.items():
        if name not in placed and (home == WSScope.ROOT or home in scoped):
            yield broken(f"no role runs {name}")


def entered(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C1: a role with a body in a loop enters that loop from the scope around it."""
    for scope in plan.scopes:
        if scope.id == WSScope.ROOT:
            continue
        parents = [
            (parent.id, role)
            for parent in plan.scopes
            for role, body in parent.bodies
            if any(isinstance(entry, PlanOp) and entry.id == scope.id for entry in body)
        ]
        entering = {role for _, role in parents}
        for role, body in scope.bodies:
            if body and role not in entering:
                yield broken(f"role {role} has a body in {scope.id} but never enters it")
        if not parents:
            yield broken(f"no role enters scope {scope.id}")


def scope_homes(kernel: Kernel) -> dict[str, str]:
    """The scope that directly holds every op, group and loop; ifs are no scopes."""
    homes: dict[str, str] = {}
    for statement, parents in walk(kernel.body):
        if isinstance(statement, If) or any(isinstance(parent, Group) for parent in parents):
            continue
        loops = [parent.id for parent in parents if isinstance(parent, Loop | While)]
        homes[statement.id] = loops[-1] if loops else WSScope.ROOT
    return homes


def shared_ops(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C5: an op of several roles writes only private storage, unless each runs its share of it.

    Roles that split rows run a share of the rows, roles that take turns one of the iterations.
    """
    runners: dict[str, list[str]] = {}
    for scope in plan.scopes:
        for role, body in scope.bodies:
            for entry in body:
                if isinstance(entry, PlanOp) and plan.scope(entry.id) is None:
                    runners.setdefault(entry.id, []).append(role)
    statements = plan.statements
    rings = {name for pipeline in plan.pipelines for name in pipeline.buffers}
    for op, roles in runners.items():
        if len(roles) < 2 or op not in statements or _shares(plan, op, roles):
            continue
        found = statement_access(statements[op])
        public = [r.buffer.name for r in found.writes if not r.buffer.scope.private]
        public += [r.buffer.name for r in found.reads if r.buffer.name in rings]
        if public:
            yield broken(f"roles {', '.join(roles)} each run {op}, which touches {public[0]}")


def equal_shares(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Roles that split rows, or take turns, run the same ops: each has a share of all of them."""
    handed = plan_turns(plan)
    paths = plan.scope_paths
    for roles, over in (
        *((split.roles, "") for split in plan.splits),
        *((roles, over) for over, roles in handed.items()),
    ):
        for scope in plan.scopes:
            if over and over != scope.id and over not in paths.get(scope.id, ()):
                continue
            run = {
                role: {e.id for e in scope.body(role) if isinstance(e, PlanOp)} for role in roles
            }
            everything = set().union(*run.values())
            for role, names in run.items():
                for name in sorted(everything - names):
                    others = ", ".join(other for other in roles if name in run[other])
                    yield broken(f"role {role} runs no share of {name}, which {others} runs")


def _shares(plan: Plan, op: str, roles: list[str]) -> bool:
    """Whether the roles that run an op are those of one split, or take turns around the op."""
    if any(set(roles) <= set(split.roles) for split in plan.splits):
        return True
    handed = plan_turns(plan)
    around = {scope.id for scope in plan.scopes if _inside(plan, op, scope.id)} if handed else ()
    return any(set(roles) <= set(handed[scope]) for scope in around if scope in handed)


def _inside(plan: Plan, op: str, scope_id: str) -> bool:
    if scope_id == WSScope.ROOT:
        return True
    return any(
        statement.id == op and any(parent.id == scope_id for parent in parents)
        for statement, parents in walk(plan.kernel.body)
    )


def stage_form(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-H3, R-H4 and the loop's budget: stages are iterations in flight, 0 <= stage."""
    for scope in plan.scopes:
        loop = plan.statements.get(scope.id)
        for role, body in scope.bodies:
            yield require(
                all_of(*(stage >= 0 for stage in dict.fromkeys(entry.stage for entry in body))),
                f"role {role} in {scope.id} has a negative stage",
            )
            stages = tuple(dict.fromkeys(body_stages(plan, scope, role)))
            if len(stages) < 2:
                continue
            even = all_of(*(equal(stages[0], stage) for stage in stages[1:]))
            if not isinstance(loop, Loop | While):
                yield require(even, f"role {role} has stage offsets in {scope.id}, not in a loop")
                continue
            if isinstance(loop, Loop):
                yield require(
                    any_of(even, equal(loop.start, 0)),
                    f"role {role} has stage offsets in {scope.id}, which does not start at 0",
                )
            budget, limit = MAX_IN_FLIGHT, f"the {MAX_IN_FLIGHT} that are written out"
            if isinstance(loop, Loop) and loop.num_stages < MAX_IN_FLIGHT:
                budget = max(loop.num_stages, 1)
                limit = f"the loop's num_stages {budget}"
            for one in stages:
                yield require(
                    all_of(*(one - other < budget for other in stages)),
                    f"role {role} in {scope.id}: stage {{stage}} needs more iterations in flight "
                    f"than {limit}",
                    stage=one,
                )


def span_stages(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-H2: the spans that an op touches stand at one stage."""
    statements = plan.statements
    for scope in plan.scopes:
        for role, body in scope.bodies:
            if one_stage(body):
                continue
            for op in placed_ops(plan, scope, role, statements, True):
                stages = [span.stage for span in op.spans]
                own = scope.body(role)[op.place].stage
                stages += [own] if stages and own != const(0) else []
                if len(stages) < 2:
                    continue
                yield require(
                    all_of(*(equal(stages[0], other) for other in stages[1:])),
                    f"role {role} runs {op.statement.id} inside spans of different stages: "
                    f"{', '.join(span.pipeline for span in op.spans)}",
                )


NAMES = (
    Rule(
        "extension-names",
        "form",
        "extensions name roles, pipelines and ops that exist",
        "schedule.extensions",
        "correct the name, or drop the extension",
        extension_names,
    ),
)

STRUCTURE = (
    Rule(
        "op-placement",
        "form",
        "every statement is placed, once a role, in the scope that holds it",
        "R-C1, R-C2; R-C4: an `if` is no scope, its ops stand in the scope around it",
        "place every op id of the kernel in the scope of its loop",
        placement,
    ),
    Rule(
        "scope-loop",
        "form",
        "a scope is a serial or unrolled loop of unit step, or a while loop",
        "R-C3",
        "give the scope the id of a loop",
        scope_loops,
    ),
    Rule(
        "scope-entry",
        "form",
        "a role with a body in a loop enters the loop from the scope around it",
        "R-C1",
        "name the loop's id in the role's body of the outer scope",
        entered,
    ),
)

RULES = (
    Rule(
        "shared-op",
        "safety",
        "an op that several roles run writes only private storage and reads no pipeline buffer",
        "R-C5",
        "give the op to one role, or split its rows",
        shared_ops,
    ),
    Rule(
        "equal-shares",
        "safety",
        "roles that split rows or take turns run the same ops",
        "Extensions.splits",
        "place the op in each of the roles",
        equal_shares,
    ),
    Rule(
        "span-stages",
        "form",
        "the spans around an op stand at one stage",
        "R-H2",
        "bring the spans that the op touches to one stage",
        span_stages,
    ),
    Rule(
        "stage-form",
        "form",
        "stages are iterations of a for loop from 0 or of a while loop, at least 0, and fit the "
        "for loop's num_stages",
        "R-H3, R-H4; W12: a largest stage m needs m + 1 iterations in flight",
        "raise num_stages or lower the stage",
        stage_form,
    ),
)
