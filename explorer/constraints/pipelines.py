"""Rules of pipelines, scopes and spans: form (R-B, R-C, R-D, R-E) and dependence coverage.

Spans are read off each role's body: an acquire or wait opens one, the matching commit or release
closes it, and the ops between run inside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.offsets import placed_ops
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.expr import Var, all_of, equal
from explorer.ir.access import elements, statement_access
from explorer.ir.nodes import Gemm, Group, If, Kernel, Loop, Map, Stmt, While, ops, walk
from explorer.machine import Machine, Scope
from explorer.schedule.plan import Plan, PlanOp, PlanScope, PlanSync
from explorer.schedule.ws import WSScope, WSSyncKind


def pipeline_form(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-B1, R-B2: unique names, at least one slot, on-chip buffers of the kernel."""
    names = [pipeline.name for pipeline in plan.pipelines]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield broken(f"two pipelines are named {name}")
    buffers = {buffer.name: buffer for buffer in plan.kernel.buffers}
    for pipeline in plan.pipelines:
        yield require(
            pipeline.depth >= 1, f"pipeline {pipeline.name} has depth {{d}}", d=pipeline.depth
        )
        for name in pipeline.buffers:
            buffer = buffers.get(name)
            if buffer is None:
                yield broken(f"pipeline {pipeline.name}: the kernel allocates no buffer {name}")
            elif buffer.scope.private or buffer.scope == Scope.GLOBAL:
                yield broken(
                    f"pipeline {pipeline.name}: {name} is in {buffer.scope}, not in shared or "
                    "tensor memory"
                )


def pipeline_scope(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-B3: known pipelines, each synchronized, and in one scope."""
    known = {pipeline.name for pipeline in plan.pipelines}
    used: dict[str, set[str]] = {}
    for scope in plan.scopes:
        for role, body in scope.bodies:
            for entry in body:
                if isinstance(entry, PlanSync):
                    used.setdefault(entry.pipeline, set()).add(scope.id)
                    if entry.pipeline not in known:
                        yield broken(
                            f"role {role} in {scope.id} names no pipeline: {entry.pipeline}"
                        )
    for name in sorted(known - set(used)):
        yield broken(f"pipeline {name} has no synchronization in any role")
    for name, scopes in sorted(used.items()):
        if len(scopes) > 1:
            yield broken(f"pipeline {name} is synchronized in {', '.join(sorted(scopes))}")


def sides(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-B5, R-D4: each side is one role's, or that of the roles that an extension names."""
    for pipeline in plan.pipelines:
        found: dict[bool, list[str]] = {True: [], False: []}
        for scope in plan.scopes:
            for role, body in scope.bodies:
                for entry in body:
                    if not isinstance(entry, PlanSync) or entry.pipeline != pipeline.name:
                        continue
                    if not entry.kind.opens and role not in found[entry.kind.producer]:
                        found[entry.kind.producer].append(role)
        for producer, roles in found.items():
            side = "commits" if producer else "releases"
            extension = next(
                (s for s in plan.sides if s.pipeline == pipeline.name and s.producer == producer),
                None,
            )
            if not roles:
                yield broken(f"no role {side} pipeline {pipeline.name}")
            elif extension is None and len(roles) > 1:
                yield broken(f"roles {', '.join(roles)} each {side[:-1]} pipeline {pipeline.name}")
            elif extension is not None and set(extension.roles) != set(roles):
                yield broken(
                    f"pipeline {pipeline.name}: the side names "
                    f"{', '.join(extension.roles)}, but {', '.join(roles)} {side[:-1]} it"
                )
        both = set(found[True]) & set(found[False])
        if both:
            yield broken(f"role {min(both)} is producer and consumer of {pipeline.name}")


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


def cycle_balance(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-E1: per iteration of a loop, as many commits as releases."""
    for scope in plan.scopes:
        for pipeline in plan.pipelines:
            commits = _count(scope, pipeline.name, WSSyncKind.PRODUCER_COMMIT)
            releases = _count(scope, pipeline.name, WSSyncKind.CONSUMER_RELEASE)
            if commits and releases and commits != releases:
                yield broken(
                    f"pipeline {pipeline.name} in {scope.id}: {max(commits)} commits and "
                    f"{max(releases)} releases an iteration"
                )


def _count(scope: PlanScope, pipeline: str, kind: WSSyncKind) -> set[int]:
    counts = {
        sum(
            isinstance(entry, PlanSync) and entry.pipeline == pipeline and entry.kind == kind
            for entry in body
        )
        for _, body in scope.bodies
    }
    return counts - {0}


def coverage(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-D5, R-D6: buffers that several roles touch are ordered by a pipeline, inside its spans."""
    statements = {statement.id: statement for statement, _ in walk(plan.kernel.body)}
    scope_of = {
        entry.pipeline: scope.id
        for scope in plan.scopes
        for _, body in scope.bodies
        for entry in body
        if isinstance(entry, PlanSync)
    }
    protected: dict[str, list[str]] = {}
    for pipeline in plan.pipelines:
        for buffer in pipeline.buffers:
            protected.setdefault(buffer, []).append(pipeline.name)
    touched: dict[str, set[str]] = {}
    for role in plan.roles:
        for op, inside, path in _visit(plan, role.name, WSScope.ROOT, frozenset(), ()):
            statement = statements.get(op)
            if statement is None or isinstance(statement, Loop | While):
                continue
            for buffer in sorted(_shared(statement)):
                touched.setdefault(buffer, set()).add(_party(plan, role.name))
                rings = [r for r in protected.get(buffer, []) if scope_of.get(r) in path]
                if rings and not set(rings) & inside:
                    yield broken(
                        f"role {role.name} touches {buffer} in {op} outside every span of "
                        f"{', '.join(rings)}"
                    )
                elif not rings and buffer in protected:
                    yield broken(
                        f"role {role.name} touches {buffer} in {op}, outside the scope of "
                        f"{', '.join(protected[buffer])}"
                    )
                elif not rings and _party(plan, role.name) != role.name:
                    yield from _row_divided(role.name, statement, buffer)
    for buffer, parties in sorted(touched.items()):
        if len(parties) > 1 and buffer not in protected:
            yield broken(
                f"roles {', '.join(sorted(parties))} touch {buffer}, which is in no pipeline"
            )


def _row_divided(role: str, statement: Stmt, buffer: str) -> Iterator[Requirement]:
    """Roles that split rows may share a buffer without a pipeline where each keeps to its rows."""
    for op in ops((statement,)):
        whole = isinstance(op, Gemm) and op.b.buffer.name == buffer
        if isinstance(op, Map):
            row = Var(op.axes[0][0])
            read = [e for store in op.stores for e in elements(store.value)]
            whole = any(e.buffer.name == buffer and e.indices[0] != row for e in read)
        if whole:
            yield broken(
                f"role {role} reads rows of {buffer} in {op.id} that another role of its split "
                "writes, and no pipeline orders them"
            )


def _party(plan: Plan, role: str) -> str:
    split = next((s for s in plan.splits if role in s.roles), None)
    return "+".join(split.roles) if split else role


def _shared(statement: Stmt) -> set[str]:
    found = statement_access(statement)
    return {
        region.buffer.name
        for region in (*found.reads, *found.writes)
        if not region.buffer.scope.private and region.buffer.scope != Scope.GLOBAL
    }


def _visit(
    plan: Plan, role: str, scope_id: str, inside: frozenset[str], path: tuple[str, ...]
) -> Iterator[tuple[str, frozenset[str], tuple[str, ...]]]:
    """Every op of a role in order, with the pipelines open around it and the scopes it is in."""
    scope = plan.scope(scope_id)
    if scope is None or scope_id in path:
        return
    here = (*path, scope_id)
    for entry in scope.body(role):
        if isinstance(entry, PlanSync):
            inside = inside | {entry.pipeline} if entry.kind.opens else inside - {entry.pipeline}
            continue
        yield entry.id, inside, here
        yield from _visit(plan, role, entry.id, inside, here)


def shared_ops(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-C5: an op of several roles writes only private storage, unless the roles split rows."""
    runners: dict[str, list[str]] = {}
    for scope in plan.scopes:
        for role, body in scope.bodies:
            for entry in body:
                if isinstance(entry, PlanOp) and plan.scope(entry.id) is None:
                    runners.setdefault(entry.id, []).append(role)
    statements = {statement.id: statement for statement, _ in walk(plan.kernel.body)}
    for op, roles in runners.items():
        if len({_party(plan, role) for role in roles}) < 2 or op not in statements:
            continue
        found = statement_access(statements[op])
        public = [r.buffer.name for r in found.writes if not r.buffer.scope.private]
        rings = {name for pipeline in plan.pipelines for name in pipeline.buffers}
        public += [r.buffer.name for r in found.reads if r.buffer.name in rings]
        if public:
            yield broken(f"roles {', '.join(roles)} each run {op}, which touches {public[0]}")


def stage_form(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-H3, R-H4 and the loop's budget: stages are iterations in flight, 0 <= stage."""
    loops = {s.id: s for s, _ in walk(plan.kernel.body) if isinstance(s, Loop)}
    for scope in plan.scopes:
        for role, body in scope.bodies:
            stages = tuple(dict.fromkeys(entry.stage for entry in body))
            yield require(
                all_of(*(stage >= 0 for stage in stages)),
                f"role {role} in {scope.id} has a negative stage",
            )
            if len(stages) < 2:
                continue
            loop = loops.get(scope.id)
            if loop is None:
                even = all_of(*(equal(stages[0], stage) for stage in stages[1:]))
                yield require(
                    even, f"role {role} has stage offsets in {scope.id}, not in a for loop"
                )
                continue
            budget = max(loop.num_stages, 1)
            for one in stages:
                yield require(
                    all_of(*(one - other < budget for other in stages)),
                    f"role {role} in {scope.id}: stage {{stage}} needs more iterations in flight "
                    f"than the loop's num_stages {budget}",
                    stage=one,
                )


def span_stages(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-H2: the spans that an op touches stand at one stage."""
    statements = {statement.id: statement for statement, _ in walk(plan.kernel.body)}
    for scope in plan.scopes:
        for role, _ in scope.bodies:
            for op in placed_ops(plan, scope, role, statements):
                stages = [span.stage for span in op.spans]
                yield require(
                    all_of(*(equal(stages[0], other) for other in stages[1:])),
                    f"role {role} runs {op.statement.id} inside spans of different stages: "
                    f"{', '.join(span.pipeline for span in op.spans)}",
                )


STRUCTURE = (
    Rule(
        "pipeline-form",
        "form",
        "pipelines have unique names, at least one slot, and on-chip buffers of this kernel",
        "R-B1, R-B2",
        "name a buffer that the kernel allocates in shared memory; use depth 1 or more",
        pipeline_form,
    ),
    Rule(
        "pipeline-scope",
        "form",
        "every pipeline is synchronized, in one scope",
        "R-B3",
        "move all entries of the pipeline into one loop",
        pipeline_scope,
    ),
    Rule(
        "op-placement",
        "form",
        "every statement is placed, once a role, in the scope that holds it",
        "R-C1, R-C2",
        "place every op id of the kernel in the scope of its loop",
        placement,
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
        "pipeline-sides",
        "safety",
        "each side of a pipeline is signalled by one role, or by all roles of its Side extension",
        "R-B5, R-D4",
        "make the roles one role with more warps, or declare a Side",
        sides,
    ),
    Rule(
        "shared-op",
        "safety",
        "an op that several roles run writes only private storage and reads no pipeline buffer",
        "R-C5",
        "give the op to one role, or split its rows",
        shared_ops,
    ),
    Rule(
        "span-pairing",
        "safety",
        "acquire and commit, wait and release, alternate in one body and at one stage",
        "R-D1, R-D2, R-D3, R-H1",
        "close every span in the body that opens it, at the same stage",
        spans,
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
        "cycle-balance",
        "safety",
        "each iteration commits and releases a pipeline equally often",
        "R-E1",
        "release once for each commit",
        cycle_balance,
    ),
    Rule(
        "dependence-coverage",
        "safety",
        "every access of shared data that another role touches is inside a span of its pipeline",
        "R-D5, R-D6, W9",
        "bind the buffer to a pipeline and move the op between its wait and its release",
        coverage,
    ),
    Rule(
        "stage-form",
        "form",
        "stages are iterations of a for loop, at least 0, and fit the loop's num_stages",
        "R-H3, R-H4; W12: a largest stage m needs m + 1 iterations in flight",
        "raise num_stages or lower the stage",
        stage_form,
    ),
)
