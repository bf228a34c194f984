"""Kernel rewrites that schedules ask for: staged stores, whole or in pieces, and shares of rows.

Both are plain functions from IR to IR, so that the derivation of spaces, the passes and the
emitters apply the very same rewrite.

Invariant: the rewritten kernel has the meaning of the original; `take_rows` over all indices of a
count together does what the op did.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from explorer.errors import ScheduleError
from explorer.expr import Const, Expr, IntLike, Var, binary, const, substitute, substitute_cond
from explorer.ir.access import access, map_elements
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
    Loop,
    Map,
    Op,
    Reduce,
    Region,
    Stmt,
    Store,
    Unary,
    Value,
    Where,
    While,
    walk,
    whole,
)
from explorer.machine import Scope

# ---------------------------------------------------------------- staged stores


def stage_store(kernel: Kernel, op_id: str, staging_name: str, pieces: int = 1) -> Kernel:
    """Send a fragment-to-global copy through a shared buffer.

    `op: C[..] <- frag` becomes `op_stage: staging <- frag` and `op: C[..] <- staging`. The staging
    buffer has the shape of the copied region and the type of the tensor. In `pieces` it has that
    part of the columns, and both halves follow once a piece: `op_stage_1`, `op_1`, and so on.
    """
    op = _placed(kernel, op_id)
    if not isinstance(op, Copy) or not op.src.buffer.scope.private:
        raise ScheduleError(
            f"staged store '{op_id}': only a fragment-to-global copy can be staged"
        )
    if op.dst.buffer.scope != Scope.GLOBAL:
        raise ScheduleError(
            f"staged store '{op_id}': its target '{op.dst.buffer.name}' is on chip"
        )
    *rows, columns = op.src.shape
    width = columns // pieces
    staging = Buffer(staging_name, (*rows, width), op.dst.buffer.dtype, Scope.SHARED)
    halves: list[Copy] = []
    for piece in range(pieces):
        end = f"_{piece}" if piece else ""
        src, dst = (_columns(region, piece, width) for region in (op.src, op.dst))
        halves.append(evolve(op, id=f"{op_id}_stage{end}", src=src, dst=whole(staging)))
        halves.append(evolve(op, id=f"{op_id}{end}", src=whole(staging), dst=dst))
    names = {buffer.name for buffer in (*kernel.tensors, *kernel.buffers)}
    ids = {statement.id for statement, _ in walk(kernel.body)} - {op_id}
    taken = [name for name in (staging_name,) if name in names]
    taken += [half.id for half in halves if half.id in ids]
    if taken:
        raise ScheduleError(
            f"staged store '{op_id}': '{taken[0]}' is taken; rename the buffer or the op"
        )
    return evolve(
        kernel,
        buffers=(*kernel.buffers, staging),
        body=_replace(kernel.body, op_id, tuple(halves)),
    )


def _columns(region: Region, piece: int, width: Expr) -> Region:
    """The `piece`-th part of a region's columns, its last dimension that is no single index."""
    last = max(axis for axis in range(len(region.extent)) if axis not in region.squeezed)
    start, extent = list(region.start), list(region.extent)
    start[last] = start[last] + piece * width
    extent[last] = width
    return evolve(region, start=tuple(start), extent=tuple(extent))


def _placed(kernel: Kernel, op_id: str) -> Stmt:
    try:
        return kernel.statement(op_id)
    except KeyError as problem:
        raise ScheduleError(str(problem.args[0])) from None


def _replace(body: tuple[Stmt, ...], op_id: str, new: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for statement in body:
        if statement.id == op_id:
            result += new
        elif isinstance(statement, Loop | If | While | Group):
            result.append(evolve(statement, body=_replace(statement.body, op_id, new)))
        else:
            result.append(statement)
    return tuple(result)


# ---------------------------------------------------------------- shares of rows


def row_fragments(placed: tuple[Op, ...]) -> frozenset[str]:
    """The private buffers whose leading dimension is the rows of the tile that `placed` computes.

    Accumulators and A operands of gemms are, B operands are not; without a gemm every private
    buffer of rank two or more is. A vector is if it meets a row fragment along its leading index.
    """
    gemms = [op for op in placed if isinstance(op, Gemm)]
    columns = {op.b.buffer.name for op in gemms}
    if gemms:
        seeds = [
            side.buffer
            for op in gemms
            for side in (op.c, *(() if op.transpose_a else (op.a,)))
            if side.buffer.scope.private
        ]
    else:
        touched = (region.buffer for op in placed for region in _regions(op))
        seeds = [b for b in touched if b.scope == Scope.FRAGMENT and len(b.shape) > 1]
    rows = {buffer.name for buffer in seeds} - columns
    while True:
        found = {name for op in placed for name in _meeting_rows(op, rows)} - columns
        if found <= rows:
            return frozenset(rows)
        rows |= found


def _regions(op: Op) -> Iterator[Region]:
    touched = access(op)
    yield from touched.reads
    yield from touched.writes


def _meeting_rows(op: Op, rows: set[str]) -> Iterator[str]:
    match op:
        case Map():
            axis = _row_axis(op, frozenset(rows))
            for element in map_elements(op):
                if axis and element.buffer.scope.private and element.indices[0] == Var(axis):
                    yield element.buffer.name
        case Reduce(_, _, src, dst, axis) if axis > 0:
            if {src.buffer.name, dst.buffer.name} & rows:
                yield from (src.buffer.name, dst.buffer.name)
        case Copy(_, src, dst) if src.buffer.scope.private and dst.buffer.scope.private:
            if {src.buffer.name, dst.buffer.name} & rows:
                yield from (src.buffer.name, dst.buffer.name)


def _row_axis(op: Map, rows: frozenset[str]) -> str | None:
    axes = {name for name, _ in op.axes}
    for element in map_elements(op):
        lead = element.indices[0]
        if element.buffer.name in rows and isinstance(lead, Var) and lead.name in axes:
            return lead.name
    return None


def _divided_axis(op: Map, held: frozenset[str]) -> str:
    """The axis of a body that is divided: the rows of what is held in shares, else the first."""
    return _row_axis(op, held) or op.axes[0][0]


def take_rows(op: Op, private_names: frozenset[str], index: IntLike, count: int) -> Op:
    """The share `index` of `count` of an op's rows.

    `private_names` are the private buffers held in shares: their leading dimension is divided by
    `count`. An op that writes another private buffer is done in full by everybody.
    """
    if count == 1:
        return op
    share = _Share(private_names, const(index), count, op.id)
    if isinstance(op, Define) or _done_in_full(op, private_names):
        return op
    match op:
        case Copy():
            return evolve(op, src=share.rows(op.src), dst=share.rows(op.dst))
        case Fill():
            return evolve(op, dst=share.rows(op.dst))
        case Gemm():
            a = share.rows(op.a, axis=1 if op.transpose_a else 0)
            return evolve(op, a=a, c=share.rows(op.c))
        case Reduce():
            if op.axis == 0:
                raise ScheduleError(f"split of '{op.id}': it reduces over the rows that are split")
            return evolve(op, src=share.rows(op.src), dst=share.rows(op.dst))
        case Map():
            return share.map(op)


def _done_in_full(op: Op, held: frozenset[str]) -> bool:
    """Whether everybody does all of an op: it sets what none of them holds a share of."""
    touched = {region.buffer.name for region in _regions(op)}
    into_whole = any(
        r.buffer.scope.private and r.buffer.name not in held for r in access(op).writes
    )
    return into_whole and not touched & held


def shares_meet(op: Op, held: frozenset[str], buffer: str) -> bool:
    """Whether shares of an op touch the same rows of a buffer that nobody holds in shares."""
    if buffer not in {region.buffer.name for region in _regions(op)}:
        return False
    if isinstance(op, Define) or _done_in_full(op, held):
        return True
    match op:
        case Gemm():
            return op.b.buffer.name == buffer or (op.transpose_a and op.a.buffer.name == buffer)
        case Map():
            row = Var(_divided_axis(op, held))
            return any(e.buffer.name == buffer and e.indices[0] != row for e in map_elements(op))
    return False


def take_buffer(buffer: Buffer, count: int) -> Buffer:
    """A private buffer of which a role holds one share of `count` along its leading dimension."""
    rows = _divided(buffer.shape[0], count, f"buffer '{buffer.name}'")
    return evolve(buffer, shape=(rows, *buffer.shape[1:]))


def _divided(rows: Expr, count: int, what: str) -> Expr:
    if isinstance(rows, Const) and rows.value % count:
        raise ScheduleError(
            f"split of {what}: {rows} rows do not divide into {count} equal shares"
        )
    return binary("//", rows, count)


@frozen
class _Share:
    held: frozenset[str]
    index: Expr
    count: int
    op: str

    def rows(self, region: Region, axis: int = 0) -> Region:
        """The share of a region's rows; `axis` counts the dimensions that are not squeezed."""
        kept = [d for d in range(len(region.extent)) if d not in region.squeezed]
        if axis >= len(kept):
            raise ScheduleError(f"split of '{self.op}': '{region.buffer.name}' has no row axis")
        at = kept[axis]
        share = _divided(region.extent[at], self.count, f"'{self.op}'")
        extent = (*region.extent[:at], share, *region.extent[at + 1 :])
        if region.buffer.name in self.held:
            if region.start[at] != Const(0) or region.extent[at] != region.buffer.shape[at]:
                raise ScheduleError(
                    f"split of '{self.op}': it takes part of the rows of a fragment"
                )
            return evolve(region, buffer=take_buffer(region.buffer, self.count), extent=extent)
        begin = region.start[at] + self.index * share
        return evolve(
            region, start=(*region.start[:at], begin, *region.start[at + 1 :]), extent=extent
        )

    def map(self, op: Map) -> Map:
        axis = _divided_axis(op, self.held)
        extents = dict(op.axes)
        share = _divided(extents[axis], self.count, f"'{self.op}'")
        env: dict[str, IntLike] = {axis: Var(axis) + self.index * share}
        stores = tuple(
            Store(*self._target(s, env), self._value(s.value, env), s.atomic) for s in op.stores
        )
        guards = tuple(substitute_cond(guard, env) for guard in op.guards)
        axes = tuple((name, share if name == axis else size) for name, size in op.axes)
        return evolve(op, axes=axes, stores=stores, guards=guards)

    def _target(self, store: Store, env: dict[str, IntLike]) -> tuple[Buffer, tuple[Expr, ...]]:
        element = self._element(Element(store.buffer, store.indices), env)
        return element.buffer, element.indices

    def _element(self, element: Element, env: dict[str, IntLike]) -> Element:
        indices = tuple(substitute(index, env) for index in element.indices)
        if element.buffer.name not in self.held:
            return Element(element.buffer, indices)
        return Element(take_buffer(element.buffer, self.count), (element.indices[0], *indices[1:]))

    def _value(self, value: Value, env: dict[str, IntLike]) -> Value:
        match value:
            case Element():
                return self._element(value, env)
            case Index(expr):
                return Index(substitute(expr, env))
            case Unary(op, operand):
                return Unary(op, self._value(operand, env))
            case Arith(op, lhs, rhs):
                return Arith(op, self._value(lhs, env), self._value(rhs, env))
            case Where(cond, then, otherwise):
                parts = (self._value(part, env) for part in (cond, then, otherwise))
                return Where(*parts)
            case Cast(dtype, operand):
                return Cast(dtype, self._value(operand, env))
        return value


__all__ = ["row_fragments", "shares_meet", "stage_store", "take_buffer", "take_rows"]
