"""How much of a slot is inside its tensor, so that a gemm leaves out the padding of tails.

A copy that can leave its tensor writes the live rows and columns of the slot beside it; the
barrier that hands the slot over hands them over too.

Invariant: a buffer is listed here only if whole copies from tensors are all that writes it, so
that everything outside its live part is 0.
"""

from __future__ import annotations

from attrs import frozen

from explorer.codegen.cpu.layout import ops_of
from explorer.codegen.cpu.scalars import c_name
from explorer.expr import Const, Expr, affine
from explorer.ir.access import access
from explorer.ir.nodes import Buffer, Copy, Op
from explorer.machine import Scope
from explorer.program.nodes import Program


@frozen
class Tail:
    """A shared buffer of rank 2 with live extents; `partial` per dimension: can it be cut."""

    buffer: Buffer
    partial: tuple[bool, bool]

    @property
    def array(self) -> str:
        """The C array of live extents, by block and version."""
        return c_name("live", self.buffer.name)


def tails_of(program: Program) -> dict[str, Tail]:
    """The buffers whose live part is known, by name."""
    ops = [op for role in program.roles for op in ops_of(role.body)]
    found: dict[str, Tail] = {}
    for ring in program.rings:
        buffer = ring.buffer
        writers = [op for op in ops if _writes(op, buffer.name)]
        if len(buffer.shape) != 2 or not writers:
            continue
        cuts = [_cuts(op, buffer) for op in writers]
        if all(cut is not None for cut in cuts):
            rows, columns = (any(cut[axis] for cut in cuts if cut) for axis in (0, 1))
            found[buffer.name] = Tail(buffer, (rows, columns))
    return found


def _writes(op: Op, name: str) -> bool:
    return any(region.buffer.name == name for region in access(op).writes)


def _cuts(op: Op, buffer: Buffer) -> tuple[bool, bool] | None:
    """Per dimension, whether a whole copy can leave its tensor; None for another op."""
    if not isinstance(op, Copy) or op.src.buffer.scope != Scope.GLOBAL:
        return None
    whole = op.dst.extent == buffer.shape and all(s == Const(0) for s in op.dst.start)
    kept = [axis for axis in range(len(op.src.extent)) if axis not in op.src.squeezed]
    if not whole or len(kept) != 2:
        return None
    first, second = (
        _cut(op.src.start[axis], op.src.extent[axis], op.src.buffer.shape[axis]) for axis in kept
    )
    return first, second


def _cut(start: Expr, extent: Expr, size: Expr) -> bool:
    if not isinstance(extent, Const) or not isinstance(size, Const) or size.value % extent.value:
        return True
    form = affine(start)
    if form is None:
        return True
    return any(value % extent.value for value in (form.offset, *(c for _, c in form.terms)))
