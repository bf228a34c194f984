"""Swizzle modes: the widest that fits, the permutation, and the alignment by use."""

import numpy as np
import pytest

from explorer.expr import Param, holds
from explorer.ir.dtypes import DTYPES, DType, dtype
from explorer.memory.bump import Piece, bump
from explorer.memory.swizzle import (
    SwizzleMode,
    alignment_bytes,
    misfit,
    row_fits,
    swizzled,
    widest_swizzle,
)

NONE, B32, B64, B128 = SwizzleMode
BF16 = dtype("bfloat16")


@pytest.mark.parametrize(
    ("extent", "mode"),
    [
        (8, NONE),
        (16, B32),
        (24, NONE),
        (32, B64),
        (40, NONE),
        (48, B32),
        (64, B128),
        (96, B64),
        (128, B128),
    ],
)
def test_the_widest_for_bfloat16(extent: int, mode: SwizzleMode) -> None:
    assert widest_swizzle(extent, BF16) == mode


@pytest.mark.parametrize("bits", range(4, 65))
def test_every_extent_and_width_has_an_answer_or_a_rule(bits: int) -> None:
    element = DType(f"uint{bits}", bits, "uint")
    for extent in range(1, 257):
        widest = widest_swizzle(extent, element)
        whole = 128 % bits == 0 and (extent * bits) % 8 == 0
        row = extent * bits // 8
        atoms = [atom for atom in (128, 64, 32) if whole and row % atom == 0]
        assert widest.atom_bytes == (atoms[0] if atoms else 0)
        for mode in SwizzleMode:
            reason = misfit((64, extent), element, mode)
            assert (reason is None) == (mode == NONE or mode.atom_bytes in atoms)
            assert reason is None or "\n" not in reason


def test_every_known_dtype_has_an_answer() -> None:
    for element in DTYPES.values():
        widest = NONE if element.bits == 6 else B128  # 6 bits straddle 16-byte pieces
        assert widest_swizzle(1024 // element.bits, element) == widest


def test_a_symbolic_extent_gives_a_condition() -> None:
    fits = row_fits(Param("block_K"), BF16, B128)
    assert [n for n in (0, 32, 64, 96, 128) if holds(fits, {"block_K": n})] == [64, 128]


@pytest.mark.parametrize("mode", SwizzleMode)
def test_the_permutation_moves_whole_chunks_inside_eight_rows(mode: SwizzleMode) -> None:
    bits = np.arange(0, 2 * 1024 * 8, 8, dtype=np.int64)
    moved = swizzled(mode, bits)
    assert sorted(moved) == sorted(bits)
    assert (moved % 128 == bits % 128).all()
    assert (moved // (8 * 1024) == bits // (8 * 1024)).all()
    assert (swizzled(mode, moved) == bits).all()


def test_a_column_of_the_widest_atom_meets_every_bank_group() -> None:
    column = np.arange(8, dtype=np.int64) * 128 * 8
    assert sorted(swizzled(B128, column) // 128 % 8) == list(range(8))


@pytest.mark.parametrize(
    ("mode", "bulk", "offset"),
    [(B128, True, 1024), (B64, True, 512), (B32, True, 256), (NONE, True, 128), (NONE, False, 64)],
)
def test_a_tile_behind_a_pad_of_64_bytes(mode: SwizzleMode, bulk: bool, offset: int) -> None:
    pad = Piece("pad", 64)
    tile = Piece("tile", 64 * 64 * 2, alignment_bytes(mode, bulk))
    placed = bump([pad, tile])
    assert placed.spots[1].offset_bytes == offset
    assert placed.total_bytes == offset + 8192


def test_alignment_by_use() -> None:
    assert [alignment_bytes(mode) for mode in (B128, B64, B32, NONE)] == [1024, 512, 256, 16]
    assert alignment_bytes(NONE, bulk_copy=True) == 128
