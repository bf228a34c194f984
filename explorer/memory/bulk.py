"""Which copies the bulk copy engine can carry, and in which boxes.

Invariant: `bulk_refusal` and `bulk_box` look at the same facts, so that a copy that is not refused
has a box.
"""

from __future__ import annotations

from attrs import frozen

from explorer.expr import Const, Expr, IntLike, ceildiv, const, evaluate, product
from explorer.ir.nodes import Buffer, Copy, Op, Region
from explorer.machine import Scope
from explorer.memory.swizzle import ATOM_ROWS
from explorer.memory.tiles import BoxedTile, tile_layout

RANK_MAX = 5
BOX_EXTENT_MAX = 256
BULK_ALIGNMENT_BYTES = 16


@frozen
class BulkBox:
    """The box of one bulk copy, innermost dimension first; `count` of them fill `row_steps` x
    `column_steps`, each step `rows` or `columns` further."""

    extents: tuple[int, ...]
    rows: int
    columns: int
    row_steps: int
    column_steps: int


def pitch_bytes(tensor: Buffer) -> Expr:
    """Bytes from a row of a tensor to the next; of the whole tensor where it has one row."""
    if not tensor.shape:
        return const(0)
    return ceildiv((tensor.pitch or tensor.shape[-1]) * tensor.dtype.bits, 8)


def pitch_refusal(tensor: Buffer) -> str:
    """Why a tensor admits no bulk copy, in one line; empty if it does."""
    if len(tensor.shape) > RANK_MAX:
        return f"{tensor.name} has {len(tensor.shape)} dimensions, a tensor map at most {RANK_MAX}"
    if tensor.dtype.bits % 8:
        return f"{tensor.name} has {tensor.dtype} elements, a tensor map whole bytes"
    for stride in reversed(tensor.strides[:-1]):
        if not isinstance(stride, Const):
            return f"{tensor.name} has a stride {stride} that is open"
        pitch = stride.value * tensor.dtype.bits // 8
        if pitch % BULK_ALIGNMENT_BYTES:
            return (
                f"{tensor.name} has a pitch of {pitch} B, "
                f"not a multiple of {BULK_ALIGNMENT_BYTES} B"
            )
    return ""


def bulk_refusal(copy: Op) -> str:
    """Why a copy between a tensor and a shared tile cannot travel by the bulk copy engine.

    One line; empty if it can. A copy that converts, whose tile is no box, or whose rows are not
    whole 16-byte pieces cannot; an extent that is open is not held against it.
    """
    if not isinstance(copy, Copy):
        return f"{copy.id} is no copy"
    outside, tile = bulk_sides(copy)
    if outside.buffer.dtype != tile.buffer.dtype:
        return f"{copy.id} converts {copy.src.buffer.dtype} to {copy.dst.buffer.dtype}"
    reason = pitch_refusal(outside.buffer)
    if reason:
        return reason
    inner = outside.extent[-1]
    if not _same_shape(outside, tile):
        return f"{copy.id} reshapes its tile"
    if isinstance(inner, Const):
        row_bytes = inner.value * tile.buffer.dtype.bits // 8
        if row_bytes % BULK_ALIGNMENT_BYTES:
            return f"{copy.id} moves rows of {row_bytes} B, not whole pieces of 16 B"
        if inner.value > BOX_EXTENT_MAX and _unswizzled(tile.buffer, inner.value):
            return f"{copy.id} moves rows of {inner.value} elements > {BOX_EXTENT_MAX} of a box"
    return ""


def _unswizzled(tile: Buffer, columns: int) -> bool:
    """Whether a row of the tile is one box; as many rows as help where they are open."""
    rows = product(tile.shape[:-1])
    known = rows.value if isinstance(rows, Const) else ATOM_ROWS
    return not tile_layout(known, columns, tile.dtype).swizzle.value


def bulk_sides(copy: Copy) -> tuple[Region, Region]:
    """(the region of the tensor, the region of the shared tile)."""
    if copy.src.buffer.scope == Scope.GLOBAL:
        return copy.src, copy.dst
    return copy.dst, copy.src


def bulk_box(outside: Region, layout: BoxedTile) -> BulkBox:
    """The boxes of a copy that is not refused; all sizes fixed."""
    extents = [evaluate(extent) for extent in reversed(outside.extent)]
    columns = layout.box_columns
    column_steps = extents[0] // columns
    row_steps = 1
    rows = extents[1] if len(extents) > 1 else 1
    while rows > BOX_EXTENT_MAX and rows % 2 == 0:
        row_steps *= 2
        rows //= 2
    box = (columns, *((rows, *extents[2:]) if len(extents) > 1 else ()))
    return BulkBox(box, rows, columns, row_steps, column_steps)


def _same_shape(one: Region, other: Region) -> bool:
    return _kept(one.extent) == _kept(other.extent)


def _kept(extents: tuple[Expr, ...]) -> tuple[IntLike, ...]:
    return tuple(extent for extent in extents if extent != Const(1))
