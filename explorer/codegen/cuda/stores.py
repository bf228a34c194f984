"""Stores by a role's threads: fragments to tensors and to shared tiles, shared tiles to tensors.

Invariant: what lies outside a tensor is not written; guards that always hold are not printed.
"""

from __future__ import annotations

from explorer.codegen.cuda.context import Role
from explorer.codegen.cuda.copies import converted, is_multiple, tile_start, tile_template
from explorer.codegen.cuda.elements import NARROW_FLOATS, stored_text, stored_type, widened_text
from explorer.codegen.cuda.fragments import BLOCK_ROWS, Fragment
from explorer.codegen.cuda.scalars import fixed
from explorer.codegen.cuda.views import TensorView, shared_view, tensor_view
from explorer.errors import ScheduleError
from explorer.expr import TRUE, Const, Expr, divides
from explorer.ir.dtypes import DType
from explorer.ir.nodes import Copy, Region
from explorer.ir.values import widened
from explorer.memory.tiles import BoxedTile
from explorer.program.nodes import Exec


def fragment_store(role: Role, step: Exec) -> None:
    """A fragment to a tensor, two neighbouring columns a store where they are aligned."""
    op = step.op
    assert isinstance(op, Copy)
    fragment = _whole_fragment(role, op.src)
    view, element = tensor_view(op.dst), op.dst.buffer.dtype
    kind = stored_type(element)
    even = view.pitch % 2 == 0 and is_multiple(view.column, 2) and is_multiple(view.offset, 2)
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
        value = _pair(registers, fragment.buffer.dtype, element)
        wide = "u32" if element.bits == 16 else "u64"
        _guarded(role, (row, column), f"*({wide}*)&{place}] = {value};")
        return
    for e, register in enumerate(registers):
        column = _guard(role, view.columns_left, view.columns, f"column + 8 * j + {e}")
        value = converted(register, fragment.buffer.dtype, element)
        _guarded(role, (row, column), f"{place} + {e}] = {value};")


def _guard(role: Role, left: Expr, extent: int, text: str) -> str:
    return role.inside(Const(extent - 1), left, text)


def _guarded(role: Role, conditions: tuple[str, ...], statement: str) -> None:
    condition = " && ".join(filter(None, conditions))
    role.out.line(f"if ({condition}) {statement}" if condition else statement)


def matrix_pairs(fragment: Fragment, target: DType, block: int, j: int) -> str:
    """The operands of an stmatrix of the columns 8 j to 8 j + 15 of a block."""
    array = fragment.array(block)
    return ", ".join(
        _pair(
            [f"{array}[{4 * k + 2 * half + e}]" for e in range(2)], fragment.buffer.dtype, target
        )
        for k in (j, j + 1)
        for half in range(2)
    )


def _pair(registers: list[str], source: DType, target: DType) -> str:
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
    start = tile_start(role, op.dst, step.uses, view, layout)
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
    template = tile_template(layout)
    row = group_row(role, fragment, block)
    role.out.line(
        f"const u32 row = {row} + warp % 4u * 16u + lane % 16u, half = lane / 16u * 16u;"
    )
    first = columns.start // 8
    for j in range(0, len(columns) // 8, 2):
        pairs = matrix_pairs(fragment, op.dst.buffer.dtype, block, first + j)
        at = f"base + {start} + tile_at<{template}>(row, {16 * j}u + half)"
        role.out.line(f"store_matrix({at}, {pairs});")


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
        value = converted(
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
    start = tile_start(role, op.src, step.uses, view, layout)
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
            value = converted("x", op.src.buffer.dtype, op.dst.buffer.dtype)
        role.out.line(f"{kind}* at = {target.pointer(role.scalars)};")
        guards = (
            _guard(role, target.rows_left, target.rows, "row"),
            _guard(role, target.columns_left, target.columns, "column"),
        )
        _guarded(role, guards, f"at[row * {target.pitch}ll + column] = {value};")


__all__ = ["fragment_stage", "fragment_store", "group_row", "matrix_pairs", "store_elements"]
