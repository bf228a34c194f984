"""A warp's share of an op of its role.

Invariant: the shares of all warps together do what the op does; each element is written by one.
"""

from __future__ import annotations

from attrs import evolve

from explorer.codegen.cpu.scalars import PART
from explorer.errors import ScheduleError
from explorer.expr import Expr, ceildiv, const, maximum, minimum
from explorer.ir.nodes import Copy, Op, Region
from explorer.ir.transforms import take_rows


def share_of(op: Op, held: frozenset[str], warps: int) -> Op | None:
    """The share of warp PART of `warps`; None where the first warp must do all of it."""
    try:
        return take_rows(op, held, PART, warps)
    except ScheduleError:
        if not isinstance(op, Copy) or {op.src.buffer.name, op.dst.buffer.name} & held:
            return None
    return evolve(op, src=_uneven(op.src, warps), dst=_uneven(op.dst, warps))


def _uneven(region: Region, warps: int) -> Region:
    """Rows in chunks of the same size but for the last ones."""
    axis = next(a for a in range(len(region.extent)) if a not in region.squeezed)
    rows = region.extent[axis]
    chunk = ceildiv(rows, warps)
    first: Expr = minimum(PART * chunk, rows)
    count = maximum(const(0), minimum(chunk, rows - first))
    start, extent = list(region.start), list(region.extent)
    start[axis], extent[axis] = start[axis] + first, count
    return evolve(region, start=tuple(start), extent=tuple(extent))
