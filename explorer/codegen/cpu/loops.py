"""Element-wise loops as C: maps, fills, generic copies, reductions, scalars.

Invariant: a store is executed for all its index tuples before the next store of the same op.
"""

from __future__ import annotations

from contextlib import ExitStack

from explorer.codegen.cpu.context import OpContext
from explorer.codegen.cpu.elements import (
    NARROW_FLOATS,
    c_type,
    compute_name,
    converted,
    rounded,
    short_name,
)
from explorer.codegen.cpu.scalars import c_cond, c_expr, var_name
from explorer.expr import TRUE, Cond, Const, Expr, Var
from explorer.ir.nodes import Buffer, Define, Element, Fill, Literal, Map, Reduce, Value
from explorer.ir.values import compute_dtype, widened


def emit_map(op: Map, context: OpContext) -> None:
    """One loop nest a store."""
    for store, guard in zip(op.stores, op.guards, strict=True):
        if store.atomic:
            raise context.unsupported("atomic stores")
        element_loops(context, op.axes, store.buffer, store.indices, store.value, guard)


def emit_fill(op: Fill, context: OpContext) -> None:
    """memset for the zeros of a whole buffer, else loops."""
    place = context.places[op.dst.buffer.name]
    zero = isinstance(op.value, Literal) and not isinstance(op.value.value, bool)
    zero = zero and op.value == Literal(type(op.value.value)(0))  # type: ignore[union-attr]
    whole = op.dst.extent == op.dst.buffer.shape and len(place.shape) > 0
    if zero and whole and not place.is_global and place.strides[-1] == 1:
        count = place.strides[0] * place.shape[0]
        context.writer.line(f"memset({place.pointer}, 0, {count} * sizeof *{place.pointer});")
        return
    axes = tuple((f"fill{axis}_", extent) for axis, extent in enumerate(op.dst.extent))
    target = tuple(start + Var(name) for start, (name, _) in zip(op.dst.start, axes, strict=True))
    element_loops(context, axes, op.dst.buffer, target, op.value)


def element_loops(
    context: OpContext,
    axes: tuple[tuple[str, Expr], ...],
    buffer: Buffer,
    indices: tuple[Expr, ...],
    value: Value,
    guard: Cond = TRUE,
) -> None:
    """buffer[indices] <- value over the axes, where the guard holds, inside the tensor."""
    place = context.places[buffer.name]
    writer = context.writer
    with ExitStack() as nest:
        for name, extent in axes:
            var = var_name(name)
            nest.enter_context(
                writer.block(f"for (long {var} = 0; {var} < {c_expr(extent)}; {var}++)")
            )
        conditions = [c_cond(guard), place.inside(indices) if place.is_global else "1"]
        tested = " && ".join(each for each in conditions if each != "1")
        stored = stored_value(context, value, buffer)
        writer.line(f"{f'if ({tested}) ' if tested else ''}{place.at(indices)} = {stored};")


def stored_value(context: OpContext, value: Value, buffer: Buffer) -> str:
    """A value as an element of a buffer; a narrow float on chip is rounded and held as f32."""
    place = context.places[buffer.name]
    text, source = context.values.text(value), compute_name(compute_dtype(value))
    if isinstance(value, Literal) and isinstance(value.value, float):
        source = "f64"
    narrow = short_name(buffer.dtype) in NARROW_FLOATS and not place.is_global
    if not narrow:
        return converted(text, source, place.short)
    exact = isinstance(value, Element) and value.buffer.dtype == buffer.dtype
    return text if exact else rounded(text, source, buffer.dtype)


_START = {"max": "-INFINITY", "absmax": "-INFINITY", "min": "INFINITY", "sum": "0"}
_INT_START = {"max": "INT64_MIN", "absmax": "INT64_MIN", "min": "INT64_MAX", "sum": "0"}


def emit_reduce(op: Reduce, context: OpContext) -> None:
    """A reduction over one axis of the source region."""
    src_axes = [axis for axis in range(len(op.src.extent)) if axis not in op.src.squeezed]
    inner = src_axes[op.axis]
    outer = [axis for axis in src_axes if axis != inner]
    kind = widened(op.src.buffer.dtype)
    short = compute_name(kind) if kind.is_float else "i64"
    number = c_type(short)
    indices = tuple(
        start if axis in op.src.squeezed else start + Var(f"reduce{axis}_")
        for axis, start in enumerate(op.src.start)
    )
    target = _reduce_target(op, outer)
    place = context.places[op.dst.buffer.name]
    start = (_START if kind.is_float else _INT_START)[op.kind]
    if not op.clear:
        start = context.values.load(op.dst.buffer, target)
    element = f"({number}){context.values.load(op.src.buffer, indices)}"
    if op.kind == "absmax":
        element = f"fabs({element})" if kind.is_float else f"ex_abs({element})"
    combine = {"sum": "acc + {}", "min": f"ex_least_{short}(acc, {{}})"}.get(
        op.kind, f"ex_most_{short}(acc, {{}})"
    )
    writer = context.writer
    with ExitStack() as nest:
        for axis in outer:
            nest.enter_context(writer.block(_for(axis, op.src.extent[axis])))
        writer.line(f"{number} acc = {start};")
        with writer.block(_for(inner, op.src.extent[inner])):
            writer.line(f"acc = {combine.format(element)};")
        stored = rounded("acc", short, op.dst.buffer.dtype)
        if place.is_global:
            stored = converted("acc", short, place.short)
        writer.line(f"{place.at(target)} = {stored};")


def _reduce_target(op: Reduce, outer: list[int]) -> tuple[Expr, ...]:
    """Where an outer index of the source goes; a kept dimension of 1 stays at its start."""
    names = [Var(f"reduce{axis}_") for axis in outer]
    kept = [axis for axis in range(len(op.dst.extent)) if axis not in op.dst.squeezed]
    if len(kept) == len(outer) + 1:
        kept.pop(op.axis)
    at = dict(zip(kept, names, strict=False))
    return tuple(start + at.get(axis, Const(0)) for axis, start in enumerate(op.dst.start))


def _for(axis: int, extent: Expr) -> str:
    name = var_name(f"reduce{axis}_")
    return f"for (long {name} = 0; {name} < {c_expr(extent)}; {name}++)"


def emit_define(op: Define, context: OpContext) -> None:
    """An integer scalar of the role, declared at its top."""
    context.writer.line(f"{var_name(op.name)} = (long)({context.values.text(op.value)});")
