"""What is the same for neighbours along a grid axis: copies that one fetch can serve them with.

Invariant: blocks that differ in that grid variable alone run such a copy equally often, each time
with the same source and destination regions.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from explorer.expr import Const, Expr, IntLike
from explorer.ir.access import elements, is_bulk_load
from explorer.ir.nodes import Copy, Define, Group, Kernel, Loop, Region, Stmt, free_vars, walk
from explorer.ir.values import value_exprs


def uniform_copies(kernel: Kernel, axis: str) -> dict[str, Copy]:
    """The copies of tensors into shared tiles that do not depend on a grid variable, by id.

    Their rows can be divided (`row_share`), and counted loops alone stand around them, whose
    bounds do not depend on it either.
    """
    varying = _varying(kernel, axis)
    return {op.id: op for op in _unconditional(kernel.body, varying) if _is_uniform(op, varying)}


def row_share(copy: Copy, number: IntLike, count: int) -> Copy:
    """The copy of the `number`-th of `count` equal shares of a copy's rows."""
    return evolve(copy, src=_rows(copy.src, number, count), dst=_rows(copy.dst, number, count))


def copied_rows(copy: Copy) -> Expr:
    """The rows of a copy that can be divided."""
    (axis,) = _row_axes(copy.dst)
    return copy.dst.extent[axis]


def _rows(region: Region, number: IntLike, count: int) -> Region:
    (axis,) = _row_axes(region)
    start, extent = list(region.start), list(region.extent)
    extent[axis] = extent[axis] // count
    start[axis] = start[axis] + extent[axis] * number
    return evolve(region, start=tuple(start), extent=tuple(extent))


def _varying(kernel: Kernel, axis: str) -> frozenset[str]:
    """The names of scalars that may differ between the neighbours: data counts as different."""
    found = {axis}
    while True:
        before = len(found)
        for statement, _ in walk(kernel.body):
            match statement:
                case Loop(_, var, start, extent):
                    if found & (free_vars(start) | free_vars(extent)):
                        found.add(var)
                case Define(_, name, value):
                    exprs = value_exprs(value)
                    if any(elements(value)) or any(found & free_vars(e) for e in exprs):
                        found.add(name)
        if len(found) == before:
            return frozenset(found)


def _unconditional(body: tuple[Stmt, ...], varying: frozenset[str]) -> Iterator[Copy]:
    for statement in body:
        match statement:
            case Copy() if is_bulk_load(statement):
                yield statement
            case Loop(_, _, start, extent, _, _, inner):
                if not varying & (free_vars(start) | free_vars(extent)):
                    yield from _unconditional(inner, varying)
            case Group(_, inner):
                yield from _unconditional(inner, varying)


def _is_uniform(copy: Copy, varying: frozenset[str]) -> bool:
    exprs = [e for region in (copy.src, copy.dst) for e in (*region.start, *region.extent)]
    divisible = all(len(_row_axes(region)) == 1 for region in (copy.src, copy.dst))
    return divisible and not any(free_vars(expr) & varying for expr in exprs)


def _row_axes(region: Region) -> list[int]:
    """The dimensions besides the last one that a region is wide in."""
    return [axis for axis, extent in enumerate(region.extent[:-1]) if extent != Const(1)]
