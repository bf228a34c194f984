"""Regions as matrices: rows and columns of a tensor or of a shared tile.

Invariant: a view covers the elements of its region in the same order; what is no matrix is refused
with the buffer's name.
"""

from __future__ import annotations

from attrs import frozen

from explorer.codegen.cuda.scalars import Scalars, c_name, fixed
from explorer.errors import ScheduleError
from explorer.expr import Const, Expr, const, product
from explorer.ir.nodes import Buffer, Region
from explorer.memory.linear import offset_bits


@frozen
class View:
    """`rows` x `columns` elements from (row, column) on."""

    rows: int
    columns: int
    row: Expr
    column: Expr


def shared_view(region: Region) -> View:
    """A region of a shared buffer, whose leading dimensions count as rows."""
    shape, buffer = region.buffer.shape, region.buffer
    row: Expr = const(0)
    for axis, start in enumerate(region.start[:-1]):
        row = row + start * product(shape[axis + 1 : -1])
    wide = [axis for axis, e in enumerate(region.extent[:-1]) if e != Const(1)]
    if any(region.extent[axis] != shape[axis] for axis in wide[1:]):
        raise ScheduleError(f"'{buffer.name}': a region of it does not lie in successive rows")
    rows = fixed(product(region.extent[:-1]), f"the rows of '{buffer.name}'")
    columns = fixed(region.extent[-1], f"the columns of '{buffer.name}'")
    return View(rows, columns, row, region.start[-1])


@frozen
class TensorView:
    """A region of a tensor: `offset` elements lead to its first one.

    `rows_left` and `columns_left` are what the tensor holds from there on.
    """

    buffer: Buffer
    rows: int
    columns: int
    offset: Expr
    pitch: int
    rows_left: Expr
    columns_left: Expr
    row: Expr
    column: Expr

    def pointer(self, scalars: Scalars) -> str:
        """The address of the first element; 64 bits wide before anything is multiplied."""
        name = c_name("t", self.buffer.name)
        if self.pitch == 0:
            return f"({name} + {scalars.expr(self.offset)})"
        lead = "" if self.offset == Const(0) else f" + {self._lead(scalars)}"
        return (
            f"({name}{lead} + (long long){scalars.expr(self.row)} * {self.pitch}ll"
            f" + {scalars.expr(self.column)})"
        )

    def _lead(self, scalars: Scalars) -> str:
        """The offset of the other dimensions; a cluster may stand one index beyond each."""
        extents, strides = self.buffer.shape, self.buffer.strides
        sizes = [
            (e.value + 1, s.value)
            for e, s in zip(extents, strides, strict=True)
            if isinstance(e, Const) and isinstance(s, Const)
        ]
        if len(sizes) < len(extents) or offset_bits(*zip(*sizes, strict=True)) > 32:
            return scalars.wide(self.offset)
        return f"(long long){scalars.expr(self.offset)}"


def tensor_view(region: Region) -> TensorView:
    """A region of a tensor, with at most one dimension beside the last that is not a point."""
    buffer, shape = region.buffer, region.buffer.shape
    wide = [axis for axis, extent in enumerate(region.extent[:-1]) if extent != Const(1)]
    if len(wide) > 1:
        raise ScheduleError(f"'{buffer.name}': a region of it has more than two dimensions")
    axis = wide[0] if wide else len(shape) - 2
    columns = fixed(region.extent[-1], f"the columns of '{buffer.name}'")
    left = shape[-1] - region.start[-1]
    if axis < 0:
        return TensorView(
            buffer, 1, columns, region.start[-1], 0, const(1), left, const(0), region.start[-1]
        )
    offset: Expr = const(0)
    for other, start in enumerate(region.start[:-1]):
        if other != axis:
            offset = offset + start * buffer.strides[other]
    return TensorView(
        buffer,
        fixed(region.extent[axis], f"the rows of '{buffer.name}'"),
        columns,
        offset,
        fixed(buffer.strides[axis], f"the pitch of '{buffer.name}'"),
        shape[axis] - region.start[axis],
        left,
        region.start[axis],
        region.start[-1],
    )
