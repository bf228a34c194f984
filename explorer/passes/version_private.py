"""Pass: private buffers get the versions that offsets inside a role ask for.

How many it needs is said in `schedule.copies`. Copies are picked by iteration, and since registers
have no run-time index the loop is unrolled (`expand_stages`).

Invariant: only a buffer whose every iteration starts with a write of all of it, and which nothing
outside the loop touches, gets versions; anything else carries a value from iteration to iteration.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from explorer.ir.access import access
from explorer.ir.nodes import walk
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft, map_nests
from explorer.program.nodes import Exec
from explorer.program.steps import executed
from explorer.schedule.copies import Touch, copies_needed, overwrites


def version_private(plan: Plan) -> Plan:
    """Versions of private buffers, per loop with offsets and role."""
    order = {statement.id: at for at, (statement, _) in enumerate(walk(plan.kernel.body))}

    def change(role: RoleDraft) -> RoleDraft:
        def nest(each: Nest) -> Nest:
            inside = _touched(each)
            whole_role = _touched(role.tree)
            local = {n for n, count in inside.items() if whole_role[n] == count}
            return evolve(each, versions=_versions(each, local, order))

        tree = map_nests(role.tree, nest)
        extra = tuple(
            evolve(buffer, name=version_name(buffer.name, version))
            for buffer in role.private
            for version in range(1, _copies(tree, buffer.name))
        )
        return evolve(role, tree=tree, private=(*role.private, *extra))

    return plan.map_roles(change)


def version_name(buffer: str, version: int) -> str:
    """The name of a copy of a private buffer; the first keeps the buffer's own."""
    return f"{buffer}_v{version}" if version else buffer


def _versions(nest: Nest, local: set[str], order: dict[str, int]) -> tuple[tuple[str, int], ...]:
    if nest.loop is None or not any(item.stage for item in nest.entries):
        return ()
    visits: dict[str, list[Touch]] = {}
    for position, item in enumerate(nest.entries):
        # Only what every iteration runs, under no condition, renews a buffer.
        always = item.steps if isinstance(item, Entry) else ()
        for step in _executions(item):
            for name in _private_names(step):
                at = (item.stage or 0, position)
                fresh = step in always and overwrites(step.op, name)
                touch = Touch(order.get(step.op.id, 0), at, fresh)
                visits.setdefault(name, []).append(touch)
    found = ((name, copies_needed(each)) for name, each in visits.items() if name in local)
    return tuple((name, count) for name, count in found if count > 1)


def _private_names(step: Exec) -> set[str]:
    touched = access(step.op)
    regions = (*touched.reads, *touched.writes)
    return {region.buffer.name for region in regions if region.buffer.scope.private}


def _executions(item: Item) -> Iterator[Exec]:
    if isinstance(item, Entry):
        yield from executed(item.steps)
    else:
        for inner in item.entries:
            yield from _executions(inner)
        yield from executed(item.after)


def _touched(nest: Nest) -> dict[str, int]:
    counts: dict[str, int] = {}
    for step in _executions(nest):
        for name in _private_names(step):
            counts[name] = counts.get(name, 0) + 1
    return counts


def _copies(nest: Nest, name: str) -> int:
    inner = (_copies(item, name) for item in nest.entries if isinstance(item, Nest))
    return max([dict(nest.versions).get(name, 1), *inner])
