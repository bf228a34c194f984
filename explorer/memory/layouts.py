"""Layouts as maps from an element to where it lies.

Elements are numbered in row-major order of their buffer's shape. A `TileLayout` splits that number
over its iterators, the last fastest, and adds up their strides on each axis: the memory axis of
shared memory, or the lanes and columns of tensor memory. Strides count elements.

Invariant: a map is a function of layout and element width alone; it never asks the allocation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import prod

import numpy as np
from attrs import evolve, field, frozen

from explorer.expr import Expr, IntLike, const, product
from explorer.ir.dtypes import DType
from explorer.memory.conditions import bind, known, plain
from explorer.memory.swizzle import CHUNK_BITS, IntArray, SwizzleMode, swizzled


class Axis(StrEnum):
    """What a stride counts along; values as in TVM."""

    MEMORY = "m"
    LANE = "TLane"
    COLUMN = "TCol"


@frozen
class Iter:
    """`extent` steps of `stride` elements along an axis."""

    extent: IntLike = field(converter=plain)
    stride: IntLike = field(converter=plain)
    axis: Axis = field(default=Axis.MEMORY, converter=Axis)


def _iters(iterators: Iterable[Iter]) -> tuple[Iter, ...]:
    return tuple(iterators)


@frozen
class TileLayout:
    """Iterators over the elements; `replica` repeats all of them at further places.

    `swizzle` permutes what lies on the memory axis.
    """

    shard: tuple[Iter, ...] = field(converter=_iters)
    replica: tuple[Iter, ...] = field(default=(), converter=_iters)
    swizzle: SwizzleMode = SwizzleMode.SWIZZLE_NONE

    @property
    def size(self) -> IntLike:
        """How many elements it places."""
        return plain(product(iterator.extent for iterator in self.shard))

    def span(self, axis: Axis) -> IntLike:
        """Elements from the first to the last place along an axis, both included."""
        reach: Expr = const(1)
        for iterator in (*self.shard, *self.replica):
            if iterator.axis == axis:
                reach = reach + (const(iterator.extent) - 1) * iterator.stride
        return plain(reach)

    def at(self, sizes: Mapping[str, IntLike]) -> TileLayout:
        """The layout with Params replaced."""
        return evolve(
            self,
            shard=[_bound(iterator, sizes) for iterator in self.shard],
            replica=[_bound(iterator, sizes) for iterator in self.replica],
        )

    def offsets(self, axis: Axis, elements: IntArray) -> IntArray:
        """Where elements lie along an axis, in elements, before any swizzle."""
        result = np.zeros_like(elements)
        inner = 1
        for iterator in reversed(self.shard):
            extent = known(iterator.extent, "an extent")
            if iterator.axis == axis:
                step = elements // inner % extent
                result += step * known(iterator.stride, "a stride")
            inner *= extent
        return result

    def bits(self, elements: IntArray, element: DType) -> IntArray:
        """Bit addresses in memory, counted from the aligned base of the allocation."""
        return swizzled(self.swizzle, self.offsets(Axis.MEMORY, elements) * element.bits)

    def copies(self, axis: Axis) -> tuple[int, ...]:
        """The offsets along an axis at which every element is repeated; (0,) for no copies."""
        found = [0]
        for iterator in self.replica:
            if iterator.axis == axis:
                steps = range(known(iterator.extent, "a replica"))
                stride = known(iterator.stride, "a stride")
                found = [base + step * stride for base in found for step in steps]
        return tuple(found)

    @property
    def injective(self) -> bool:
        """Whether no place holds two elements; an iterator of stride 0 repeats one on purpose."""
        kept = evolve(self, shard=[i for i in (*self.replica, *self.shard) if i.stride != 0])
        count = prod(known(iterator.extent, "an extent") for iterator in kept.shard)
        if not count:
            return True
        elements = np.arange(count, dtype=np.int64)
        places = np.stack([kept.offsets(axis, elements) for axis in Axis])
        return len(np.unique(places, axis=1).T) == count


def _bound(iterator: Iter, sizes: Mapping[str, IntLike]) -> Iter:
    return evolve(
        iterator, extent=bind(iterator.extent, sizes), stride=bind(iterator.stride, sizes)
    )


def elements_of(shape: Iterable[IntLike]) -> IntArray:
    """The numbers of all elements of a shape of known sizes."""
    return np.arange(known(product(shape), "the size of the shape"), dtype=np.int64)


def strided(shape: Sequence[IntLike], strides: Sequence[IntLike]) -> TileLayout:
    """One iterator a dimension."""
    return TileLayout([Iter(n, stride) for n, stride in zip(shape, strides, strict=True)])


def row_major(shape: Sequence[IntLike]) -> TileLayout:
    """The last dimension contiguous, nothing between the rows."""
    return strided(shape, [product(shape[k + 1 :]) for k in range(len(shape))])


def mma_layout(shape: Sequence[IntLike], element: DType, mode: SwizzleMode) -> TileLayout:
    """The layout of a matrix operand: atoms of 8 rows, first down the rows, then across.

    The shape fits the mode (`swizzle.misfit`); outer dimensions are row-major.
    """
    if mode == SwizzleMode.SWIZZLE_NONE:
        return row_major(shape)
    *outer, rows, columns = map(const, shape)
    atom = mode.atom_bytes * 8 // element.bits
    assert CHUNK_BITS % element.bits == 0
    return TileLayout(
        [
            Iter(product(outer), rows * columns),
            Iter(rows, atom),
            Iter(columns // atom, rows * atom),
            Iter(atom, 1),
        ],
        swizzle=mode,
    )
