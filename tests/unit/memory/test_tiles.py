"""Swizzled tiles: where every element lies."""

from __future__ import annotations

import pytest

from explorer.ir.dtypes import dtype
from explorer.memory.tiles import tile_layout

BF16 = dtype("bfloat16")


def test_every_extent_has_a_layout() -> None:
    """C21: no exception for any extent."""
    for extent in range(1, 257):
        layout = tile_layout(8, extent, BF16)
        assert layout.total_bytes == 8 * extent * 2
        assert layout.boxes * layout.box_columns == extent


@pytest.mark.parametrize("columns", [16, 24, 32, 48, 64, 96, 192, 256])
def test_elements_fill_the_tile_without_overlap(columns: int) -> None:
    layout = tile_layout(16, columns, BF16)
    offsets = {layout.offset(row, column) for row in range(16) for column in range(columns)}
    assert offsets == set(range(0, layout.total_bytes, 2))


def test_rows_of_a_128_byte_atom_permute_their_pieces() -> None:
    layout = tile_layout(8, 64, BF16)
    assert [layout.offset(row, 0) - 128 * row for row in range(8)] == [16 * r for r in range(8)]


def test_boxes_lie_side_by_side() -> None:
    layout = tile_layout(64, 192, BF16)
    assert (layout.boxes, layout.box_columns, layout.box_bytes) == (3, 64, 8192)
    assert layout.offset(0, 64) == 8192


@pytest.mark.parametrize(("rows", "columns", "atom"), [(4, 64, 128), (4, 128, 0), (8, 128, 128)])
def test_each_of_several_boxes_holds_whole_repetitions(rows: int, columns: int, atom: int) -> None:
    """Hardware permutes by address: a second box may not start within a repetition."""
    layout = tile_layout(rows, columns, BF16)
    assert layout.swizzle.atom_bytes == atom
    assert layout.boxes == 1 or layout.box_bytes % 1024 == 0


@pytest.mark.parametrize(("columns", "row_bytes", "total"), [(256, 128, 1024), (24, 12, 96)])
def test_elements_of_4_bits_are_packed(columns: int, row_bytes: int, total: int) -> None:
    layout = tile_layout(8, columns, dtype("int4"))
    assert (layout.row_bytes, layout.total_bytes) == (row_bytes, total)
