"""Copies between tensors and shared tiles: by the copy engine, cp.async, and a role's threads.

Invariant: reads outside a tensor give 0 and writes there vanish, by the bounds of the tensor map
on bulk routes and by guards elsewhere; guards that always hold are not printed.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.codegen.cuda.context import Role
from explorer.codegen.cuda.elements import stored_text, stored_type, widened_text
from explorer.codegen.cuda.plan import TensorMap
from explorer.codegen.cuda.prelude import bulk_load_function, bulk_load_name, bulk_store_function
from explorer.codegen.cuda.scalars import fixed
from explorer.codegen.cuda.views import TensorView, View, shared_view, tensor_view
from explorer.errors import ScheduleError
from explorer.expr import Const, Expr, affine
from explorer.ir.dtypes import DType
from explorer.ir.nodes import Buffer, Copy, Region
from explorer.ir.values import widened
from explorer.machine import Scope
from explorer.memory.bulk import BulkBox, bulk_box, bulk_refusal
from explorer.memory.tiles import BoxedTile
from explorer.program.nodes import Exec, Use

# Registers that a role needs for so many 16-byte pieces in flight a thread (seen in ptxas logs).
_BATCHES = ((88, 4), (56, 2), (0, 1))


def tile_template(layout: BoxedTile) -> str:
    """The template arguments that say how a tile lies."""
    return f"{layout.row_bytes}, {layout.box_bytes}, {layout.swizzle_mask}"


# ---------------------------------------------------------------- bulk


def bulk_bytes(step: Exec) -> int:
    """Bytes that a block receives by a bulk copy, its own and others' shares and those outside
    the tensor included."""
    assert isinstance(step.op, Copy)
    view = shared_view(step.op.dst)
    return step.multicast * view.rows * view.columns * step.op.dst.buffer.dtype.bits // 8


def bulk_loads(role: Role, step: Exec, barrier: str) -> Iterator[str]:
    """The copy engine's instructions of one copy, for one thread."""
    op = step.op
    assert isinstance(op, Copy)
    reason = bulk_refusal(op)
    if reason:
        raise ScheduleError(f"copy-route: {reason}; give it another route")
    rank = len(op.src.buffer.shape)
    blocks = step.multicast
    name = role.block.function(bulk_load_name(rank, blocks), bulk_load_function(rank, blocks))
    for target, tensor_map, coordinates in _boxes(role, op.src, op.dst, step.uses):
        yield f"{name}(base + {target}, {tensor_map}, {barrier}, {coordinates});"


def bulk_store(role: Role, step: Exec) -> None:
    """A shared tile to a tensor by the copy engine; the role's first thread issues it."""
    op = step.op
    assert isinstance(op, Copy)
    rank = len(op.dst.buffer.shape)
    name = role.block.function(f"bulk_store_{rank}d", bulk_store_function(rank))
    with role.out.block("if (thread == 0u)"):
        for source, tensor_map, coordinates in _boxes(role, op.dst, op.src, step.uses):
            role.out.line(f"{name}(base + {source}, {tensor_map}, {coordinates});")
        role.out.line("store_commit();")


def _boxes(
    role: Role, outside: Region, inside: Region, uses: tuple[Use, ...]
) -> Iterator[tuple[str, str, str]]:
    """(offset in shared memory, tensor map, coordinates) of every box of a bulk copy."""
    layout = role.tile(inside.buffer)
    view = shared_view(inside)
    box = bulk_box(outside, layout)
    tensor_map = role.block.map_name(_tensor_map(outside.buffer, box, layout))
    start = tile_start(role, inside, uses, view, layout)
    for column in range(box.column_steps):
        for row in range(box.row_steps):
            step = column * layout.box_bytes + row * box.rows * layout.row_bytes
            at = list(reversed(outside.start))
            at[0] = at[0] + column * box.columns
            if row:
                at[1] = at[1] + row * box.rows
            coordinates = ", ".join(map(role.scalars.expr, at))
            yield start + (f" + {step}u" if step else ""), tensor_map, coordinates


def _tensor_map(tensor: Buffer, box: BulkBox, layout: BoxedTile) -> TensorMap:
    dims = [fixed(extent, f"the shape of '{tensor.name}'") for extent in reversed(tensor.shape)]
    pitches = [
        fixed(stride, f"the pitch of '{tensor.name}'") * tensor.dtype.bits // 8
        for stride in reversed(tensor.strides[:-1])
    ]
    return TensorMap(
        tensor.name,
        tensor.dtype.name,
        tuple(dims),
        tuple(pitches),
        box.extents,
        layout.swizzle.atom_bytes,
    )


def tile_start(
    role: Role, region: Region, uses: tuple[Use, ...], view: View, layout: BoxedTile
) -> str:
    """The offset of the first row of a region that spans whole rows of its tile."""
    if view.columns != layout.columns:
        raise ScheduleError(f"'{region.buffer.name}': a copy moves part of its tile's columns")
    text = role.slot_offset(region.buffer, uses)
    if isinstance(view.row, Const):
        first = view.row.value * layout.row_bytes
        return f"{text} + {first}u" if first else text
    return f"{text} + (u32){role.scalars.expr(view.row)} * {layout.row_bytes}u"


# ---------------------------------------------------------------- through threads


def element_load(role: Role, step: Exec) -> None:
    """A tensor's tile by the loads and stores of the role's threads."""
    op = step.op
    assert isinstance(op, Copy)
    layout, source = role.tile(op.dst.buffer), tensor_view(op.src)
    view = shared_view(op.dst)
    start = tile_start(role, op.dst, step.uses, view, layout)
    same = op.src.buffer.dtype == op.dst.buffer.dtype and op.src.buffer.dtype.bits == 16
    pointer = source.pointer(role.scalars)
    rows, columns = role.scalars.expr(source.rows_left), role.scalars.expr(source.columns_left)
    if same and view.columns % 8 == 0 and source.columns == view.columns:
        arguments = f"{view.rows}, {view.columns}, {tile_template(layout)}, {role.threads}"
        role.out.line(
            f"copy_pieces<{arguments}, {_batch(role)}>(base + {start}, {pointer}, "
            f"{source.pitch}ll, {rows}, {columns}, thread);"
        )
    else:
        _element_loop(role, op, source, view, start)
    role.unfenced |= op.dst.buffer.name in role.block.engine_reads


def _batch(role: Role) -> int:
    request = role.program.role.max_nreg
    if not request:
        return 2
    return next(batch for registers, batch in _BATCHES if request >= registers)


def _element_loop(role: Role, op: Copy, source: TensorView, view: View, start: str) -> None:
    if source.rows * source.columns != view.rows * view.columns:
        raise ScheduleError(
            f"'{op.id}' copies {source.rows} x {source.columns} elements into less"
        )
    kind, target = stored_type(op.src.buffer.dtype), stored_type(op.dst.buffer.dtype)
    layout = role.tile(op.dst.buffer)
    count = view.rows * view.columns
    role.out.line("#pragma unroll 1")
    with role.out.block(f"for (int i = (int)thread; i < {count}; i += {role.threads})"):
        role.out.line(f"const int row = i / {source.columns}, column = i % {source.columns};")
        role.out.line(f"const {kind}* at = {source.pointer(role.scalars)};")
        inside = (
            f"row < {role.scalars.expr(source.rows_left)} && "
            f"column < {role.scalars.expr(source.columns_left)}"
        )
        role.out.line(
            f"const {kind} x = {inside} ? at[row * {source.pitch}ll + column] : ({kind})0;"
        )
        value = "x"
        if op.src.buffer.dtype != op.dst.buffer.dtype:
            value = converted("x", op.src.buffer.dtype, op.dst.buffer.dtype)
        size = layout.element_bytes
        place = (
            f"tile_at<{tile_template(layout)}>(i / {view.columns}, i % {view.columns} * {size})"
        )
        role.out.line(f"*({target}*)(smem + {start} + {place}) = {value};")


def converted(text: str, source: DType, target: DType) -> str:
    """A stored value of one type as one of another."""
    return stored_text(widened_text(text, source), widened(source), target)


def async_load(role: Role, step: Exec) -> None:
    """A tensor's tile by cp.async, in the largest pieces that its pitch allows."""
    op = step.op
    assert isinstance(op, Copy)
    layout, source = role.tile(op.dst.buffer), tensor_view(op.src)
    view = shared_view(op.dst)
    piece = async_piece_bytes(op)
    if not piece:
        raise ScheduleError(
            f"copy-route: {op.id}: '{op.src.buffer.name}' has a pitch or a start that is no "
            "multiple of 4 B, the least cp.async moves; use the element route"
        )
    start = tile_start(role, op.dst, step.uses, view, layout)
    arguments = (
        f"{view.rows}, {view.columns}, {layout.element_bytes}, {piece}, "
        f"{tile_template(layout)}, {role.threads}"
    )
    rows, columns = role.scalars.expr(source.rows_left), role.scalars.expr(source.columns_left)
    role.out.line(
        f"copy_async<{arguments}>(base + {start}, (const char*){source.pointer(role.scalars)}, "
        f"{source.pitch}ll, {rows}, {columns}, thread);"
    )


def async_piece_bytes(op: Copy) -> int:
    """The size of a copy's cp.async pieces: 16, 8 or 4 bytes, 0 where none is aligned."""
    size = op.src.buffer.dtype.bits // 8
    if op.src.buffer.dtype != op.dst.buffer.dtype:
        return 0
    source = tensor_view(op.src)
    for piece in (16, 8, 4):
        per = piece // size
        aligned = piece % size == 0 and source.pitch % per == 0 and source.columns % per == 0
        if aligned and is_multiple(source.column, per) and is_multiple(source.offset, per):
            return piece
    return 0


def is_multiple(expr: Expr, factor: int) -> bool:
    """Whether a formula's offset and coefficients are, and so every value of it."""
    form = affine(expr)
    return form is not None and all(
        value % factor == 0 for value in (form.offset, *(c for _, c in form.terms))
    )


def copy_kind(op: Copy) -> tuple[Scope, Scope]:
    """Between which scopes a copy moves."""
    return op.src.buffer.scope, op.dst.buffer.scope


__all__ = [
    "async_load",
    "bulk_bytes",
    "bulk_loads",
    "bulk_store",
    "converted",
    "copy_kind",
    "element_load",
    "is_multiple",
    "tile_start",
    "tile_template",
]
