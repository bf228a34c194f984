"""Which loop of a kernel can be worked on in parts, by blocks that know nothing of each other.

It is the loop of the root that holds the gemms, where all that an iteration leaves for later is
added to their accumulators, and these start at zero: the sums of any division of its iterations
then add up to the whole. What precedes the loop is done for every part, what follows it once.

Invariant: the one place that says so; rules, skeletons and the pass that makes the parts use it.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.errors import ScheduleError
from explorer.expr import FALSE, Expr, ceildiv, maximum, minimum
from explorer.ir.access import access, statement_access
from explorer.ir.nodes import (
    Buffer,
    Define,
    Fill,
    Gemm,
    If,
    Kernel,
    Literal,
    Loop,
    Stmt,
    While,
    free_vars,
    ops,
    walk,
    whole,
)
from explorer.machine import Scope
from explorer.schedule.copies import overwrites
from explorer.schedule.stream import StreamedLoop

SUM_TYPE = "float32"


@frozen
class Reduction:
    """A loop that adds to `sums` only, and the ids of the statements of the root behind it."""

    loop: Loop
    sums: tuple[Buffer, ...]
    behind: tuple[str, ...]


@frozen
class Share:
    """The iterations of one part: `extent` of them, each `offset` later than it counts itself."""

    offset: Expr
    extent: Expr


def share_of(loop: Loop, part: Expr, parts: int) -> Share:
    """Part 0, 1, ... of a loop in `parts` pieces of equal length; the last may be shorter or
    empty."""
    chunk = ceildiv(loop.extent, parts)
    offset = part * chunk
    return Share(offset, maximum(minimum(chunk, loop.extent - offset), 0))


def part_name(loop: Loop) -> str:
    """The grid variable that numbers the parts of a loop."""
    return StreamedLoop(loop.var, loop.extent).part.name


def last_name(loop: Loop) -> str:
    """The scalar that says whether the sums of all parts of a loop are there."""
    return f"{loop.var}_last"


def _added_names(loop: Loop) -> frozenset[str]:
    """Scalars that a program has where blocks share a loop."""
    shared = StreamedLoop(loop.var, loop.extent)
    return frozenset(each.name for each in (shared.first, shared.extent, shared.part)) | {
        last_name(loop)
    }


def _scalar_names(kernel: Kernel) -> Iterator[str]:
    yield from kernel.scalars
    yield from (name for name, _ in kernel.grid)
    for statement, _ in walk(kernel.body):
        match statement:
            case Loop():
                yield statement.var
            case Define():
                yield statement.name


def alike_tiles(kernel: Kernel, loop: Loop) -> bool:
    """Whether the tiles have equally many iterations of a loop, and both numbers are known."""
    sizes = (loop.extent, *(extent for _, extent in kernel.grid))
    return not any(free_vars(size) for size in sizes)


def reduction_of(kernel: Kernel) -> Reduction:
    """The loop of a kernel that can be split; ScheduleError says why there is none."""
    loop, before, behind = _main_loop(kernel)
    gemms = [op for op in ops((loop,)) if isinstance(op, Gemm)]
    sums = {gemm.c.buffer.name: gemm.c.buffer for gemm in gemms}
    taken = sorted(_added_names(loop).intersection(_scalar_names(kernel)))
    if taken:
        raise ScheduleError(f"the reduction of {loop.id}: '{taken[0]}' is taken; rename it")
    for reason in _reasons(loop, before, behind, gemms, frozenset(sums)):
        raise ScheduleError(f"the reduction of {loop.id} cannot be split: {reason}")
    return Reduction(loop, tuple(sums.values()), tuple(statement.id for statement in behind))


def _main_loop(kernel: Kernel) -> tuple[Loop, tuple[Stmt, ...], tuple[Stmt, ...]]:
    places = [
        (number, statement)
        for number, statement in enumerate(kernel.body)
        if any(isinstance(op, Gemm) for op in ops((statement,)))
    ]
    if len(places) == 1:
        number, statement = places[0]
        if isinstance(statement, Loop):
            return statement, kernel.body[:number], kernel.body[number + 1 :]
    raise ScheduleError(
        f"kernel {kernel.name} has no one counted loop of its root that holds all gemms"
    )


def _reasons(
    loop: Loop,
    before: tuple[Stmt, ...],
    behind: tuple[Stmt, ...],
    gemms: list[Gemm],
    sums: frozenset[str],
) -> Iterator[str]:
    for gemm in gemms:
        buffer = gemm.c.buffer
        if buffer.scope != Scope.FRAGMENT or buffer.dtype.name != SUM_TYPE:
            yield f"{gemm.id} adds to {buffer.name}, which is no fragment of {SUM_TYPE}"
        if gemm.c != whole(buffer) or gemm.clear_accum != FALSE:
            yield f"{gemm.id} adds to part of {buffer.name}, or clears it"
        if {gemm.a.buffer.name, gemm.b.buffer.name} & sums:
            yield f"{gemm.id} reads sums that other iterations add to"
    for op in ops((loop,)):
        found = access(op)
        if isinstance(op, Define):
            yield f"{op.id} sets a scalar"
        if not isinstance(op, Gemm) and found.names & sums:
            yield f"{op.id} touches sums before all iterations have added to them"
    yield from _carried(loop, behind, sums)
    for name in sorted(sums):
        if not _cleared(before, name):
            yield f"{name} is not cleared right before it"
    for statement in before:
        for region in statement_access(statement).writes:
            if region.buffer.scope == Scope.GLOBAL:
                yield f"{statement.id} before it writes {region.buffer.name} in global memory"


def _carried(loop: Loop, behind: tuple[Stmt, ...], sums: frozenset[str]) -> Iterator[str]:
    """What iterations leave besides sums: each must write it anew, and nothing behind reads it."""
    read_behind = {
        region.buffer.name for each in behind for region in statement_access(each).reads
    }
    written = {r.buffer.name: r.buffer for r in statement_access(loop).writes}
    for name, buffer in written.items():
        if name in sums:
            continue
        if buffer.scope == Scope.GLOBAL:
            yield f"it writes {name} in global memory"
        first = next(s for s in loop.body if _touches(s, name))
        if isinstance(first, Loop | If | While) or not all(
            overwrites(op, name) for op in ops((first,)) if _touches(op, name)
        ):
            yield f"{first.id} does not write {name} anew in every iteration"
        if name in read_behind:
            yield f"what follows it reads {name}"


def _cleared(before: tuple[Stmt, ...], name: str) -> bool:
    """Whether the last access of a buffer fills it with zeros, all of it."""
    last = next((each for each in reversed(before) if _touches(each, name)), None)
    if not isinstance(last, Fill) or last.dst != whole(last.dst.buffer):
        return False
    value = last.value
    return isinstance(value, Literal) and not isinstance(value.value, bool) and value.value == 0


def _touches(statement: Stmt, name: str) -> bool:
    return name in statement_access(statement).names


__all__ = [
    "Reduction",
    "Share",
    "alike_tiles",
    "last_name",
    "part_name",
    "reduction_of",
    "share_of",
]
