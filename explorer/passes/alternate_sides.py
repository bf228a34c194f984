"""Pass: roles on an alternating side run every n-th iteration and pass over the others' cycles.

Iteration i of the pipeline's loop belongs to role i mod n of the side. The iterations are counted
from the loop's start, so that a trip count that n does not divide leaves all roles at one cycle.
"""

from __future__ import annotations

from attrs import evolve

from explorer.errors import ScheduleError
from explorer.expr import Cond, Const, Var, equal, negate
from explorer.ir.nodes import Loop
from explorer.passes.plan import Item, Nest, Plan, RoleDraft, map_nests
from explorer.program.nodes import Skip, Step, Wait, When
from explorer.schedule.extensions import Side, SideMode


def alternate_sides(plan: Plan) -> Plan:
    """Guards for the owner of an iteration, skips for the rest."""
    alternating = tuple(
        side for side in plan.schedule.extensions.sides if side.mode == SideMode.ALTERNATING
    )

    def change(role: RoleDraft) -> RoleDraft:
        name = role.role.name
        mine = tuple(side for side in alternating if name in side.roles)
        for side in mine:
            if len(plan.scope_path(side.pipeline)) < 2:
                raise ScheduleError(
                    f"alternating side of '{side.pipeline}': its scope is the root, which has no "
                    "iterations to hand out; place it in a loop"
                )

        def nest(each: Nest) -> Nest:
            here = tuple(s for s in mine if plan.scope_path(s.pipeline)[-1] == each.scope)
            return _alternate(each, here, name) if here else each

        return evolve(role, tree=map_nests(role.tree, nest))

    return plan.map_roles(change)


def _alternate(nest: Nest, sides: tuple[Side, ...], role: str) -> Nest:
    orders = {side.roles for side in sides}
    if len(orders) > 1 or not isinstance(nest.loop, Loop):
        names = ", ".join(side.pipeline for side in sides)
        raise ScheduleError(
            f"alternating sides of {names}: one counted loop must hand its iterations out to the "
            "same roles in the same order"
        )
    roles = sides[0].roles
    owner = equal((Var(nest.loop.var) - nest.loop.start) % len(roles), roles.index(role))
    pipelines = {side.pipeline for side in sides}
    items = tuple(_own(item, owner, pipelines) for item in nest.entries)
    return evolve(nest, entries=items)


def _own(item: Item, owner: Cond, pipelines: set[str]) -> Item:
    if isinstance(item, Nest):
        return evolve(item, guard=owner & item.guard)
    passed: tuple[Step, ...] = tuple(
        Skip(step.pipeline, step.full, Const(1))
        for step in item.steps
        if isinstance(step, Wait) and step.pipeline in pipelines
    )
    others = (When(negate(owner), passed),) if passed else ()
    return evolve(item, steps=(When(owner, item.steps), *others))
