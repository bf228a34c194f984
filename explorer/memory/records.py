"""What pools give out: allocations, regions of tensor memory, and the instructions they need.

Invariant: records are frozen and complete: the bytes or cells of every element follow from an
allocation alone, and the instructions of a pool are in program order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from attrs import evolve, field, frozen

from explorer.expr import IntLike, ceildiv, const, product, symbols
from explorer.ir.dtypes import DType
from explorer.ir.nodes import Buffer
from explorer.machine import Scope
from explorer.memory.conditions import bind, known, plain
from explorer.memory.layouts import Axis, TileLayout, elements_of, row_major
from explorer.memory.swizzle import IntArray
from explorer.memory.tmem_layouts import CELL_BITS, Cells, cells


@frozen
class Allocation:
    """A buffer at a byte offset of a shared-memory pool.

    `align` is the alignment that was asked for, 0 for none. `layout` is None where the caller
    wants none; elements then lie in row-major order.
    """

    name: str
    shape: tuple[IntLike, ...]
    dtype: DType
    offset_bytes: IntLike
    align: int = 0
    scope: str = "shared.dyn"
    strides: tuple[IntLike, ...] | None = None
    layout: TileLayout | None = None

    @property
    def size_bytes(self) -> IntLike:
        """The bytes by which the pool advanced: all elements, rounded up to whole bytes."""
        return plain(ceildiv(product(self.shape) * self.dtype.bits, 8))

    @property
    def end_bytes(self) -> IntLike:
        """One past the last byte that the pool counts for it."""
        return plain(const(self.offset_bytes) + self.size_bytes)

    @property
    def map(self) -> TileLayout:
        """The layout that says where elements lie."""
        return self.layout or row_major(self.shape)

    @property
    def reach_bytes(self) -> IntLike:
        """One past the last byte that its layout touches."""
        span = const(self.map.span(Axis.MEMORY)) * self.dtype.bits
        return plain(const(self.offset_bytes) + ceildiv(span, 8))

    @property
    def bound(self) -> bool:
        """Whether offset and shape are known."""
        return not any(symbols(const(value)) for value in (self.offset_bytes, *self.shape))

    def bits(self, elements: IntArray | None = None) -> IntArray:
        """Bit addresses in the pool of elements, by default all in row-major order."""
        chosen = elements_of(self.shape) if elements is None else elements
        base = known(self.offset_bytes, f"the offset of '{self.name}'")
        return self.map.bits(np.asarray(chosen), self.dtype) + base * 8

    def byte_addresses(self, elements: IntArray | None = None) -> IntArray:
        """Byte addresses in the pool of elements; those of one byte share it."""
        return self.bits(elements) // 8

    def at(self, sizes: Mapping[str, IntLike]) -> Allocation:
        """The allocation with Params replaced."""
        return evolve(
            self,
            shape=tuple(bind(extent, sizes) for extent in self.shape),
            offset_bytes=bind(self.offset_bytes, sizes),
            strides=self.strides and tuple(bind(stride, sizes) for stride in self.strides),
            layout=self.layout and self.layout.at(sizes),
        )

    def buffer(self) -> Buffer:
        """The kernel's buffer that it holds."""
        return Buffer(self.name, tuple(map(const, self.shape)), self.dtype, Scope.SHARED)


@frozen
class TmemAllocation:
    """A buffer at a column of a tensor-memory pool; `column` and `columns` count 32-bit cells."""

    name: str
    shape: tuple[IntLike, ...]
    dtype: DType
    column: IntLike
    columns: IntLike
    layout: TileLayout
    scope: str = "tmem"

    @property
    def end_column(self) -> IntLike:
        """One past its last column."""
        return plain(const(self.column) + self.columns)

    @property
    def bound(self) -> bool:
        """Whether column and shape are known."""
        return not any(symbols(const(value)) for value in (self.column, self.columns, *self.shape))

    def cells(self, elements: IntArray | None = None) -> Cells:
        """Lane, column and bit of elements, by default of all in row-major order."""
        chosen = elements_of(self.shape) if elements is None else elements
        found = cells(self.layout, np.asarray(chosen), self.dtype)
        return evolve(found, column=found.column + known(self.column, f"'{self.name}'"))

    @property
    def reach_columns(self) -> IntLike:
        """One past the last column that its layout touches."""
        span = const(self.layout.span(Axis.COLUMN)) * self.dtype.bits
        return plain(const(self.column) + ceildiv(span, CELL_BITS))

    def at(self, sizes: Mapping[str, IntLike]) -> TmemAllocation:
        """The allocation with Params replaced."""
        return evolve(
            self,
            shape=tuple(bind(extent, sizes) for extent in self.shape),
            column=bind(self.column, sizes),
            columns=bind(self.columns, sizes),
            layout=self.layout.at(sizes),
        )

    def buffer(self) -> Buffer:
        """The kernel's buffer that it holds."""
        return Buffer(self.name, tuple(map(const, self.shape)), self.dtype, Scope.TMEM)


@frozen
class TmemRegion:
    """All lanes of columns start, start + step, ... below stop, in elements of the buffer."""

    allocation: TmemAllocation
    start: IntLike = field(converter=plain)
    stop: IntLike = field(converter=plain)
    step: int = 1

    @property
    def width(self) -> IntLike:
        """How many columns of elements it takes."""
        return plain(ceildiv(const(self.stop) - self.start, self.step))


@frozen
class Word:
    """One element of an allocation, as an address."""

    allocation: Allocation
    index: int = 0


@frozen
class PoolSize:
    """The dynamic shared memory that a block asks for."""

    size_bytes: IntLike


@frozen
class Tcgen05Alloc:
    """One warp allocates columns; the base column is written to `address`."""

    warp: int
    address: Any
    columns: int
    cta_group: int


@frozen
class WarpSync:
    """The lanes of one warp meet."""

    warp: int


@frozen
class Tcgen05RelinquishAllocPermit:
    """One warp gives up the right to allocate, before it deallocates."""

    warp: int
    cta_group: int


@frozen
class Tcgen05Dealloc:
    """One warp frees the columns whose base is at `address`."""

    warp: int
    address: Any
    columns: int
    cta_group: int


Instruction: TypeAlias = (
    PoolSize | Tcgen05Alloc | WarpSync | Tcgen05RelinquishAllocPermit | Tcgen05Dealloc
)
