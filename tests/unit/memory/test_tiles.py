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
