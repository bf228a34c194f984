"""Swizzled shared memory: the modes, the atoms they permute, and the alignment they need.

A swizzle permutes the 16-byte chunks of 8 rows of 32, 64 or 128 bytes, so that a column of chunks
falls into different banks. Hardware applies it to the address: with n = 1, 2 or 3 for the three
modes, bits 4..4+n of a byte address are xored with bits 7..7+n (CUDA driver API, tensor map
swizzle modes; PTX ISA, matrix descriptors).

Invariant: every pair of inner extent and element width has a widest swizzle; where none fits it is
SWIZZLE_NONE, and `misfit` says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from explorer.expr import TRUE, Cond, IntLike, all_of, const, divides
from explorer.ir.dtypes import DType
from explorer.memory.conditions import text

IntArray: TypeAlias = NDArray[np.int64]

ATOM_ROWS = 8
CHUNK_BITS = 128
BULK_BYTES = 128
ORDINARY_BYTES = 16


class SwizzleMode(Enum):
    """How the 16-byte chunks of shared memory are permuted; values as in TVM."""

    SWIZZLE_NONE = 0
    SWIZZLE_32B_ATOM = 1
    SWIZZLE_64B_ATOM = 2
    SWIZZLE_128B_ATOM = 3

    @property
    def atom_bytes(self) -> int:
        """Bytes of a row of the atom; 0 for SWIZZLE_NONE."""
        return 16 << self.value if self.value else 0


def swizzle_of(atom_bytes: int) -> SwizzleMode:
    """The mode whose atom has rows of so many bytes."""
    return next(mode for mode in SwizzleMode if mode.atom_bytes == atom_bytes)


WIDEST_FIRST = tuple(sorted(SwizzleMode, key=lambda mode: mode.value, reverse=True))


def alignment_bytes(mode: SwizzleMode, bulk_copy: bool = False) -> int:
    """What the base of a tile must be a multiple of, by its use.

    A swizzled tile starts a repetition of its pattern: 8 rows, 1024, 512 or 256 B. An unswizzled
    tile of a bulk copy takes 128 B, anything else 16 B.
    """
    if mode.value:
        return ATOM_ROWS * mode.atom_bytes
    return BULK_BYTES if bulk_copy else ORDINARY_BYTES


def swizzled(mode: SwizzleMode, bits: IntArray) -> IntArray:
    """Bit addresses after the permutation; addresses count from an aligned base."""
    chunk = bits // CHUNK_BITS
    return bits ^ (((chunk >> 3) & ((1 << mode.value) - 1)) * CHUNK_BITS)


def chunked(element: DType) -> bool:
    """Whether a 16-byte chunk holds a whole number of elements."""
    return CHUNK_BITS % element.bits == 0


def row_fits(extent: IntLike, element: DType, mode: SwizzleMode) -> Cond:
    """The condition that rows of `extent` elements are a positive multiple of the atom's."""
    if not mode.value:
        return TRUE
    atom_bits = mode.atom_bytes * 8
    row_bits = const(extent) * element.bits
    return all_of(chunked(element), row_bits >= atom_bits, divides(atom_bits, row_bits))


def widest_swizzle(extent: int, element: DType) -> SwizzleMode:
    """The widest mode whose atom divides rows of `extent` elements."""
    return next(mode for mode in WIDEST_FIRST if row_fits(extent, element, mode) == TRUE)


def misfit(shape: Sequence[IntLike], element: DType, mode: SwizzleMode) -> str | None:
    """Why a shape of known sizes cannot take a swizzle, with what would fit; None where it can.

    Symbolic rows or columns are not looked at.
    """
    if not mode.value:
        return None
    if len(shape) < 2:
        return (
            f"shape {text(shape)} has {len(shape)} dimensions, {mode.name} tiles the last two "
            "(rows, columns); use swizzle_mode='none'"
        )
    rows, columns = shape[-2:]
    if not chunked(element):
        return f"{element} has {element.bits} bits, which do not divide a 16 B chunk; use 'none'"
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    if row_fits(columns, element, mode) != TRUE:
        fitting = widest_swizzle(columns, element)
        return (
            f"shape {text(shape)} of {element} has rows of {columns * element.bits / 8:g} B, not "
            f"a positive multiple of the {mode.atom_bytes} B atom of {mode.name}; {fitting.name} "
            f"fits, or make shape[-1] a multiple of {mode.atom_bytes * 8 // element.bits}"
        )
    if rows < ATOM_ROWS or rows % ATOM_ROWS:
        return (
            f"shape {text(shape)} has {rows} rows, not a positive multiple of the {ATOM_ROWS} "
            f"rows of {mode.name}; use swizzle_mode='none', or make shape[-2] a multiple of "
            f"{ATOM_ROWS}"
        )
    if 0 in shape:
        return f"shape {text(shape)} has no elements to tile; use swizzle_mode='none'"
    return None
