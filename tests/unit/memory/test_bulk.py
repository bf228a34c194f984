"""Which copies the bulk copy engine carries."""

from __future__ import annotations

import pytest

from explorer.expr import const
from explorer.ir.dtypes import dtype
from explorer.ir.nodes import Buffer, Copy, Region, ops, whole
from explorer.machine import Scope
from explorer.memory.bulk import bulk_box, bulk_refusal, pitch_refusal
from explorer.memory.tiles import tile_layout
from tests.support.cuda_candidates import gemm_space

BF16 = dtype("bfloat16")


def copies(sizes: tuple[int, int, int]) -> list[Copy]:
    kernel = gemm_space("gemm", sizes).kernel.at(block_M=128, block_N=256, block_K=64)
    return [op for op in ops(kernel.body) if isinstance(op, Copy)]


@pytest.mark.parametrize(
    ("sizes", "refused"),
    [((129, 257, 65), (True, True)), ((129, 256, 65), (True, False)), ((1, 8, 8), (False, False))],
)
def test_pitches_of_16_bytes(sizes: tuple[int, int, int], refused: tuple[bool, bool]) -> None:
    a, b, _ = copies(sizes)
    assert (bool(bulk_refusal(a)), bool(bulk_refusal(b))) == refused


def test_the_reason_names_the_pitch() -> None:
    a, *_ = copies((129, 257, 65))
    assert bulk_refusal(a) == "A has a pitch of 130 B, not a multiple of 16 B"
    assert pitch_refusal(a.src.buffer) == bulk_refusal(a)


def test_boxes_are_one_atom_wide() -> None:
    a, b, _ = copies((1024, 1024, 1024))
    box = bulk_box(b.src, tile_layout(64, 256, BF16))
    assert (box.extents, box.column_steps, box.row_steps) == ((64, 64), 4, 1)
    box = bulk_box(a.src, tile_layout(128, 64, BF16))
    assert (box.extents, box.column_steps) == ((64, 128), 1)


@pytest.mark.parametrize(
    ("rows", "columns", "refused"),
    [(1, 256, False), (1, 512, True), (4, 512, True), (8, 512, False)],
)
def test_a_row_that_is_no_atom_fits_one_box(rows: int, columns: int, refused: bool) -> None:
    """Without a swizzle a row is one box, which holds at most 256 elements."""
    outside = Buffer("X", (const(64), const(columns)), BF16, Scope.GLOBAL)
    tile = Buffer("tile", (const(rows), const(columns)), BF16, Scope.SHARED)
    part = Region(outside, (const(0), const(0)), tile.shape)
    reason = bulk_refusal(Copy("load", part, whole(tile)))
    assert bool(reason) == refused
    assert not refused or reason == f"load moves rows of {columns} elements > 256 of a box"
