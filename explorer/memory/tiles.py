"""How a shared tile lies in memory: boxes of swizzle atoms, and the offset of every element.

A tile of rows x columns is stored as boxes one after another, each `rows` high and one atom wide;
inside a box rows follow each other and the 16-byte pieces of a row are permuted by the row number.
Bulk copies write this form, the matrix unit reads it, and threads meet no bank conflicts in it.

Invariant: the swizzle is the widest that fits a row; without one the tile is plain row-major.
Sources: CUDA driver API, CU_TENSOR_MAP_SWIZZLE_*; PTX ISA, wgmma, shared memory matrix layouts.
"""

from __future__ import annotations

from attrs import frozen

from explorer.ir.dtypes import DType
from explorer.memory.swizzle import SwizzleMode, widest_swizzle


@frozen
class TileLayout:
    """A tile of `rows` x `columns` elements of `element_bytes`."""

    rows: int
    columns: int
    element_bytes: int
    swizzle: SwizzleMode

    @property
    def box_columns(self) -> int:
        """Elements of one row of a box."""
        atom = self.swizzle.atom_bytes
        return atom // self.element_bytes if atom else self.columns

    @property
    def boxes(self) -> int:
        """Boxes side by side."""
        return self.columns // self.box_columns

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a box."""
        return self.box_columns * self.element_bytes

    @property
    def box_bytes(self) -> int:
        """Bytes from a box to the next."""
        return self.rows * self.row_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of the tile."""
        return self.boxes * self.box_bytes

    @property
    def swizzle_mask(self) -> int:
        """The bits of a row's number that permute the 16-byte pieces of an atom."""
        return (1 << self.swizzle.value) - 1

    def offset(self, row: int, column: int) -> int:
        """The byte offset of an element from the tile's base."""
        box, inside = divmod(column, self.box_columns)
        at = row * self.row_bytes + inside * self.element_bytes
        return box * self.box_bytes + (at ^ ((at >> 7 & self.swizzle_mask) << 4))


def tile_layout(rows: int, columns: int, element: DType) -> TileLayout:
    """The layout of a tile; a single row is not swizzled."""
    mode = widest_swizzle(columns, element) if rows > 1 else SwizzleMode.SWIZZLE_NONE
    return TileLayout(rows, columns, max(element.bits // 8, 1), mode)
