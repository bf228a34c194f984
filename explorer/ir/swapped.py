"""Kernel rewrite: gemms computed transposed, their accumulators held as N x M.

A matrix instruction has many rows at the least and few columns at the least, so that a product of
few rows wastes most of it, unless these are its columns:

    C (M x N) += op(A) op(B)   ->   C' (N x M) += op(B)' op(A)'

The operands change places and stay in memory as they are, so that each is transposed where it was
not. What is element-wise with C is held like it; a copy between such a fragment and other memory
becomes an element-wise body that exchanges the indices.

Invariant: the rewritten kernel has the meaning of the original; tensors and shared buffers keep
their shape, and the rows of a turned fragment are the first axis of every body over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve, field, frozen

from explorer.errors import ScheduleError
from explorer.expr import TRUE, Expr, Var
from explorer.ir.access import access, map_elements
from explorer.ir.nodes import (
    Buffer,
    Copy,
    Element,
    Gemm,
    Kernel,
    Map,
    Op,
    Reduce,
    Region,
    Rewrite,
    Stmt,
    Store,
    Value,
    ops,
    whole,
)
from explorer.machine import Scope


def swap_operands(kernel: Kernel, gemms: tuple[str, ...]) -> Kernel:
    """The kernel with these gemms computed transposed; ScheduleError names what is in the way."""
    if not gemms:
        return kernel
    named = tuple(_gemm(kernel, op_id) for op_id in gemms)
    met = _meeting(kernel, {gemm.c.buffer.name for gemm in named})
    for op_id, reason in _reasons(kernel, named, met):
        raise ScheduleError(f"swapped '{op_id}': {reason}")
    turned = {b.name: evolve(b, shape=b.shape[::-1]) for b in kernel.buffers if b.name in met}
    return evolve(
        kernel,
        buffers=tuple(turned.get(buffer.name, buffer) for buffer in kernel.buffers),
        body=_Turn(turned=turned).stmts(kernel.body),
    )


def _gemm(kernel: Kernel, op_id: str) -> Gemm:
    for op in ops(kernel.body):
        if op.id == op_id and isinstance(op, Gemm):
            return op
    raise ScheduleError(f"swapped '{op_id}': kernel '{kernel.name}' has no such gemm")


def _meeting(kernel: Kernel, names: set[str]) -> frozenset[str]:
    """The private buffers that meet those of `names` in copies and element-wise bodies."""
    while True:
        found = {
            name
            for op in ops(kernel.body)
            if isinstance(op, Copy | Map) and access(op).names & names
            for name in _private(op)
        }
        if found <= names:
            return frozenset(names)
        names = names | found


def _private(op: Op) -> set[str]:
    return {buffer.name for buffer in _buffers(op) if buffer.scope.private}


def _buffers(op: Op) -> Iterator[Buffer]:
    found = access(op)
    yield from (region.buffer for region in (*found.reads, *found.writes))


def _reasons(
    kernel: Kernel, gemms: tuple[Gemm, ...], met: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """(gemm, why it cannot be swapped)."""
    first = gemms[0].id
    for gemm in gemms:
        if gemm.c.buffer.scope != Scope.FRAGMENT:
            yield gemm.id, f"its accumulator '{gemm.c.buffer.name}' is no fragment"
        for region in (gemm.a, gemm.b):
            if region.buffer.scope.private:
                yield (
                    gemm.id,
                    f"its operand '{region.buffer.name}' is {region.buffer.scope}; only shared "
                    "operands change places",
                )
    swapped = {gemm.id for gemm in gemms}
    for op in ops(kernel.body):
        used = sorted(access(op).names & met)
        if isinstance(op, Copy):
            for region in (op.src, op.dst):
                if region.buffer.name in met and region != whole(region.buffer):
                    yield first, f"'{op.id}' copies part of '{region.buffer.name}'"
        if used and isinstance(op, Reduce):
            yield first, f"'{op.id}' reduces '{used[0]}', which is held with it"
        if used and isinstance(op, Gemm) and op.id not in swapped:
            yield first, f"gemm '{op.id}', which is not swapped, uses '{used[0]}'"
    for buffer in kernel.buffers:
        if buffer.name in met and len(buffer.shape) != 2:
            yield first, f"'{buffer.name}', which is held with it, is no matrix"
        placed = kernel.fixed_place(buffer.name) is not None
        if met & {buffer.name, buffer.storage} and (buffer.storage or placed):
            yield first, f"'{buffer.name}', which is held with it, is a view or has a fixed place"


@frozen
class _Turn(Rewrite):
    """Exchanges the dimensions of the buffers in `turned`, which are given as they become."""

    turned: Mapping[str, Buffer] = field(factory=dict)

    def region(self, region: Region) -> Region:
        new = self.turned.get(region.buffer.name)
        if new is None:
            return region
        squeezed = frozenset(1 - axis for axis in region.squeezed)
        return Region(new, region.start[::-1], region.extent[::-1], squeezed)

    def value(self, value: Value) -> Value:
        if isinstance(value, Element) and value.buffer.name in self.turned:
            return Element(self.turned[value.buffer.name], value.indices[::-1])
        return super().value(value)

    def store(self, store: Store) -> Store:
        new, value = self.turned.get(store.buffer.name), self.value(store.value)
        if new is None:
            return evolve(store, value=value)
        return evolve(store, buffer=new, indices=store.indices[::-1], value=value)

    def stmt(self, node: Stmt) -> Stmt:
        match node:
            case Gemm() if node.c.buffer.name in self.turned:
                return evolve(
                    node,
                    a=node.b,
                    b=node.a,
                    c=self.region(node.c),
                    transpose_a=not node.transpose_b,
                    transpose_b=not node.transpose_a,
                )
            case Copy(_, src, dst):
                if len(self.turned.keys() & {src.buffer.name, dst.buffer.name}) == 1:
                    return self.exchange(node)
            case Map():
                return self.rows_first(node)
        return super().stmt(node)

    def exchange(self, copy: Copy) -> Map:
        """A copy into or out of a turned buffer, element by element."""
        axes = tuple((f"{copy.id}_{n}", size) for n, size in enumerate(copy.src.shape))
        source, target = (_place(region, axes) for region in (copy.src, copy.dst))
        store = Store(copy.dst.buffer, target, Element(copy.src.buffer, source))
        return self.rows_first(Map(copy.id, axes, (store,), (TRUE,), copy.line))

    def rows_first(self, op: Map) -> Map:
        """A body over turned buffers, its axes in the order of their dimensions."""
        new = evolve(op, stores=tuple(map(self.store, op.stores)))
        held = next((e for e in map_elements(op) if e.buffer.name in self.turned), None)
        lead = held.indices[-1] if held else None
        first = lead.name if isinstance(lead, Var) else ""
        return evolve(new, axes=tuple(sorted(op.axes, key=lambda axis: axis[0] != first)))


def _place(region: Region, axes: tuple[tuple[str, Expr], ...]) -> tuple[Expr, ...]:
    """The element of a region at the axes; a dimension that was indexed stays where it is."""
    steps = iter(axes)
    return tuple(
        start if axis in region.squeezed else start + Var(next(steps)[0])
        for axis, start in enumerate(region.start)
    )


__all__ = ["swap_operands"]
