"""What every statement reads and writes, derived from its operands.

Invariant: an access lists whole boxes that cover every element touched; an atomic store and an
accumulating gemm or reduction both read and write their destination.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from attrs import frozen

from explorer.expr import TRUE, Const, Expr, Var, const, substitute, symbols
from explorer.ir.extents import difference
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Cast,
    Copy,
    Define,
    Element,
    Fill,
    Gemm,
    Kernel,
    Map,
    Op,
    Reduce,
    Region,
    Stmt,
    Unary,
    Value,
    Where,
    ops,
)
from explorer.machine import Scope


@frozen
class Access:
    """Regions read and written by one op."""

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The buffers that are touched."""
        return frozenset(region.buffer.name for region in (*self.reads, *self.writes))


def elements(value: Value) -> Iterator[Element]:
    """The buffer elements that a value reads."""
    match value:
        case Element():
            yield value
        case Unary(_, operand) | Cast(_, operand):
            yield from elements(operand)
        case Arith(_, lhs, rhs):
            yield from elements(lhs)
            yield from elements(rhs)
        case Where(cond, then, otherwise):
            for part in (cond, then, otherwise):
                yield from elements(part)


def map_elements(op: Map) -> Iterator[Element]:
    """The buffer elements that a body writes, then those that it reads."""
    for store in op.stores:
        yield Element(store.buffer, store.indices)
    for store in op.stores:
        yield from elements(store.value)


def access(op: Op) -> Access:
    """What one op reads and writes."""
    match op:
        case Copy(_, src, dst):
            return Access((src,), (dst,))
        case Gemm(_, a, b, c):
            accumulates = op.clear_accum != TRUE
            return Access((a, b, c) if accumulates else (a, b), (c,))
        case Fill(_, dst, value):
            return Access(tuple(_point(e) for e in elements(value)), (dst,))
        case Reduce(_, _, src, dst, _, clear):
            return Access((src,) if clear else (src, dst), (dst,))
        case Map(_, axes, stores):
            extents = dict(axes)
            reads = [_box(e.buffer, e.indices, extents) for s in stores for e in elements(s.value)]
            writes = [_box(s.buffer, s.indices, extents) for s in stores]
            reads += [_box(s.buffer, s.indices, extents) for s in stores if s.atomic]
            return Access(tuple(reads), tuple(writes))
        case Define(_, _, value):
            return Access(tuple(_point(e) for e in elements(value)), ())


def block_access(body: tuple[Stmt, ...]) -> Access:
    """What all ops of a block read and write."""
    found = [access(op) for op in ops(body)]
    return Access(
        tuple(region for each in found for region in each.reads),
        tuple(region for each in found for region in each.writes),
    )


def statement_access(statement: Stmt) -> Access:
    """What one statement, a block included, reads and writes."""
    return block_access((statement,))


def outputs(kernel: Kernel) -> tuple[Buffer, ...]:
    """The tensors that the kernel writes, in signature order."""
    written = {region.buffer.name for region in block_access(kernel.body).writes}
    return tuple(tensor for tensor in kernel.tensors if tensor.name in written)


def inputs(kernel: Kernel) -> tuple[Buffer, ...]:
    """The tensors that the kernel reads, in signature order."""
    read = {region.buffer.name for region in block_access(kernel.body).reads}
    return tuple(tensor for tensor in kernel.tensors if tensor.name in read)


def is_bulk_load(op: Stmt) -> bool:
    """Whether an op only moves global data into shared on-chip memory."""
    return (
        isinstance(op, Copy)
        and op.src.buffer.scope == Scope.GLOBAL
        and not op.dst.buffer.scope.private
        and op.dst.buffer.scope != Scope.GLOBAL
    )


def _point(element: Element) -> Region:
    ones = tuple(const(1) for _ in element.indices)
    return Region(element.buffer, element.indices, ones)


def _box(buffer: Buffer, indices: tuple[Expr, ...], axes: dict[str, Expr]) -> Region:
    """The smallest box around affine indices; the whole dimension where an index is not affine."""
    start: list[Expr] = []
    extent: list[Expr] = []
    for index, size in zip(indices, buffer.shape, strict=True):
        low, span = _interval(index, axes)
        start.append(const(0) if low is None else low)
        extent.append(size if span is None else span)
    return Region(buffer, tuple(start), tuple(extent))


def _interval(index: Expr, axes: dict[str, Expr]) -> tuple[Expr | None, Expr | None]:
    if isinstance(index, Var) and index.name in axes:
        return const(0), axes[index.name]
    moving = [s.name for s in symbols(index) if isinstance(s, Var) and s.name in axes]
    if not moving:
        return index, const(1)
    low = index
    span: Expr = const(1)
    for name in moving:
        step = difference(substitute(index, {name: Var(name) + 1}), index)
        if not isinstance(step, Const):
            return None, None
        coefficient = step.value
        reach = (axes[name] - 1) * abs(coefficient)
        low = substitute(low, {name: 0 if coefficient >= 0 else axes[name] - 1})
        span = span + reach
    return low, span
