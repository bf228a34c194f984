"""What the emitter of one op sees: places of buffers, slots in use, the writer.

Invariant: every buffer that the op touches has a place, and its pointer is declared before the op.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from explorer.codegen.cpu.elements import Place, ValueEmitter
from explorer.codegen.cpu.helpers import Helpers
from explorer.codegen.cpu.layout import Layout
from explorer.codegen.cpu.scalars import c_expr, fixed
from explorer.codegen.cpu.tails import Tail
from explorer.codegen.text import Writer
from explorer.errors import KernelError
from explorer.expr import Const, Expr
from explorer.ir.nodes import Op, Region
from explorer.machine import Machine


@frozen
class ProgramContext:
    """What is common to all ops of a program. `matrix` maps a gemm to its register block."""

    machine: Machine
    layout: Layout
    tails: Mapping[str, Tail]
    matrix: Mapping[str, tuple[int, int]]
    helpers: Helpers


@frozen
class View:
    """A region of rank 2 (rank 1: one row) as a matrix: base pointer and strides in elements.

    `start` and `size` are the region's place in the matrix and the matrix's extents, as C. The
    base is element (0, 0) of the matrix for a tensor, the region's first element on chip.
    """

    place: Place
    pointer: str
    strides: tuple[int, int]
    extent: tuple[Expr, Expr]
    start: tuple[str, str]
    size: tuple[str, str]


@frozen
class OpContext:
    """What one op sees. `whole` is the op before a warp's share was taken of it."""

    program: ProgramContext
    writer: Writer
    places: Mapping[str, Place]
    slots: Mapping[str, str]
    whole: Op
    warps: int

    @property
    def values(self) -> ValueEmitter:
        """The emitter of element values."""
        return ValueEmitter(self.places.__getitem__)

    def view(self, region: Region) -> View | None:
        """The region as a matrix, or None if it has more than two dimensions."""
        place = self.places[region.buffer.name]
        kept = [axis for axis in range(len(region.extent)) if axis not in region.squeezed]
        if not 1 <= len(kept) <= 2:
            return None
        offsets, guards = [], []
        for axis, start in enumerate(region.start):
            if axis not in kept or not place.is_global:
                offsets.append(start * place.strides[axis])
            if axis not in kept and place.is_global:
                guards.append(f"{c_expr(start)} >= 0 && {c_expr(start)} < {place.shape[axis]}")
        pointer = " + ".join([place.pointer, *(c_expr(o) for o in offsets if o != Const(0))])
        row = len(kept) == 2
        rows = str(place.shape[kept[0]]) if row else "1"
        if guards:
            rows = f"({' && '.join(guards)} ? {rows} : 0)"
        starts = [c_expr(region.start[axis]) for axis in kept]
        return View(
            place,
            pointer,
            (place.strides[kept[0]] if row else 0, place.strides[kept[-1]]),
            (region.extent[kept[0]] if row else Const(1), region.extent[kept[-1]]),
            (starts[0] if row else "0", starts[-1]),
            (rows, str(place.shape[kept[-1]])),
        )

    def size(self, extent: Expr) -> int:
        """A fixed extent of this op."""
        return fixed(extent, f"an extent of '{self.whole.id}'")

    def unsupported(self, what: str) -> KernelError:
        """The error for something that the cpu backend has not."""
        return KernelError(f"'{self.whole.id}': the cpu backend has no {what}")
