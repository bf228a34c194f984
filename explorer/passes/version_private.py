"""Pass: private buffers get the versions that offsets inside a role ask for.

A value that an op writes at offset d and another reads at offset d + s lives s iterations; if the
writer comes round before the reader is done, the buffer needs one more copy. Copies are picked by
iteration, and since registers have no run-time index the loop is unrolled (`expand_stages`).

Invariant: only a buffer whose every iteration starts with a write of all of it, and which nothing
outside the loop touches, gets versions; anything else carries a value from iteration to iteration.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from explorer.expr import Const
from explorer.ir.access import access
from explorer.ir.nodes import Loop, Region, walk
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft, map_nests
from explorer.program.nodes import Exec
from explorer.program.steps import executed


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


@frozen
class _Visit:
    """When an iteration touches a buffer: its place in the kernel, and in the role's time."""

    kernel: int
    time: tuple[int, int]
    fresh: bool


def _versions(nest: Nest, local: set[str], order: dict[str, int]) -> tuple[tuple[str, int], ...]:
    if not isinstance(nest.loop, Loop) or not any(item.stage for item in nest.entries):
        return ()
    visits: dict[str, list[_Visit]] = {}
    for position, item in enumerate(nest.entries):
        for step in _executions(item):
            for name in _private_names(step):
                at = (item.stage or 0, position)
                visit = _Visit(order.get(step.op.id, 0), at, _overwrites(step, name))
                visits.setdefault(name, []).append(visit)
    found = ((name, _needed(each)) for name, each in visits.items() if name in local)
    return tuple((name, count) for name, count in found if count > 1)


def _needed(visits: list[_Visit]) -> int:
    """The smallest number of copies whose first writer comes round after the last access."""
    first = min(visits, key=lambda visit: visit.kernel)
    if not first.fresh:
        return 1
    last = max(visit.time for visit in visits)
    stage, position = first.time
    distance = last[0] - stage
    return max(1, distance + (1 if last[1] >= position else 0))


def _overwrites(step: Exec, name: str) -> bool:
    touched = access(step.op)
    if any(region.buffer.name == name for region in touched.reads):
        return False
    return any(region.buffer.name == name and _covers(region) for region in touched.writes)


def _covers(region: Region) -> bool:
    return region.extent == region.buffer.shape and all(s == Const(0) for s in region.start)


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
