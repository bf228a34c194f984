"""Pass: roles that take turns run every n-th iteration and pass over the others' cycles.

The iterations of one scope are handed out: of the pipeline's own loop, of a loop around it, or the
tiles of a persistent block. They are counted from the loop's start (tiles from the block's first),
so that a trip count that n does not divide leaves all roles at one cycle.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from explorer.errors import ScheduleError
from explorer.expr import Cond, Const, Expr, Var, equal, negate
from explorer.ir.nodes import Loop, free_vars
from explorer.passes.plan import Entry, Nest, Plan, RoleDraft, map_nests
from explorer.program.launch import TILE
from explorer.program.nodes import For, Skip, Step, Wait
from explorer.program.steps import when
from explorer.schedule.extensions import Side
from explorer.schedule.turns import alternating, handed_out
from explorer.schedule.ws import WSScope


def alternate_sides(plan: Plan) -> Plan:
    """The owner of every iteration that is handed out, and the skips of the other roles."""
    sides = alternating(plan.schedule.extensions.sides)
    scopes = {pipeline: path[-1] for pipeline, path in plan.scopes}

    def change(role: RoleDraft) -> RoleDraft:
        mine = tuple(side for side in sides if role.role.name in side.roles)

        def nest(each: Nest) -> Nest:
            here = tuple(side for side in mine if handed_out(side, scopes) == each.scope)
            return _take_turns(plan, each, here, role.role.name) if here else each

        return evolve(role, tree=map_nests(role.tree, nest))

    return plan.map_roles(change)


def _take_turns(plan: Plan, nest: Nest, sides: tuple[Side, ...], role: str) -> Nest:
    names = ", ".join(side.pipeline for side in sides)
    if len({side.roles for side in sides}) > 1:
        raise ScheduleError(
            f"turns: the alternating sides of {names} hand the iterations of '{nest.scope}' out "
            "to different roles or in different orders"
        )
    roles = sides[0].roles
    owner = equal(_ordinal(plan, nest, names) % len(roles), roles.index(role))
    pipelines = frozenset(side.pipeline for side in sides)
    return evolve(nest, owner=owner, passed=tuple(_passed(nest, pipelines)))


def _ordinal(plan: Plan, nest: Nest, names: str) -> Expr:
    """The number of the iteration, counted from 0."""
    if isinstance(nest.loop, Loop):
        return Var(nest.loop.var) - nest.loop.start
    blocks = plan.schedule.extensions.launch.blocks
    if nest.scope == WSScope.ROOT and blocks:
        return TILE // blocks
    raise ScheduleError(
        f"turns: the alternating sides of {names} hand out '{nest.scope}', which is neither a "
        "counted loop nor the root of a persistent launch"
    )


def _passed(nest: Nest, pipelines: frozenset[str]) -> Iterator[Step]:
    """What passes over the cycles of one iteration; loops of equal trips are multiplied out."""
    counts: dict[tuple[str, bool], int] = {}
    for item in nest.entries:
        if isinstance(item, Entry):
            for step in item.steps:
                if isinstance(step, Wait) and step.pipeline in pipelines:
                    key = step.pipeline, step.full
                    counts[key] = counts.get(key, 0) + 1
            continue
        inner = tuple(_passed(item, pipelines))
        if inner:
            yield from when(item.guard, _repeated(item, inner))
    for (pipeline, full), count in counts.items():
        yield Skip(pipeline, full, Const(count))


def _repeated(nest: Nest, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    loop = nest.loop
    if not isinstance(loop, Loop):
        raise ScheduleError(f"turns: the cycles of '{nest.scope}' cannot be counted ahead of it")
    skips = [step for step in steps if isinstance(step, Skip)]
    if len(skips) == len(steps) and not any(loop.var in free_vars(s.cycles) for s in skips):
        return tuple(evolve(skip, cycles=skip.cycles * loop.extent) for skip in skips)
    return (For(loop.var, loop.start, loop.start + loop.extent, steps),)


def in_turn(nest: Nest, body: tuple[Step, ...]) -> tuple[Step, ...]:
    """One iteration of a scope: its body where the role owns it, else the skips."""
    others: Cond = negate(nest.owner)
    return (*when(nest.owner, body), *when(others, nest.passed))
