"""Pass: scope bodies become one tree of entries per role.

An `if` of the kernel around an op becomes a guard of that op alone, so that waits and signals stay
unconditional. A schedule without scopes, which one role may have, stands for the kernel as
written.

Invariant: after this pass every op of the kernel that a role runs is an Exec in its tree.
"""

from __future__ import annotations

from attrs import evolve, frozen

from explorer.errors import ScheduleError
from explorer.expr import TRUE, Cond, Truth, all_of
from explorer.ir.nodes import Block, Define, Group, If, Kernel, Loop, Stmt, While, walk
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft
from explorer.program.nodes import Exec, For, Repeat, Signal, Step, Wait, When
from explorer.schedule.ws import WSInstr, WSOpRef, WSSchedule, WSScope, WSSync


def place_ops(plan: Plan) -> Plan:
    """One RoleDraft a role, and the scope path of every pipeline."""
    ws = plan.schedule.ws
    if not ws.scopes:
        return _as_written(plan)
    placer = _Placer(ws, _places(plan.kernel), _scalars(plan.kernel))
    roles = []
    for role in ws.roles:
        tree = placer.nest(role.name, WSScope.ROOT, None, TRUE)
        roles.append(RoleDraft(role, tree))
    return evolve(plan, roles=tuple(roles), scopes=_scope_paths(tuple(roles)))


def _as_written(plan: Plan) -> Plan:
    ws = plan.schedule.ws
    if len(ws.roles) != 1 or ws.pipelines:
        raise ScheduleError(
            f"R-C1: {len(ws.roles)} roles and {len(ws.pipelines)} pipelines, but no scope; "
            "only one role without pipelines can go without"
        )
    body = tuple(Entry(expand(statement)) for statement in plan.kernel.body)
    return evolve(plan, roles=(RoleDraft(ws.roles[0], Nest(WSScope.ROOT, None, body)),))


def expand(statement: Stmt) -> tuple[Step, ...]:
    """The steps of a statement that is placed whole."""
    match statement:
        case Loop():
            stop = statement.start + statement.extent
            body = _expand_all(statement.body)
            unroll = statement.kind == "unrolled"
            return (For(statement.var, statement.start, stop, body, unroll),)
        case If():
            return (When(statement.cond, _expand_all(statement.body)),)
        case While():
            return (Repeat(statement.cond, _expand_all(statement.body)),)
        case Group():
            return _expand_all(statement.body)
        case _:
            return (Exec(statement),)


def _expand_all(body: tuple[Stmt, ...]) -> tuple[Step, ...]:
    return tuple(step for statement in body for step in expand(statement))


def _scalars(kernel: Kernel) -> frozenset[str]:
    """The names of all run-time integers of a kernel."""
    names = {*kernel.scalars, *(name for name, _ in kernel.grid)}
    for statement, _ in walk(kernel.body):
        if isinstance(statement, Loop):
            names.add(statement.var)
        elif isinstance(statement, Define):
            names.add(statement.name)
    return frozenset(names)


def _places(kernel: Kernel) -> dict[str, tuple[Stmt, tuple[Block, ...]]]:
    return {statement.id: (statement, parents) for statement, parents in walk(kernel.body)}


@frozen
class _Placer:
    ws: WSSchedule
    places: dict[str, tuple[Stmt, tuple[Block, ...]]]
    scalars: frozenset[str]

    def nest(self, role: str, scope_id: str, loop: Loop | While | None, guard: Cond) -> Nest:
        scope = self.ws.scope(scope_id)
        if scope is None:
            raise ScheduleError(f"R-C1: the schedule has no scope '{scope_id}'")
        items = tuple(self.item(role, scope_id, instr) for instr in scope.body(role))
        counter = self.counter(loop) if isinstance(loop, While) else ""
        return Nest(scope_id, loop, items, guard, counter=counter)

    def counter(self, loop: While) -> str:
        """A name for the trips of a while loop that no scalar of the kernel has."""
        name = f"{loop.id}_trips"
        while name in self.scalars:
            name += "_"
        return name

    def item(self, role: str, scope_id: str, instr: WSInstr) -> Item:
        if isinstance(instr, WSSync):
            return Entry((_sync_step(instr),), instr.stage)
        statement, guard = self.resolve(instr, scope_id)
        if self.ws.scope(instr.id) is None:
            steps = expand(statement)
            guarded = steps if isinstance(guard, Truth) else (When(guard, steps),)
            return Entry(guarded)
        if not isinstance(statement, Loop | While):
            raise ScheduleError(f"R-C3: scope '{instr.id}' is not a loop of the kernel")
        return self.nest(role, instr.id, statement, guard)

    def resolve(self, ref: WSOpRef, scope_id: str) -> tuple[Stmt, Cond]:
        """The statement of a reference and the conditions between it and its scope."""
        if ref.id not in self.places:
            raise ScheduleError(f"R-C2: the kernel has no op or loop '{ref.id}'")
        statement, parents = self.places[ref.id]
        guard: Cond = TRUE
        for parent in reversed(parents):
            if parent.id == scope_id:
                return statement, guard
            if not isinstance(parent, If):
                break
            guard = all_of(parent.cond, guard)
        else:
            if scope_id == WSScope.ROOT:
                return statement, guard
        raise ScheduleError(f"R-C2: '{ref.id}' is not directly in scope '{scope_id}'")


def _sync_step(sync: WSSync) -> Step:
    producer = sync.kind.producer
    if sync.kind.opens:
        return Wait(sync.pipeline, full=not producer)
    return Signal(sync.pipeline, full=producer)


def _scope_paths(roles: tuple[RoleDraft, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}

    def visit(nest: Nest, path: tuple[str, ...]) -> None:
        here = (*path, nest.scope)
        for item in nest.entries:
            if isinstance(item, Nest):
                visit(item, here)
                continue
            for step in item.steps:
                if not isinstance(step, Wait | Signal):
                    continue
                if found.setdefault(step.pipeline, here) != here:
                    raise ScheduleError(
                        f"R-B3: pipeline '{step.pipeline}' has entries in "
                        f"'{found[step.pipeline][-1]}' and in '{nest.scope}'; keep one scope"
                    )

    for role in roles:
        visit(role.tree, ())
    return tuple(found.items())
