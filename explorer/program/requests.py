"""What the buffers of a program ask of placement: sizes, alignments, lifetimes, and who may share.

Barriers are held throughout.

Invariant: a pair that is not listed in `Requests.sharing` is never given a common byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from attrs import frozen

from explorer.ir.nodes import Copy
from explorer.machine import Machine, Scope
from explorer.memory.footprint import (
    SlotForm,
    address_form,
    barriers_form,
    slot_form,
    turned_operands,
)
from explorer.memory.placement import ALWAYS, BARRIERS, TENSOR_ADDRESS, Lifetime
from explorer.memory.places import pool_regions
from explorer.program.lifetimes import lifetimes
from explorer.program.nodes import Exec, Program
from explorer.program.sharing import Sharing, may_share
from explorer.program.steps import executed
from explorer.schedule.extensions import CopyRoute


@frozen
class Request:
    """One buffer, all versions, or the barriers.

    `fixed` is the offset that the kernel's author chose, in bytes; others are free to lie anywhere
    behind all pools.
    """

    name: str
    scope: Scope
    form: SlotForm
    versions: int
    lifetime: Lifetime
    fixed: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes from the first version to the end of the last."""
        return self.form.pitch_bytes * (self.versions - 1) + self.form.version_bytes


@frozen
class Requests:
    """All requests of a program, and the pairs (names in order of request) that may share.

    `pooled` gives, for each scope with pools, the bytes that they take.
    """

    items: tuple[Request, ...]
    sharing: tuple[tuple[str, str, Sharing], ...]
    pooled: tuple[tuple[Scope, int], ...] = ()

    def pooled_bytes(self, scope: Scope) -> int:
        """The bytes of a scope that pools take; 0 without any."""
        return dict(self.pooled).get(scope, 0)


def requests_of(program: Program, machine: Machine) -> Requests:
    """What a program asks of placement on a machine."""
    times = lifetimes(program)
    forms = forms_of(program, machine)
    pools = pool_regions(program.pools, machine)
    # Bytes that a pool divides are counted there, and what nothing touches there takes none.
    divided = {pool.base for pool in program.pools}
    divided |= {p.buffer for pool in program.pools for p in pool.places if not p.permanent}
    items = [
        Request(
            ring.buffer.name,
            ring.buffer.scope,
            forms[ring.buffer.name],
            ring.versions,
            times.get(ring.buffer.name, ALWAYS),
            pools.offset(ring.buffer.name),
        )
        for ring in program.rings
        if ring.buffer.name in times or ring.buffer.name not in divided
    ]
    depths = [barriers.depth for barriers in program.barriers]
    if depths:
        form = barriers_form(depths, machine)
        items.append(Request(BARRIERS, Scope.SHARED, form, 1, ALWAYS))
    if any(item.scope == Scope.TMEM and item.fixed is None for item in items):
        items.append(Request(TENSOR_ADDRESS, Scope.SHARED, address_form(), 1, ALWAYS))
    sharing = []
    for one, other in combinations(items, 2):
        held = ALWAYS in (one.lifetime, other.lifetime)
        if held or one.scope != other.scope or not one.size_bytes or not other.size_bytes:
            continue
        found = may_share(program, machine, one.name, other.name, _rows_alike(one, other))
        if found is not None:
            sharing.append((one.name, other.name, found))
    return Requests(tuple(items), tuple(sharing), pools.sizes)


def _rows_alike(one: Request, other: Request) -> bool:
    """Whether row r of either lies at the same offset, so that rows can follow each other."""
    shapes = {(each.form.rows, each.form.row_bytes, each.form.boxes) for each in (one, other)}
    return len(shapes) == 1 and one.form.row_bytes > 0 and one.versions == other.versions == 1


def forms_of(program: Program, machine: Machine) -> dict[str, SlotForm]:
    """How a version of each buffer lies."""
    steps = [step for role in program.roles for step in executed(role.body)]
    turned = turned_operands([step.op for step in steps], machine)
    bulk = frozenset(name for step in steps for name in _bulk_tiles(step))
    return {
        ring.buffer.name: slot_form(
            ring.buffer,
            machine,
            turned,
            ring.buffer.name in bulk,
            program.fixed_place(ring.buffer.name),
        )
        for ring in program.rings
    }


def _bulk_tiles(step: Exec) -> Iterator[str]:
    """The tiles that a copy engine may fill or drain."""
    if isinstance(step.op, Copy):
        if step.route == CopyRoute.BULK:
            yield step.op.dst.buffer.name
        if step.op.dst.buffer.scope == Scope.GLOBAL:
            yield step.op.src.buffer.name
