"""What pools grant and hardware does not forgive.

TVM's pools grant buffers that start inside another one's bytes, layouts that put two elements in
one cell, and allocations that the hardware refuses. Ours grant them too, so that offsets agree;
these functions say so.

Invariant: a finding names its rule, the numbers and a remedy; allocations whose sizes are still
symbolic are skipped, so bind them first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from attrs import frozen

from explorer.expr import const, divides, evaluate, holds
from explorer.machine import TensorMemory
from explorer.memory.conditions import Obligation, known, text
from explorer.memory.layouts import Axis, elements_of
from explorer.memory.packing import legal_allocation
from explorer.memory.records import Allocation, TmemAllocation
from explorer.memory.smem_pool import SMEMPool
from explorer.memory.swizzle import alignment_bytes
from explorer.memory.tmem_pool import TMEMPool

Granted = TypeVar("Granted", Allocation, TmemAllocation)


@frozen
class Finding:
    """One flaw of a plan; `rule` names its kind."""

    rule: str
    message: str


def audit_shared(pool: SMEMPool) -> tuple[Finding, ...]:
    """The flaws of what a shared-memory pool gave out."""
    found: list[Finding] = []
    for allocation in pool.allocations:
        if allocation.bound:
            found += _shared(allocation)
    size, mark = pool.committed_bytes, pool.max_offset
    if isinstance(size, int) and isinstance(mark, int) and mark > size:
        message = f"{mark} B were given out, {size} B committed; call commit() after the last one"
        found.append(Finding("pool-late-allocation", message))
    return tuple(found)


def _shared(allocation: Allocation) -> Iterator[Finding]:
    for condition in shared_conditions(allocation):
        if not holds(condition.holds):
            yield Finding(condition.rule, condition.message)


def shared_conditions(allocation: Allocation) -> Iterator[Obligation]:
    """What must hold of an allocation in shared memory, its sizes known or open."""
    name, start = allocation.name, allocation.offset_bytes
    width = allocation.dtype.bits
    if width % 8 == 0:  # narrower elements are packed, from any byte on
        yield Obligation(
            "pool-element-alignment",
            divides(width // 8, start),
            f"'{name}' starts at byte {start}, inside an element of {width} bits; "
            f"pass align={width // 8}",
        )
    mode = allocation.map.swizzle
    need = alignment_bytes(mode)
    if mode.value:
        yield Obligation(
            "pool-swizzle-alignment",
            divides(need, start),
            f"'{name}' starts at byte {start}, its swizzle repeats every {need} B; "
            f"pass align={need}",
        )
    reach, end = allocation.reach_bytes, allocation.end_bytes
    yield Obligation(
        "pool-extent",
        const(reach) <= end,
        f"the layout of '{name}' reaches byte {reach}, the pool gave out up to {end}; "
        "allocate the padded shape",
    )


def audit_tensor(pool: TMEMPool, memory: TensorMemory) -> tuple[Finding, ...]:
    """The flaws of a tensor-memory pool and of what it gave out."""
    found: list[Finding] = []
    if not legal_allocation(pool.total_cols, memory):
        message = (
            f"{pool.total_cols} columns; an allocation is a power of two in "
            f"{memory.columns_min}..{memory.columns}"
        )
        found.append(Finding("tmem-power-of-two", message))
    if pool.committed and not pool.deallocated:
        message = f"{pool.total_cols} columns are never freed; call dealloc() at the end"
        found.append(Finding("tmem-held", message))
    for allocation in pool.allocations:
        if allocation.bound:
            found += _tensor(allocation, memory)
    return tuple(found)


def _tensor(allocation: TmemAllocation, memory: TensorMemory) -> Iterator[Finding]:
    name, layout = allocation.name, allocation.layout
    lanes = known(layout.span(Axis.LANE), "the lanes")
    if lanes > memory.lanes:
        yield Finding(
            "tmem-lanes", f"'{name}' takes {lanes} lanes of {memory.lanes}; use a smaller tile"
        )
    size, count = known(layout.size, "the layout"), len(elements_of(allocation.shape))
    if size != count:
        yield Finding(
            "tmem-coverage",
            f"the layout of '{name}' places {size} of the {count} elements of "
            f"{text(allocation.shape)}; use whole groups of rows",
        )
    if not layout.injective:
        yield Finding(
            "tmem-self-overlap",
            f"the layout of '{name}' {text(allocation.shape)} puts two elements in one cell; "
            "allocate one buffer a stage",
        )
    reach, end = evaluate(allocation.reach_columns), evaluate(allocation.end_column)
    if reach > end:
        yield Finding(
            "tmem-extent",
            f"the layout of '{name}' reaches column {reach}, the pool gave out up to {end}; "
            f"pass cols={reach - known(allocation.column, 'the column')}",
        )


def overlapping(allocations: Sequence[Granted]) -> tuple[tuple[Granted, Granted], ...]:
    """The pairs that share bytes, or columns, in order of allocation.

    They are legal only where their lifetimes are disjoint and a barrier separates them.
    """
    bound = [allocation for allocation in allocations if allocation.bound]
    ranges = [_range(allocation) for allocation in bound]
    return tuple(
        (bound[first], bound[second])
        for second, (start, end) in enumerate(ranges)
        for first, (first_start, first_end) in enumerate(ranges[:second])
        if first_start < end and start < first_end
    )


def _range(allocation: Allocation | TmemAllocation) -> tuple[int, int]:
    if isinstance(allocation, Allocation):
        ends = (allocation.end_bytes, allocation.reach_bytes)
        return evaluate(allocation.offset_bytes), max(map(evaluate, ends))
    columns = (allocation.end_column, allocation.reach_columns)
    return evaluate(allocation.column), max(map(evaluate, columns))
