"""Pass: roles that split the same ops by rows get their share of every op and fragment."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from explorer.ir.access import access
from explorer.ir.nodes import Buffer, Op
from explorer.ir.transforms import row_fragments, take_buffer, take_rows
from explorer.passes.plan import Entry, Plan, RoleDraft, map_steps, nests
from explorer.program.steps import executed, map_ops


def split_rows(plan: Plan) -> Plan:
    """Share i of n for the i-th role of a split; the private buffers of every role."""
    return plan.map_roles(lambda role: _share(plan, role))


def _share(plan: Plan, draft: RoleDraft) -> RoleDraft:
    ops = tuple(_ops(draft))
    private = {b.name: b for op in ops for b in _private(op)}
    split = plan.schedule.extensions.split_of(draft.role.name)
    if split is None:
        return evolve(draft, private=tuple(private.values()))
    index, count = split.roles.index(draft.role.name), len(split.roles)
    held = row_fragments(ops)
    tree = map_steps(
        draft.tree, lambda step: map_ops(step, lambda op: take_rows(op, held, index, count))
    )
    buffers = tuple(
        take_buffer(buffer, count) if name in held else buffer for name, buffer in private.items()
    )
    return evolve(draft, tree=tree, private=buffers, share=(index, count))


def _ops(draft: RoleDraft) -> Iterator[Op]:
    for nest in nests(draft.tree):
        for item in nest.entries:
            if isinstance(item, Entry):
                yield from (execution.op for execution in executed(item.steps))


def _private(op: Op) -> Iterator[Buffer]:
    touched = access(op)
    for region in (*touched.reads, *touched.writes):
        if region.buffer.scope.private:
            yield region.buffer
