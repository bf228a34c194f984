"""Kernels as text. The text is stable, and its digest identifies a kernel."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.data import digest
from explorer.expr import FALSE, TRUE, Const
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Cast,
    Copy,
    Define,
    Element,
    Fill,
    Gemm,
    Group,
    If,
    Index,
    Kernel,
    Literal,
    Loop,
    Map,
    Reduce,
    Region,
    Stmt,
    Unary,
    Value,
    Where,
    While,
)
from explorer.ir.pools import Pool
from explorer.machine import Scope


def show_kernel(kernel: Kernel) -> str:
    """The kernel as indented text, one statement a line."""
    return "\n".join(_kernel_lines(kernel)) + "\n"


def kernel_digest(kernel: Kernel) -> str:
    """Twelve hex digits that identify the kernel's meaning and names."""
    return digest(show_kernel(kernel))


def show_buffer(buffer: Buffer) -> str:
    """`name: dtype[shape] in scope`."""
    shape = ", ".join(map(str, buffer.shape))
    apart = f" rows {buffer.pitch} apart" if buffer.pitch else ""
    shown = f"{buffer.name}: {buffer.dtype}[{shape}]{apart} in {buffer.scope}"
    return f"{shown}, view of {buffer.storage}" if buffer.storage else shown


def show_region(region: Region) -> str:
    """`name[start:+extent, ...]`, or the bare name where it is the whole buffer."""
    starts_at_zero = all(start == Const(0) for start in region.start)
    if starts_at_zero and region.extent == region.buffer.shape and not region.squeezed:
        return region.buffer.name
    parts = [
        str(start) if axis in region.squeezed else f"{start} :+ {extent}"
        for axis, (start, extent) in enumerate(zip(region.start, region.extent, strict=True))
    ]
    return f"{region.buffer.name}[{', '.join(parts)}]"


def show_value(value: Value) -> str:
    """An element value as an expression."""
    match value:
        case Literal(number):
            return repr(number)
        case Index(expr):
            return str(expr)
        case Element(buffer, indices):
            return f"{buffer.name}[{', '.join(map(str, indices))}]"
        case Unary(op, operand):
            return f"{op}({show_value(operand)})"
        case Arith(op, lhs, rhs):
            return f"({show_value(lhs)} {op} {show_value(rhs)})"
        case Where(cond, then, otherwise):
            parts = ", ".join(map(show_value, (cond, then, otherwise)))
            return f"where({parts})"
        case Cast(dtype, operand):
            return f"{dtype}({show_value(operand)})"


def show_statement(statement: Stmt) -> str:
    """One statement as its first line, without a nested body."""
    return next(iter(_lines(statement, "")))


def _kernel_lines(kernel: Kernel) -> Iterator[str]:
    yield f"kernel {kernel.name}({', '.join(kernel.params)})"
    for tensor in kernel.tensors:
        yield f"  tensor {show_buffer(tensor)}"
    for scalar in kernel.scalars:
        yield f"  scalar {scalar}"
    grid = ", ".join(f"{name} < {extent}" for name, extent in kernel.grid)
    yield f"  grid {grid}; threads {kernel.threads}"
    for buffer in kernel.buffers:
        yield f"  buffer {show_buffer(buffer)}"
    for pool in kernel.pools:
        yield from _pool_lines(pool)
    for statement in kernel.body:
        yield from _lines(statement, "  ")


def _pool_lines(pool: Pool) -> Iterator[str]:
    unit = "columns" if pool.scope == Scope.TMEM else "B"
    where = f"in {pool.base}" if pool.base else f"of {pool.scope}"
    yield f"  pool {pool.name}: {pool.size} {unit} {where}"
    for place in pool.places:
        swizzle = f", swizzle {place.swizzle_bytes} B" if place.swizzle_bytes else ""
        split = " ".join(f"{s.extent}@{s.stride}{s.axis}" for s in (*place.shard, *place.replica))
        yield f"    {place.buffer} at {place.offset} :+ {place.size} {unit}{swizzle}: {split}"


def _lines(node: Stmt, indent: str) -> Iterator[str]:
    body: tuple[Stmt, ...] = ()
    match node:
        case Copy(name, src, dst):
            text = f"{name}: copy {show_region(dst)} <- {show_region(src)}"
        case Gemm(name, a, b, c, ta, tb, clear):
            left, right = show_region(a) + ("^T" if ta else ""), show_region(b) + "^T" * tb
            start = "" if clear == FALSE else " clear" if clear == TRUE else f" clear if {clear}"
            text = f"{name}: gemm {show_region(c)} += {left} @ {right}{start}"
        case Fill(name, dst, value):
            text = f"{name}: fill {show_region(dst)} <- {show_value(value)}"
        case Reduce(name, kind, src, dst, axis, clear_first):
            mode = "<-" if clear_first else "<- old,"
            text = (
                f"{name}: reduce {show_region(dst)} {mode} {kind} {show_region(src)} axis {axis}"
            )
        case Map(name, axes, stores, guards):
            over = ", ".join(f"{var} < {extent}" for var, extent in axes)
            parts = [
                f"{s.buffer.name}[{', '.join(map(str, s.indices))}] "
                f"{'+=' if s.atomic else '='} {show_value(s.value)}"
                + ("" if guard == TRUE else f" if {guard}")
                for s, guard in zip(stores, guards, strict=True)
            ]
            text = f"{name}: map {over}: {'; '.join(parts)}"
        case Define(name, var, value):
            text = f"{name}: let {var} = {show_value(value)}"
        case Loop(name, var, start, extent, kind, stages, body):
            staged = f" stages {stages}" if stages else ""
            text = f"{name}: for {var} in {start} :+ {extent} {kind}{staged}"
        case If(name, cond, body):
            text = f"{name}: if {cond}"
        case While(name, cond, body):
            text = f"{name}: while {cond}"
        case Group(name, body):
            text = f"{name}: group"
    yield indent + text
    for statement in body:
        yield from _lines(statement, indent + "  ")
