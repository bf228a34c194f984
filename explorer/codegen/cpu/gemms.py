"""Gemms as C: the register-blocked micro-kernel where the operands fit it, else plain loops.

The micro-kernel takes strides: A in either order, B and C with their columns contiguous. It leaves
out what lies in the padding of tails.

Invariant: the register block is the one that the schedule names, and divides the tile.
"""

from __future__ import annotations

from attrs import frozen

from explorer.codegen.cpu.context import OpContext, View
from explorer.codegen.cpu.elements import c_type, converted
from explorer.codegen.cpu.scalars import c_cond
from explorer.expr import FALSE, TRUE, Const
from explorer.ir.nodes import Gemm, Region

_NUMBERS = ("f32", "f64")


@frozen
class _Operands:
    """Strides: a[i * ai + k * ak], b[k * bk + j * bj], c[i * ci + j * cj]."""

    a: View
    b: View
    c: View
    ai: int
    ak: int
    bk: int
    bj: int
    m: int
    n: int
    k: int


def emit_gemm(op: Gemm, context: OpContext) -> None:
    """c (+)= op(a) op(b)."""
    operands = _operands(op, context)
    _clear(op, operands, context)
    block = _register_block(op, operands, context)
    if block is None:
        _plain_loops(operands, context)
    else:
        _micro_kernel(op, operands, block, context)


def _operands(op: Gemm, context: OpContext) -> _Operands:
    a, b, c = context.view(op.a), context.view(op.b), context.view(op.c)
    if a is None or b is None or c is None or any(v.place.is_global for v in (a, b, c)):
        raise context.unsupported("gemm on tensors or on operands of rank 3")
    ai, ak = reversed(a.strides) if op.transpose_a else a.strides
    bk, bj = reversed(b.strides) if op.transpose_b else b.strides
    m, n = map(context.size, c.extent)
    k = context.size(a.extent[0] if op.transpose_a else a.extent[1])
    return _Operands(a, b, c, ai, ak, bk, bj, m, n, k)


def _clear(op: Gemm, of: _Operands, context: OpContext) -> None:
    if op.clear_accum == FALSE:
        return
    head = "" if op.clear_accum == TRUE else f"if ({c_cond(op.clear_accum)})"
    row, column = of.c.strides
    with context.writer.block(head):
        pointer = f"({of.c.pointer})"
        context.writer.line(
            f"for (long i = 0; i < {of.m}; i++) for (long j = 0; j < {of.n}; j++) "
            f"{pointer}[i * {row} + j * {column}] = 0;"
        )


def _register_block(op: Gemm, of: _Operands, context: OpContext) -> tuple[int, int] | None:
    shorts = {view.place.short for view in (of.a, of.b, of.c)}
    if len(shorts) > 1 or not shorts <= set(_NUMBERS) or of.bj != 1 or of.c.strides[1] != 1:
        return None
    if not all(_starts_at_row(region) for region in (op.b, op.c)):
        return None
    chosen = context.program.matrix.get(op.id)
    shapes = [(s.m, s.n) for s in context.program.machine.matrix_shapes]
    for m, n in [chosen] if chosen else shapes:
        if of.m % m == 0 and of.n % n == 0:
            return m, n
    return None


def _starts_at_row(region: Region) -> bool:
    """Whether a region starts at column 0, where rows are aligned."""
    return region.start[-1] == Const(0) and region.start[-2] == Const(0)


def _micro_kernel(op: Gemm, of: _Operands, block: tuple[int, int], context: OpContext) -> None:
    short = of.c.place.short
    number = c_type(short)
    context.program.helpers.need(f"vector {short}")
    params = f"const {number} *a, const {number} *b, {number} *c, long m, long n, long k"
    strides = f"{of.ai}, {of.ak}, {of.bk}, {of.c.strides[0]}"
    live = _live(op, of, context)
    literals = [text if text.isdigit() else name for text, name in zip(live, "mnk", strict=True)]
    body = (
        f'_Static_assert({block[1]} % W_{short} == 0, "register block of whole vectors");\n'
        f"    ex_gemm_{short}({of.m}, {of.n}, {block[0]}, {block[1]}, {strides}, "
        f"{', '.join(literals)}, a, b, c);"
    )
    helper = context.program.helpers.function("gemm", params, body)
    arguments = (of.a.pointer, of.b.pointer, of.c.pointer, *live)
    context.writer.line(f"{helper}({', '.join(arguments)});")


def _live(op: Gemm, of: _Operands, context: OpContext) -> tuple[str, str, str]:
    """C expressions for the rows, columns and depth of the product that are not padding."""
    m = _live_extents(op.a, context)[1 if op.transpose_a else 0]
    rows = of.a.start[1 if op.transpose_a else 0]
    n = _live_extents(op.b, context)[0 if op.transpose_b else 1]
    depths = (
        _live_extents(op.a, context)[0 if op.transpose_a else 1],
        _live_extents(op.b, context)[1 if op.transpose_b else 0],
    )
    k = str(of.k)
    for depth in depths:
        if depth is not None:
            k = f"ex_min({k}, {depth})"
    return f"{m} - {rows}" if m else str(of.m), n or str(of.n), k


def _live_extents(region: Region, context: OpContext) -> tuple[str | None, str | None]:
    tail = context.program.tails.get(region.buffer.name)
    if tail is None or len(region.squeezed) > 0:
        return None, None
    slot = f"{tail.array}[block][{context.slots[region.buffer.name]}]"
    rows, columns = tail.partial
    return f"{slot}.rows" if rows else None, f"{slot}.columns" if columns else None


def _plain_loops(of: _Operands, context: OpContext) -> None:
    short = of.c.place.short
    number = c_type(short if short in _NUMBERS else "i64")
    a, b, c = (f"({view.pointer})" for view in (of.a, of.b, of.c))
    element = f"{c}[i * {of.c.strides[0]} + j * {of.c.strides[1]}]"
    writer = context.writer
    with writer.block(f"for (long i = 0; i < {of.m}; i++) for (long j = 0; j < {of.n}; j++)"):
        writer.line(f"{number} acc = {element};")
        writer.line(
            f"for (long k = 0; k < {of.k}; k++) acc += ({number}){a}[i * {of.ai} + k * {of.ak}] * "
            f"({number}){b}[k * {of.bk} + j * {of.bj}];"
        )
        source = short if short in _NUMBERS else "i64"
        writer.line(f"{element} = {converted('acc', source, short)};")
