"""Allocations of pools as the fixed places that a kernel carries, and where those lie in a block.

Invariant: `layout_of` of the place of an allocation maps every element as the allocation does.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from explorer.expr import const, evaluate
from explorer.ir.pools import FixedPlace, Pool, Steps
from explorer.machine import Machine, Scope
from explorer.memory.footprint import aligned
from explorer.memory.layouts import Axis, Iter, TileLayout
from explorer.memory.records import Allocation, TmemAllocation
from explorer.memory.swizzle import ATOM_ROWS, WIDEST_FIRST, swizzle_of

# What any swizzle repeats by, so that offsets in a pool keep their alignment in the block.
POOL_BYTES = ATOM_ROWS * WIDEST_FIRST[0].atom_bytes


def shared_place(allocation: Allocation, name: str, permanent: bool = False) -> FixedPlace:
    """The place of an allocation in shared memory; `name` is its buffer's in the kernel."""
    layout = allocation.map
    return FixedPlace(
        buffer=name,
        offset=const(allocation.offset_bytes),
        size=const(allocation.size_bytes),
        alignment=max(0, allocation.align),
        swizzle_bytes=layout.swizzle.atom_bytes,
        shard=_steps(layout.shard),
        permanent=permanent,
    )


def tensor_place(allocation: TmemAllocation, name: str) -> FixedPlace:
    """The place of an allocation in tensor memory; `name` is its buffer's in the kernel."""
    return FixedPlace(
        buffer=name,
        offset=const(allocation.column),
        size=const(allocation.columns),
        shard=_steps(allocation.layout.shard),
        replica=_steps(allocation.layout.replica),
    )


def _steps(iterators: Iterable[Iter]) -> tuple[Steps, ...]:
    return tuple(Steps(const(i.extent), const(i.stride), i.axis.value) for i in iterators)


def layout_of(place: FixedPlace) -> TileLayout:
    """The element map of a place."""
    swizzle = swizzle_of(place.swizzle_bytes)
    return TileLayout(_iters(place.shard), _iters(place.replica), swizzle)


def _iters(steps: Iterable[Steps]) -> tuple[Iter, ...]:
    return tuple(Iter(each.extent, each.stride, Axis(each.axis)) for each in steps)


@frozen
class PoolRegions:
    """The pools of a block one behind the other: their bytes by scope, and offsets by buffer."""

    sizes: tuple[tuple[Scope, int], ...]
    offsets: tuple[tuple[str, int], ...]

    def offset(self, buffer: str) -> int | None:
        """The byte of the block's memory where a buffer was placed, or None."""
        return dict(self.offsets).get(buffer)


def pool_regions(pools: Iterable[Pool], machine: Machine) -> PoolRegions:
    """Where concrete pools lie on a machine; nowhere on one whose slots are padded.

    A shared buffer that a pool divides lies where that pool does. Columns of tensor memory are
    counted in the bytes of all lanes.
    """
    cursor: dict[Scope, int] = {}
    offsets: list[tuple[str, int]] = []
    for pool in pools if machine.slots is None else ():
        unit = 1
        if pool.scope == Scope.TMEM:
            memory = machine.tensor_memory
            unit = memory.column_bytes if memory else 1
        start = aligned(cursor.get(pool.scope, 0), POOL_BYTES)
        if pool.base:
            offsets.append((pool.base, start))
        offsets += [(p.buffer, start + evaluate(p.offset) * unit) for p in pool.places]
        cursor[pool.scope] = start + evaluate(pool.size) * unit
    return PoolRegions(tuple(cursor.items()), tuple(offsets))
