"""Copies as C: tensor to slot with widening and zero fill, chip to tensor with clipping, others.

Invariant: reads outside a tensor give 0 and writes there vanish.
"""

from __future__ import annotations

from explorer.codegen.cpu.context import OpContext, View
from explorer.codegen.cpu.elements import NARROW_FLOATS, c_type, compute_name
from explorer.codegen.cpu.loops import element_loops
from explorer.codegen.cpu.scalars import c_expr
from explorer.expr import Const, Expr, Var
from explorer.ir.nodes import Copy, Element, Region
from explorer.ir.values import widened

_LOADS = {"f32": "f32", "f64": "f64"} | dict.fromkeys(NARROW_FLOATS, "f32")
_STORES = {"f32": ("f32", *NARROW_FLOATS), "f64": ("f64",)}


def emit_copy(op: Copy, context: OpContext) -> None:
    """The copy, through a vector routine where one fits."""
    src, dst = context.view(op.src), context.view(op.dst)
    if src is not None and dst is not None:
        if src.place.is_global and not dst.place.is_global and _load(src, dst, context):
            _note_tail(op, context)
            return
        if dst.place.is_global and not src.place.is_global and _store(src, dst, context):
            return
    _element_copy(op, context)
    _note_tail(op, context)


def _load(src: View, dst: View, context: OpContext) -> bool:
    number, kind = dst.place.short, src.place.short
    if _LOADS.get(kind) != number or src.strides[1] != 1 or not isinstance(src.extent[1], Const):
        return False
    turned = dst.strides[0] == 1 and dst.strides[1] != 1
    if not turned and dst.strides[1] != 1:
        return False
    context.program.helpers.need(f"copy {number} {kind}")
    params = f"{c_type(number)} *dst, const {c_type(kind)} *src, "
    params += "long r0, long c0, long rows, long nr"
    name = f"ex_copy_{'turned_' if turned else ''}{kind}_{number}"
    rows = src.extent[0]
    literal = str(rows.value) if isinstance(rows, Const) else "rows"
    total = src.size[0] if src.size[0].isdigit() else "nr"
    body = (
        f"{name}({literal}, {context.size(src.extent[1])}, dst, "
        f"{dst.strides[1] if turned else dst.strides[0]}, "
        f"src, {src.strides[0]}, r0, c0, {total}, {src.size[1]});"
    )
    helper = context.program.helpers.function("copy", params, body)
    arguments = (dst.pointer, src.pointer, *src.start, c_expr(rows), src.size[0])
    context.writer.line(f"{helper}({', '.join(arguments)});")
    return True


def _store(src: View, dst: View, context: OpContext) -> bool:
    number, kind = src.place.short, dst.place.short
    if kind not in _STORES.get(number, ()) or src.strides[1] != 1 or dst.strides[1] != 1:
        return False
    if not all(isinstance(extent, Const) for extent in dst.extent):
        return False
    context.program.helpers.need(f"store {number} {kind}")
    params = f"{c_type(kind)} *dst, const {c_type(number)} *src, long r0, long c0, long nr"
    total = dst.size[0] if dst.size[0].isdigit() else "nr"
    body = (
        f"ex_store_{number}_{kind}({dst.extent[0]}, {context.size(dst.extent[1])}, src, "
        f"{src.strides[0]}, dst, {dst.strides[0]}, r0, c0, {total}, {dst.size[1]});"
    )
    helper = context.program.helpers.function("store", params, body)
    arguments = (dst.pointer, src.pointer, *dst.start, dst.size[0])
    context.writer.line(f"{helper}({', '.join(arguments)});")
    return True


def _element_copy(op: Copy, context: OpContext) -> None:
    kept = [axis for axis in range(len(op.dst.extent)) if axis not in op.dst.squeezed]
    axes = tuple((f"copy{n}_", op.dst.extent[axis]) for n, axis in enumerate(kept))
    source, target = _indices(op.src, axes), _indices(op.dst, axes)
    value = Element(op.src.buffer, source)
    if context.places[op.src.buffer.name].short in NARROW_FLOATS:
        assert compute_name(widened(op.src.buffer.dtype)) == "f32"
    element_loops(context, axes, op.dst.buffer, target, value)


def _indices(region: Region, axes: tuple[tuple[str, Expr], ...]) -> tuple[Expr, ...]:
    names = iter(axes)
    return tuple(
        start if axis in region.squeezed else start + Var(next(names)[0])
        for axis, start in enumerate(region.start)
    )


def _note_tail(op: Copy, context: OpContext) -> None:
    tail = context.program.tails.get(op.dst.buffer.name)
    whole = context.whole
    if tail is None or not any(tail.partial) or not isinstance(whole, Copy):
        return
    src = context.view(whole.src)
    assert src is not None, "a buffer with tails is written by copies of rank 2"
    slot = f"{tail.array}[block][{context.slots[op.dst.buffer.name]}]"
    with context.writer.block("if (part == 0)" if context.warps > 1 else ""):
        for axis, field in enumerate(("rows", "columns")):
            full = context.size(src.extent[axis])
            live = f"ex_clip({src.size[axis]} - {src.start[axis]}, 0, {full})"
            context.writer.line(f"{slot}.{field} = {live};")
