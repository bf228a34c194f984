"""Pass: buffers get their versions, and every op the pipeline cycles of the slots that it touches.

A buffer has one ring level per pipeline that binds it, outermost scope first; its versions are the
product of the depths. An access under an open span uses the open cycle. A consumer that touches an
inner buffer before its own wait uses the cycle that it opens next; an access from outside the
pipeline's scope reads the last cycle and writes the next one.

Invariant: an op lists a Use for every level of every ring that it touches.
"""

from __future__ import annotations

from attrs import evolve, frozen

from explorer.errors import ScheduleError
from explorer.ir.access import access
from explorer.passes.plan import Entry, Item, Nest, Plan, nests
from explorer.program.nodes import Cycle, Exec, Ring, Signal, Step, Use, Wait
from explorer.program.steps import map_execs


def bind_rings(plan: Plan) -> Plan:
    """The rings of all on-chip shared buffers, and the uses of every op."""
    pipelines = plan.schedule.ws.pipelines
    rings = []
    for buffer in plan.kernel.buffers:
        if buffer.scope.private:
            continue
        bound = [p for p in pipelines if buffer.name in p.buffers]
        bound.sort(key=lambda p: len(_path(plan, p.name)))
        rings.append(Ring(buffer, tuple((p.name, p.depth) for p in bound)))
    plan = evolve(plan, rings=tuple(rings))
    return plan.map_roles(
        lambda role: evolve(role, tree=_Binder(plan, role.role.name, role.tree).bound())
    )


def _path(plan: Plan, pipeline: str) -> tuple[str, ...]:
    try:
        return plan.scope_path(pipeline)
    except KeyError:
        raise ScheduleError(f"R-B3: pipeline '{pipeline}' has no entries in any scope") from None


@frozen
class _Binder:
    plan: Plan
    role: str
    tree: Nest

    def bound(self) -> Nest:
        return self.nest(self.tree, frozenset(), ())

    def nest(self, nest: Nest, held: frozenset[str], path: tuple[str, ...]) -> Nest:
        here = (*path, nest.scope)
        items: list[Item] = []
        for item in nest.entries:
            if isinstance(item, Nest):
                items.append(self.nest(item, held, here))
                continue
            for step in item.steps:
                if isinstance(step, Wait):
                    held |= {step.pipeline}
                elif isinstance(step, Signal):
                    held -= {step.pipeline}
            items.append(evolve(item, steps=tuple(self.step(s, held, here) for s in item.steps)))
        return evolve(nest, entries=tuple(items))

    def step(self, step: Step, held: frozenset[str], path: tuple[str, ...]) -> Step:
        return map_execs(step, lambda execution: self.execution(execution, held, path))

    def execution(self, execution: Exec, held: frozenset[str], path: tuple[str, ...]) -> Exec:
        touched = access(execution.op)
        written = {region.buffer.name for region in touched.writes}
        names = {region.buffer.name for region in (*touched.reads, *touched.writes)}
        uses = []
        for ring in self.plan.rings:
            if ring.buffer.name not in names:
                continue
            for pipeline, _ in ring.levels:
                cycle = Cycle.OPEN
                if pipeline not in held:
                    cycle = self.outside(execution, pipeline, path, ring.buffer.name in written)
                uses.append(Use(ring.buffer.name, pipeline, cycle))
        return evolve(execution, uses=tuple(uses))

    def outside(
        self, execution: Exec, pipeline: str, path: tuple[str, ...], writes: bool
    ) -> Cycle:
        if not self.stands_on(pipeline):
            raise ScheduleError(
                f"R-D5: role '{self.role}' touches a buffer of pipeline '{pipeline}' in "
                f"'{execution.op.id}' without being on either side of it"
            )
        scope = self.plan.scope_path(pipeline)
        inside = path[: len(scope)] == scope
        return Cycle.NEXT if inside or writes else Cycle.LAST

    def stands_on(self, pipeline: str) -> bool:
        return any(
            isinstance(step, Wait) and step.pipeline == pipeline
            for nest in nests(self.tree)
            for item in nest.entries
            if isinstance(item, Entry)
            for step in item.steps
        )
