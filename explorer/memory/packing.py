"""How many tensor-memory columns a block must allocate.

An allocation is a power of two and at least 32 columns, so buffers are packed into one arena that
is rounded once. Rounding each buffer by itself wastes columns, or asks for more than there are.

Invariant: the formulas take known and symbolic columns alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from explorer.expr import Cond, Expr, IntLike, const, evaluate, select, total
from explorer.machine import TensorMemory
from explorer.memory.conditions import refuse


def allocated_columns(needed: IntLike, memory: TensorMemory) -> Expr:
    """The smallest allocation that holds `needed` columns; twice the memory where none does."""
    size = memory.columns * 2
    result: Expr = const(size)
    while size > memory.columns_min:
        size //= 2
        result = select(const(needed) <= size, size, result)
    return result


def legal_allocation(columns: int, memory: TensorMemory) -> bool:
    """Whether the hardware allocates exactly that many columns."""
    return columns.bit_count() == 1 and memory.columns_min <= columns <= memory.columns


def arena_fits(sizes: Sequence[IntLike], memory: TensorMemory) -> Cond:
    """The condition that buffers of those columns fit one arena."""
    return total(sizes) <= memory.columns


def separate_columns(sizes: Sequence[IntLike], memory: TensorMemory) -> Expr:
    """The columns that one allocation a buffer takes."""
    return total(allocated_columns(size, memory) for size in sizes)


@frozen
class Arena:
    """Buffers side by side: the start of each, the columns in use, and the columns allocated."""

    starts: tuple[int, ...]
    used: int
    allocated: int


def pack(sizes: Sequence[int], memory: TensorMemory) -> Arena:
    """One arena for buffers of those columns, in order; MemoryPlanError if it does not fit."""
    starts, used = [], 0
    for size in sizes:
        starts.append(used)
        used += size
    if used > memory.columns:
        parts = " + ".join(map(str, sizes))
        refuse(
            "tmem-capacity",
            f"{parts} = {used} columns > {memory.columns}; reuse columns of buffers that are no "
            f"longer read, or drop {used - memory.columns} columns",
        )
    return Arena(tuple(starts), used, evaluate(allocated_columns(used, memory)))
