"""How a shared tile lies in memory: swizzle atoms, boxes, and the offset of every element.

A tile of rows x columns is stored as boxes one after another, each `rows` high and one atom wide;
inside a box rows follow each other and the 16-byte pieces of a row are permuted by the row number.
Bulk copies write this form, the matrix unit reads it, and threads meet no bank conflicts in it.

Invariant: the atom is the widest of 128, 64 and 32 bytes that divides a row; without one the tile
is plain row-major. Sources: CUDA driver API, CU_TENSOR_MAP_SWIZZLE_*; PTX ISA, wgmma, shared
memory matrix layouts.
"""

from __future__ import annotations

from attrs import frozen

ATOMS_BYTES = (128, 64, 32)
BOX_EXTENT_MAX = 256
BULK_ALIGNMENT_BYTES = 16


def widest_atom_bytes(row_bytes: int) -> int:
    """The widest swizzle atom whose width divides a row; 0 where none does."""
    return next((atom for atom in ATOMS_BYTES if row_bytes % atom == 0), 0)


def base_alignment_bytes(atom_bytes: int, bulk: bool) -> int:
    """The alignment of a tile's base: eight rows of a swizzle atom; 128 for other bulk copies."""
    return 8 * atom_bytes if atom_bytes else 128 if bulk else 16


@frozen
class TileLayout:
    """A tile of `rows` x `columns` elements; `atom_bytes` 0 means row-major without swizzle."""

    rows: int
    columns: int
    element_bytes: int
    atom_bytes: int

    @property
    def box_columns(self) -> int:
        """Elements of one row of a box."""
        return self.atom_bytes // self.element_bytes if self.atom_bytes else self.columns

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
        """The 16-byte pieces of an atom, less one: the bits of the row that permute them."""
        return self.atom_bytes // 16 - 1 if self.atom_bytes else 0

    def offset(self, row: int, column: int) -> int:
        """The byte offset of an element from the tile's base."""
        box, inside = divmod(column, self.box_columns)
        at = row * self.row_bytes + inside * self.element_bytes
        return box * self.box_bytes + (at ^ ((at >> 7 & self.swizzle_mask) << 4))
