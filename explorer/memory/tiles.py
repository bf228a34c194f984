"""Shared tiles as the copy engine and the matrix unit know them: boxes of swizzle atoms.

A tile of rows x columns is stored as boxes one after another, each `rows` high and one atom wide;
inside a box rows follow each other and the 16-byte pieces of a row are permuted by their address.
Bulk copies write this form, the matrix unit reads it, and threads meet no bank conflicts in it.
Where each element lies is said by `layouts.mma_layout`; this module says how large boxes are.

Invariant: the swizzle is the widest that fits a row, or that of the pool that holds the tile;
without one the tile is plain row-major. A tile of several boxes has whole repetitions of the
pattern in each, since hardware permutes by address. Sources: CUDA driver API,
CU_TENSOR_MAP_SWIZZLE_*; PTX ISA, wgmma, matrix layouts.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from explorer.ir.dtypes import DType
from explorer.ir.pools import FixedPlace
from explorer.memory import layouts
from explorer.memory.swizzle import ATOM_ROWS, SwizzleMode, swizzle_of, widest_swizzle


@frozen
class BoxedTile:
    """A tile of `rows` x `columns` elements."""

    rows: int
    columns: int
    element: DType
    swizzle: SwizzleMode

    @property
    def element_bytes(self) -> int:
        """Bytes of an element; 1 for narrower ones."""
        return max(self.element.bits // 8, 1)

    @property
    def box_columns(self) -> int:
        """Elements of one row of a box."""
        atom = self.swizzle.atom_bytes
        return atom * 8 // self.element.bits if atom else self.columns

    @property
    def boxes(self) -> int:
        """Boxes side by side."""
        return self.columns // self.box_columns

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a box; rows of a fraction of a byte do not lie apart."""
        return self.box_columns * self.element.bits // 8

    @property
    def box_bytes(self) -> int:
        """Bytes from a box to the next."""
        return -(-self.rows * self.box_columns * self.element.bits // 8)

    @property
    def total_bytes(self) -> int:
        """Bytes of the tile."""
        return self.boxes * self.box_bytes

    @property
    def swizzle_mask(self) -> int:
        """The bits of a row's number that permute the 16-byte pieces of an atom."""
        return (1 << self.swizzle.value) - 1

    @property
    def map(self) -> layouts.TileLayout:
        """Where every element lies."""
        return layouts.mma_layout((self.rows, self.columns), self.element, self.swizzle)

    def offset(self, row: int, column: int) -> int:
        """The byte offset of an element from the tile's base."""
        number = np.array([row * self.columns + column], dtype=np.int64)
        return int(self.map.bits(number, self.element)[0]) // 8


def tile_layout(
    rows: int, columns: int, element: DType, place: FixedPlace | None = None
) -> BoxedTile:
    """The layout of a tile; a single row is not swizzled. Its author's `place` names a swizzle."""
    mode = widest_swizzle(columns, element) if rows > 1 else SwizzleMode.SWIZZLE_NONE
    if place is not None:
        mode = swizzle_of(place.swizzle_bytes)
    tile = BoxedTile(rows, columns, element, mode)
    if tile.boxes > 1 and rows % ATOM_ROWS:
        return BoxedTile(rows, columns, element, SwizzleMode.SWIZZLE_NONE)
    return tile
