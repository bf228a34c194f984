"""Rules of pipelines: names, buffers, sides, scopes and cycles (R-B, R-D4, R-E)."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.graph import plan_turns
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.expr import all_of, equal, truth
from explorer.machine import Machine, Scope
from explorer.schedule.plan import Plan, PlanScope, PlanSync
from explorer.schedule.turns import alternating, handed_out
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


def cycle_balance(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-E1: per iteration of a scope (per round, where roles take turns), commits == releases.

    A root that runs once may leave slots committed, as many as the ring has.
    """
    handed = plan_turns(plan)
    for scope in plan.scopes:
        for pipeline in plan.pipelines:
            sides = [
                _cycles(plan, scope, pipeline.name, producer, handed.get(scope.id, ()))
                for producer in (True, False)
            ]
            if not all(sides) or len(set.union(*sides)) == 1:
                continue
            made, freed = max(sides[0]), max(sides[1])
            once = scope.id == WSScope.ROOT and machine.registers is not None
            alone = all(len(side) == 1 for side in sides) and freed <= made
            yield require(
                all_of(
                    truth(once and alone), equal(plan.blocks, 0), made - freed <= pipeline.depth
                ),
                f"pipeline {pipeline.name} in {scope.id}: {made} commits and {freed} releases "
                + ("an iteration" if scope.id not in handed else "a round of turns"),
            )


def _cycles(
    plan: Plan, scope: PlanScope, pipeline: str, producer: bool, in_turn: tuple[str, ...]
) -> set[int]:
    """How many cycles each role of a side closes a round; on an alternating side, all of them."""
    kind = WSSyncKind.PRODUCER_COMMIT if producer else WSSyncKind.CONSUMER_RELEASE
    counts = {
        role: sum(
            isinstance(entry, PlanSync) and (entry.pipeline, entry.kind) == (pipeline, kind)
            for entry in body
        )
        for role, body in scope.bodies
    }
    counts = {role: count for role, count in counts.items() if count}
    if not counts:
        return set()
    side = next(
        (s for s in alternating(plan.sides) if (s.pipeline, s.producer) == (pipeline, producer)),
        None,
    )
    if side and handed_out(side, {pipeline: scope.id}) == scope.id:
        equal_shares = len(set(counts.values())) == 1
        return {sum(counts.values())} if equal_shares else {*counts.values(), -1}
    rounds = max(len(in_turn), 1)
    return {count * (1 if role in in_turn else rounds) for role, count in counts.items()}


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
)

RULES = (
    Rule(
        "pipeline-sides",
        "form",
        "each side of a pipeline is signalled by one role, or by all roles of its Side extension",
        "R-B5, R-D4",
        "make the roles one role with more warps, or declare a Side",
        sides,
    ),
    Rule(
        "cycle-balance",
        "safety",
        "each iteration commits and releases a pipeline equally often",
        "R-E1",
        "release once for each commit",
        cycle_balance,
    ),
)
