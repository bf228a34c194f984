"""Whether the operands of an op fit each other, as far as their sizes are known.

An element-wise body must mean the same in every order of its index tuples ("lanes"): no lane may
read what another writes, or write what another writes differently.

Invariant: sizes that depend on Params or on run-time integers are never refused; the same check
after `at` decides them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from explorer.expr import TRUE, Const, Expr, evaluate, symbols
from explorer.ir.access import elements
from explorer.ir.extents import difference
from explorer.ir.nodes import (
    Buffer,
    Copy,
    Gemm,
    Kernel,
    Map,
    Op,
    Reduce,
    ops,
)
from explorer.ir.values import value_exprs


def op_problem(op: Op) -> str | None:
    """What is wrong with an op in one line, or None."""
    match op:
        case Copy():
            return _copy_problem(op)
        case Gemm():
            return _gemm_problem(op)
        case Reduce():
            return _reduce_problem(op)
        case Map():
            return _map_problem(op)
    return None


def kernel_problem(kernel: Kernel) -> tuple[int, str] | None:
    """The source line and the sentence of the first problem in a kernel, or None."""
    for buffer in (*kernel.tensors, *kernel.buffers):
        for size in buffer.shape:
            if isinstance(size, Const) and size.value < 1:
                return 0, f"a size of '{buffer.name}' must be at least 1, got {size}"
        if buffer.storage:
            problem = view_problem(buffer, kernel.buffer(buffer.storage))
            if problem is not None:
                return 0, problem
    for op in ops(kernel.body):
        problem = op_problem(op)
        if problem is not None:
            return op.line, problem
    return None


def view_problem(view: Buffer, storage: Buffer) -> str | None:
    """Why a buffer cannot show the bytes of another, in one line, or None."""
    if view.dtype.bits != storage.dtype.bits and min(view.dtype.bits, storage.dtype.bits) < 8:
        return (
            f"a view of '{storage.name}' ({storage.dtype}) as {view.dtype}: elements below a byte "
            "keep their width"
        )
    if certainly_differ(view.bits, storage.bits):
        return (
            f"a view of '{storage.name}' {show_extents(storage.shape)} of {storage.dtype} as "
            f"{show_extents(view.shape)} of {view.dtype}: {storage.bits} bits against {view.bits}"
        )
    return None


def certainly_differ(a: Expr, b: Expr) -> bool:
    """Whether two extents differ for all values of their symbols."""
    gap = difference(a, b)
    return isinstance(gap, Const) and gap.value != 0


def show_extents(extents: tuple[Expr, ...]) -> str:
    """Extents as `(128, block_K)`."""
    return "(" + ", ".join(map(str, extents)) + ")"


def _fit(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return len(a) == len(b) and not any(map(certainly_differ, a, b))


def _copy_problem(op: Copy) -> str | None:
    if _fit(op.src.shape, op.dst.shape):
        return None
    return (
        f"T.copy from '{op.src.buffer.name}' {show_extents(op.src.shape)} to "
        f"'{op.dst.buffer.name}' {show_extents(op.dst.shape)}: the extents differ"
    )


def _gemm_problem(op: Gemm) -> str | None:
    for region in (op.a, op.b, op.c):
        if len(region.shape) != 2:
            return (
                f"T.gemm takes operands of 2 dimensions, '{region.buffer.name}' has "
                f"{len(region.shape)}: slice it"
            )
    m, ka = op.a.shape[::-1] if op.transpose_a else op.a.shape
    kb, n = op.b.shape[::-1] if op.transpose_b else op.b.shape
    if not _fit((m, n, ka), (*op.c.shape, kb)):
        return (
            f"T.gemm of '{op.a.buffer.name}' ({m} x {ka}) and '{op.b.buffer.name}' ({kb} x {n}) "
            f"does not fit '{op.c.buffer.name}' ({op.c.shape[0]} x {op.c.shape[1]})"
        )
    return _operand_types(op.a.buffer, op.b.buffer, op.c.buffer)


def _operand_types(a: Buffer, b: Buffer, c: Buffer) -> str | None:
    if a.dtype.is_float != b.dtype.is_float:
        return (
            f"T.gemm multiplies '{a.name}' ({a.dtype}) with '{b.name}' ({b.dtype}): "
            "convert one of them first"
        )
    if a.dtype.is_float and not c.dtype.is_float:
        return (
            f"T.gemm of {a.dtype} operands accumulates into '{c.name}' ({c.dtype}): "
            "use a floating-point accumulator"
        )
    return None


def _reduce_problem(op: Reduce) -> str | None:
    shape = op.src.shape
    rest = (*shape[: op.axis], *shape[op.axis + 1 :]) or (Const(1),)
    kept = (*shape[: op.axis], Const(1), *shape[op.axis + 1 :])
    if _fit(op.dst.shape, rest) or _fit(op.dst.shape, kept):
        return None
    return (
        f"T.reduce_{op.kind} of '{op.src.buffer.name}' {show_extents(shape)} along dim {op.axis} "
        f"gives {show_extents(rest)}, but '{op.dst.buffer.name}' is {show_extents(op.dst.shape)}"
    )


def _map_problem(op: Map) -> str | None:
    axes = dict(op.axes)
    for store, guard in zip(op.stores, op.guards, strict=True):
        name = f"{store.buffer.name}[{', '.join(map(str, store.indices))}]"
        if not store.atomic and guard == TRUE:
            used = _axes_of(store.indices, axes)
            varying = _axes_of(value_exprs(store.value), axes) - used
            if lanes := sorted(axis for axis in varying if axes[axis] != Const(1)):
                return (
                    f"every '{lanes[0]}' of the T.Parallel body writes {name}: "
                    "use a reduction or T.atomic_add"
                )
        for read in (e for other in op.stores for e in elements(other.value)):
            if read.buffer.name == store.buffer.name and _lanes_meet(
                store.indices, read.indices, axes
            ):
                found = f"{read.buffer.name}[{', '.join(map(str, read.indices))}]"
                return (
                    f"the T.Parallel body writes {name} and reads {found} of other iterations: "
                    "read from a copy"
                )
    return None


def _lanes_meet(
    written: tuple[Expr, ...], read: tuple[Expr, ...], axes: Mapping[str, Expr]
) -> bool:
    """Whether one lane surely reads what another writes; False where that is not known."""
    differ = False
    for store_index, read_index in zip(written, read, strict=True):
        gap = difference(read_index, store_index)
        if gap == Const(0):
            continue
        moving = _axes_of((store_index, read_index), axes)
        if not moving:
            return False
        if not _axes_of((gap,), axes):
            extents = [axes[axis] for axis in moving]
            known = isinstance(gap, Const) and all(isinstance(e, Const) for e in extents)
            if not known or abs(evaluate(gap)) >= max(map(evaluate, extents)):
                return False
        differ = True
    return differ


def _axes_of(exprs: Iterable[Expr], axes: Mapping[str, Expr]) -> set[str]:
    return {symbol.name for expr in exprs for symbol in symbols(expr) if symbol.name in axes}
