"""Copies: between tensors and shared tiles by every route, and from fragments outward.

Invariant: reads outside a tensor give 0 and writes there vanish, by the bounds of the tensor map
on bulk routes and by guards elsewhere; guards that always hold are not printed.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.codegen.cuda.context import Role
from explorer.codegen.cuda.elements import NARROW_FLOATS, stored_text, stored_type, widened_text
from explorer.codegen.cuda.fragments import BLOCK_ROWS, Fragment
from explorer.codegen.cuda.plan import TensorMap
from explorer.codegen.cuda.prelude import bulk_load_function, bulk_load_name, bulk_store_function
from explorer.codegen.cuda.scalars import fixed
from explorer.codegen.cuda.views import TensorView, View, shared_view, tensor_view
from explorer.errors import ScheduleError
from explorer.expr import TRUE, Const, Expr, affine, divides
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
    start = _tile_start(role, inside, uses, view, layout)
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


def _tile_start(
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
    start = _tile_start(role, op.dst, step.uses, view, layout)
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
            value = _converted("x", op.src.buffer.dtype, op.dst.buffer.dtype)
        size = layout.element_bytes
        place = (
            f"tile_at<{tile_template(layout)}>(i / {view.columns}, i % {view.columns} * {size})"
        )
        role.out.line(f"*({target}*)(smem + {start} + {place}) = {value};")


def _converted(text: str, source: DType, target: DType) -> str:
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
    start = _tile_start(role, op.dst, step.uses, view, layout)
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
        if aligned and _multiple(source.column, per) and _multiple(source.offset, per):
            return piece
    return 0


def _multiple(expr: Expr, factor: int) -> bool:
    form = affine(expr)
    return form is not None and all(
        value % factor == 0 for value in (form.offset, *(c for _, c in form.terms))
    )


# ---------------------------------------------------------------- out of fragments


def fragment_store(role: Role, step: Exec) -> None:
    """A fragment to a tensor, two neighbouring columns a store where they are aligned."""
    op = step.op
    assert isinstance(op, Copy)
    fragment = _whole_fragment(role, op.src)
    view, element = tensor_view(op.dst), op.dst.buffer.dtype
    kind = stored_type(element)
    even = view.pitch % 2 == 0 and _multiple(view.column, 2) and _multiple(view.offset, 2)
    # A row of an odd length ends inside a pair.
    whole = divides(2, op.dst.buffer.shape[-1]) == TRUE
    paired = even and whole and element.bits in (16, 32)
    for block in range(fragment.blocks):
        with role.out.block():
            role.out.line(f"const int row = {_first_row(role, fragment, block)};")
            role.out.line("const int column = (int)(lane % 4u) * 2;")
            role.out.line(
                f"{kind}* at = {view.pointer(role.scalars)} + row * {view.pitch}ll + column;"
            )
            role.out.line("#pragma unroll")
            with role.out.block(f"for (int j = 0; j < {fragment.columns // 8}; ++j)"):
                for half in range(2):
                    _store_pair(role, op, fragment, view, block, half, paired)


def _store_pair(
    role: Role, op: Copy, fragment: Fragment, view: TensorView, block: int, half: int, paired: bool
) -> None:
    element = op.dst.buffer.dtype
    registers = [f"{fragment.array(block)}[4 * j + {2 * half + e}]" for e in range(2)]
    row = _guard(role, view.rows_left, view.rows, f"row + {8 * half}" if half else "row")
    place = f"at[{8 * half} * {view.pitch}ll + 8 * j" if half else "at[8 * j"
    if paired:
        # The tensor's width is even where its pitch is, so that a pair is inside or outside whole.
        column = _guard(role, view.columns_left, view.columns, "column + 8 * j")
        value = pair_text(registers, fragment.buffer.dtype, element)
        wide = "u32" if element.bits == 16 else "u64"
        _guarded(role, (row, column), f"*({wide}*)&{place}] = {value};")
        return
    for e, register in enumerate(registers):
        column = _guard(role, view.columns_left, view.columns, f"column + 8 * j + {e}")
        value = _converted(register, fragment.buffer.dtype, element)
        _guarded(role, (row, column), f"{place} + {e}] = {value};")


def _guard(role: Role, left: Expr, extent: int, text: str) -> str:
    return role.inside(Const(extent - 1), left, text)


def _guarded(role: Role, conditions: tuple[str, ...], statement: str) -> None:
    condition = " && ".join(filter(None, conditions))
    role.out.line(f"if ({condition}) {statement}" if condition else statement)


def pair_text(registers: list[str], source: DType, target: DType) -> str:
    if source == target and target.bits == 16:
        return f"(u32){registers[0]} | (u32){registers[1]} << 16"
    values = [widened_text(register, source) for register in registers]
    narrow = NARROW_FLOATS.get(target.name)
    if narrow:
        return f"pack_{narrow}({', '.join(f'(float){value}' for value in values)})"
    low, high = (stored_text(value, widened(source), target) for value in values)
    if target.name == "float32":
        low, high = f"__float_as_uint({low})", f"__float_as_uint({high})"
    elif target.bits == 16:
        return f"(u32)(u16)({low}) | (u32)(u16)({high}) << 16"
    return f"(u64)(u32)({low}) | (u64)(u32)({high}) << 32"


def fragment_stage(role: Role, step: Exec) -> None:
    """Columns of a fragment to a shared tile; 16-bit elements by stmatrix."""
    op = step.op
    assert isinstance(op, Copy)
    fragment, columns = _fragment_columns(role, op.src)
    layout, view = role.tile(op.dst.buffer), shared_view(op.dst)
    start = _tile_start(role, op.dst, step.uses, view, layout)
    narrow = op.dst.buffer.dtype.bits == 16 and len(columns) % 16 == 0
    for block in range(fragment.blocks):
        with role.out.block():
            if narrow and layout.swizzle.atom_bytes:
                _stage_matrices(role, op, fragment, columns, layout, start, block)
            else:
                _stage_elements(role, op, fragment, columns, layout, start, block)
    role.unfenced |= op.dst.buffer.name in role.block.engine_reads


def _stage_matrices(
    role: Role,
    op: Copy,
    fragment: Fragment,
    columns: range,
    layout: BoxedTile,
    start: str,
    block: int,
) -> None:
    array, template = fragment.array(block), tile_template(layout)
    row = group_row(role, fragment, block)
    role.out.line(
        f"const u32 row = {row} + warp % 4u * 16u + lane % 16u, half = lane / 16u * 16u;"
    )
    first = columns.start // 8
    for j in range(0, len(columns) // 8, 2):
        pairs = [
            pair_text(
                [f"{array}[{4 * k + 2 * h}]", f"{array}[{4 * k + 2 * h + 1}]"],
                fragment.buffer.dtype,
                op.dst.buffer.dtype,
            )
            for k in (first + j, first + j + 1)
            for h in range(2)
        ]
        at = f"base + {start} + tile_at<{template}>(row, {16 * j}u + half)"
        role.out.line(f"store_matrix({at}, {', '.join(pairs)});")


def _stage_elements(
    role: Role,
    op: Copy,
    fragment: Fragment,
    columns: range,
    layout: BoxedTile,
    start: str,
    block: int,
) -> None:
    target = stored_type(op.dst.buffer.dtype)
    role.out.line(f"const int first = {_first_row(role, fragment, block)};")
    role.out.line("#pragma unroll")
    with role.out.block(f"for (int x = 0; x < {len(columns) // 2}; ++x)"):
        role.out.line("const int row = first + 8 * (x >> 1 & 1);")
        role.out.line("const int column = 8 * (x >> 2) + 2 * (int)(lane % 4u) + (x & 1);")
        register = f"x + {columns.start // 2}" if columns.start else "x"
        value = _converted(
            f"{fragment.array(block)}[{register}]", fragment.buffer.dtype, op.dst.buffer.dtype
        )
        place = f"tile_at<{tile_template(layout)}>(row, column * {layout.element_bytes})"
        role.out.line(f"*({target}*)(smem + {start} + {place}) = {value};")


def _whole_fragment(role: Role, region: Region) -> Fragment:
    fragment, columns = _fragment_columns(role, region)
    if len(columns) < fragment.columns:
        raise ScheduleError(
            f"fragment-layout: '{region.buffer.name}' is copied in part; copy the whole fragment"
        )
    return fragment


def _fragment_columns(role: Role, region: Region) -> tuple[Fragment, range]:
    """The fragment of a region of all its rows, and the region's columns."""
    fragment, name = role.fragments[region.buffer.name], region.buffer.name
    if not fragment.matrix or region.extent[0] != region.buffer.shape[0]:
        raise ScheduleError(f"fragment-layout: rows of '{name}' are copied; copy all of them")
    first, count = (
        fixed(expr[-1], f"the columns of '{name}'") for expr in (region.start, region.extent)
    )
    if first % 8 or count % 8:
        raise ScheduleError(
            f"fragment-layout: columns {first} to {first + count} of '{name}' are copied; "
            "copy whole groups of 8"
        )
    return fragment, range(first, first + count)


def group_row(role: Role, fragment: Fragment, block: int) -> str:
    first = BLOCK_ROWS * block
    if fragment.groups == 1:
        return f"{first}u"
    return f"(u32){role.group} * {fragment.group_rows}u + {first}u"


def _first_row(role: Role, fragment: Fragment, block: int) -> str:
    return f"(int)({group_row(role, fragment, block)} + warp % 4u * 16u + lane / 4u)"


def store_elements(role: Role, step: Exec) -> None:
    """A shared tile to a tensor by the role's threads."""
    op = step.op
    assert isinstance(op, Copy)
    layout, view, target = role.tile(op.src.buffer), shared_view(op.src), tensor_view(op.dst)
    start = _tile_start(role, op.src, step.uses, view, layout)
    source, kind = stored_type(op.src.buffer.dtype), stored_type(op.dst.buffer.dtype)
    with role.out.block(
        f"for (int i = (int)thread; i < {view.rows * view.columns}; i += {role.threads})"
    ):
        role.out.line(f"const int row = i / {target.columns}, column = i % {target.columns};")
        size = layout.element_bytes
        place = (
            f"tile_at<{tile_template(layout)}>(i / {view.columns}, i % {view.columns} * {size})"
        )
        role.out.line(f"const {source} x = *({source}*)(smem + {start} + {place});")
        value = "x"
        if op.src.buffer.dtype != op.dst.buffer.dtype:
            value = _converted("x", op.src.buffer.dtype, op.dst.buffer.dtype)
        role.out.line(f"{kind}* at = {target.pointer(role.scalars)};")
        guards = (
            _guard(role, target.rows_left, target.rows, "row"),
            _guard(role, target.columns_left, target.columns, "column"),
        )
        _guarded(role, guards, f"at[row * {target.pitch}ll + column] = {value};")


def copy_kind(op: Copy) -> tuple[Scope, Scope]:
    """Between which scopes a copy moves."""
    return op.src.buffer.scope, op.dst.buffer.scope


__all__ = [
    "async_load",
    "bulk_bytes",
    "bulk_loads",
    "bulk_store",
    "copy_kind",
    "element_load",
    "fragment_stage",
    "fragment_store",
    "group_row",
    "pair_text",
    "store_elements",
]
