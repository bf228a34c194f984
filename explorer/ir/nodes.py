"""The kernel IR: a straight-line program of tile ops and loops over buffers.

A `Kernel` says what is computed, never who computes it or when: no roles, no barriers, no rings.
Names of buffers, loops and ops come from the user's source and are the handles by which schedules
refer to them. Shapes, extents and regions are `Expr`s, so that one kernel serves every tile size;
`at` fixes its Params.

Invariant: every statement has an id that is unique in the kernel; what an op reads and writes is
derived from its operands (`ir.access`), never declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any, Self, TypeAlias, TypeVar, cast

from attrs import evolve, field, frozen

from explorer.errors import KernelError
from explorer.expr import (
    FALSE,
    Cond,
    Expr,
    IntLike,
    Param,
    Var,
    const,
    product,
    substitute,
    substitute_cond,
    symbols,
)
from explorer.ir.annotations import Annotation
from explorer.ir.dtypes import DType
from explorer.ir.pools import FixedPlace, Pool, place_in
from explorer.machine import Scope

# ---------------------------------------------------------------- buffers


@frozen
class Buffer:
    """A named array of one scope; `shape` in elements.

    A view shows the bytes of the buffer `storage` in another shape or type; others own theirs.
    Rows of a tensor may be further apart than they are long: `pitch` elements, 0 where they are
    dense.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: Scope
    storage: str = ""
    pitch: int = 0

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Elements from an index of each dimension to the next."""
        if not self.shape:
            return ()
        rows = const(self.pitch) if self.pitch else self.shape[-1]
        outer = [rows * product(self.shape[axis + 1 : -1]) for axis in range(len(self.shape) - 1)]
        return (*outer, const(1))

    @property
    def bits(self) -> Expr:
        """Its size in bits, unpadded."""
        return product(self.shape) * self.dtype.bits

    @property
    def home(self) -> str:
        """The name of the buffer that owns its bytes."""
        return self.storage or self.name


@frozen
class Region:
    """A box of a buffer: `start` and `extent` per dimension, in elements.

    A dimension that was indexed rather than sliced has extent 1 and is listed in `squeezed`.
    """

    buffer: Buffer
    start: tuple[Expr, ...]
    extent: tuple[Expr, ...]
    squeezed: frozenset[int] = frozenset()

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents of the dimensions that remain after indexing."""
        return tuple(e for axis, e in enumerate(self.extent) if axis not in self.squeezed)


def whole(buffer: Buffer) -> Region:
    """The region that is all of a buffer."""
    return Region(buffer, tuple(const(0) for _ in buffer.shape), buffer.shape)


# ---------------------------------------------------------------- element values


@frozen
class Literal:
    """A number; infinite values are floats."""

    value: float | int | bool


@frozen
class Index:
    """A symbolic integer used as a value."""

    expr: Expr


@frozen
class Element:
    """One element of a buffer, read."""

    buffer: Buffer
    indices: tuple[Expr, ...]


@frozen
class Unary:
    """op in neg not abs exp exp2 log log2 sqrt rsqrt tanh sigmoid floor ceil."""

    op: str
    operand: Value


@frozen
class Arith:
    """op in + - * / // % min max pow & | ^ << >> < <= == != and or."""

    op: str
    lhs: Value
    rhs: Value


@frozen
class Where:
    """`then` where `cond` is true, else `otherwise`."""

    cond: Value
    then: Value
    otherwise: Value


@frozen
class Cast:
    """A value converted to another element type.

    To a floating-point type: round to nearest even. From floating point to an integer: truncate
    and saturate, NaN becomes 0. From integer to integer: wrap.
    """

    dtype: DType
    operand: Value


Value: TypeAlias = Literal | Index | Element | Unary | Arith | Where | Cast

# ---------------------------------------------------------------- ops


@frozen
class Copy:
    """dst <- src, converted to dst's type; reads outside a tensor give 0, writes there vanish."""

    id: str
    src: Region
    dst: Region
    line: int = field(default=0, eq=False)


@frozen
class Gemm:
    """c (M x N) <- op(a) (M x K) op(b) (K x N) + (0 where `clear_accum` holds, else c).

    `transpose_a`: a is stored K x M. `transpose_b`: b is stored N x K.
    """

    id: str
    a: Region
    b: Region
    c: Region
    transpose_a: bool
    transpose_b: bool
    clear_accum: Cond = FALSE
    line: int = field(default=0, eq=False)


@frozen
class Fill:
    """Every element of `dst` <- `value`."""

    id: str
    dst: Region
    value: Value
    line: int = field(default=0, eq=False)


@frozen
class Reduce:
    """dst <- reduction of `src` over `axis`, combined with the old dst unless `clear`.

    `kind` is one of max, min, sum, absmax.
    """

    id: str
    kind: str
    src: Region
    dst: Region
    axis: int
    clear: bool = True
    line: int = field(default=0, eq=False)


@frozen
class Store:
    """buffer[indices] <- value, or buffer[indices] += value as one atomic step."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Value
    atomic: bool = False


@frozen
class Map:
    """An element-wise body over independent axes: `stores` in order, for each index tuple.

    A store may be guarded: `guards[i]` holds for store i (TRUE where unguarded).
    """

    id: str
    axes: tuple[tuple[str, Expr], ...]
    stores: tuple[Store, ...]
    guards: tuple[Cond, ...]
    line: int = field(default=0, eq=False)


@frozen
class Define:
    """The integer scalar `name` <- `value`; later Exprs refer to it as Var(name)."""

    id: str
    name: str
    value: Value
    line: int = field(default=0, eq=False)


Op: TypeAlias = Copy | Gemm | Fill | Reduce | Map | Define

# ---------------------------------------------------------------- statements


@frozen
class Loop:
    """for var in range(start, start + extent). `kind`: serial, pipelined, unrolled, persistent.

    `num_stages` is the iterations that the author allows in flight (0 or 1: no overlap);
    `multi_buffer_eligible` names buffers that the author claims every iteration writes first.
    """

    id: str
    var: str
    start: Expr
    extent: Expr
    kind: str
    num_stages: int
    body: tuple[Stmt, ...]
    line: int = field(default=0, eq=False)
    multi_buffer_eligible: tuple[str, ...] = ()


@frozen
class If:
    """Statements under a condition on scalars; there is no else."""

    id: str
    cond: Cond
    body: tuple[Stmt, ...]
    line: int = field(default=0, eq=False)


@frozen
class While:
    """Statements repeated while a condition on scalars holds."""

    id: str
    cond: Cond
    body: tuple[Stmt, ...]
    line: int = field(default=0, eq=False)


@frozen
class Group:
    """Several statements that a schedule places as one op (`with T.ws_op(...)`)."""

    id: str
    body: tuple[Stmt, ...]
    line: int = field(default=0, eq=False)


Stmt: TypeAlias = Op | Loop | If | While | Group
Block: TypeAlias = Loop | If | While | Group


@frozen
class Kernel:
    """A traced kernel.

    `grid` is the launch: (block variable, extent) pairs, fastest first. `outputs` are derived from
    the writes (`ir.access.outputs`). `params` names the open Params in order of first use,
    `scalars` the run-time integer arguments. `pools` places some buffers at fixed offsets.
    """

    name: str
    tensors: tuple[Buffer, ...]
    grid: tuple[tuple[str, Expr], ...]
    threads: Expr
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    params: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    pools: tuple[Pool, ...] = ()

    def at(self, **sizes: int) -> Self:
        """The kernel with those Params fixed.

        KeyError for a name that is not one of them, KernelError for a size that is not an int of
        at least 1.
        """
        unknown = set(sizes) - set(self.params)
        if unknown:
            raise KeyError(
                f"kernel '{self.name}' has no Param {', '.join(sorted(unknown))}; "
                f"it has {', '.join(self.params) or 'none'}"
            )
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise KernelError(
                    f"kernel '{self.name}': {name} = {size!r}; a size is an int of at least 1"
                )
        left = tuple(name for name in self.params if name not in sizes)
        return evolve(replace_symbols(self, sizes), params=left)

    def buffer(self, name: str) -> Buffer:
        """The tensor or on-chip buffer of that name."""
        for buffer in (*self.tensors, *self.buffers):
            if buffer.name == name:
                return buffer
        raise KeyError(f"kernel '{self.name}' has no buffer '{name}'")

    def fixed_place(self, buffer: str) -> FixedPlace | None:
        """Where the author placed a buffer, or None."""
        return place_in(self.pools, buffer)

    def statement(self, statement_id: str) -> Stmt:
        """The statement of that id."""
        for statement, _ in walk(self.body):
            if statement.id == statement_id:
                return statement
        raise KeyError(f"kernel '{self.name}' has no statement '{statement_id}'")


K = TypeVar("K", bound=Kernel)
P = TypeVar("P")


def walk(
    body: tuple[Stmt, ...], parents: tuple[Block, ...] = ()
) -> Iterator[tuple[Stmt, tuple[Block, ...]]]:
    """Every statement in program order, with the blocks around it, outermost first."""
    for statement in body:
        yield statement, parents
        if isinstance(statement, Loop | If | While | Group):
            yield from walk(statement.body, (*parents, statement))


def ops(body: tuple[Stmt, ...]) -> Iterator[Op]:
    """Every op in program order."""
    for statement, _ in walk(body):
        if not isinstance(statement, Loop | If | While | Group):
            yield statement


# ---------------------------------------------------------------- rewriting


@frozen
class Rewrite:
    """A substitution applied to whole statements: symbols by name, buffers by name.

    What it does not change it returns as it is, so that what is known of it stays known.
    """

    env: Mapping[str, IntLike] = {}
    buffers: Mapping[str, Buffer] = {}
    # By identity: what each buffer became. Most buffers stand in several operands.
    _seen: dict[int, tuple[Buffer, Buffer]] = field(factory=dict, eq=False)

    def expr(self, expr: Expr) -> Expr:
        return substitute(expr, self.env) if self.env else expr

    def exprs(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return _kept(exprs, tuple(self.expr(expr) for expr in exprs))

    def cond(self, cond: Cond) -> Cond:
        return substitute_cond(cond, self.env)

    def buffer(self, buffer: Buffer) -> Buffer:
        before, after = self._seen.get(id(buffer), (None, buffer))
        if before is not buffer:
            renamed = self.buffers.get(buffer.name, buffer)
            after = _changed(renamed, shape=self.exprs(renamed.shape))
            self._seen[id(buffer)] = buffer, after
        return after

    def region(self, region: Region) -> Region:
        buffer = self.buffer(region.buffer)
        start, extent = self.exprs(region.start), self.exprs(region.extent)
        return _changed(region, buffer=buffer, start=start, extent=extent)

    def value(self, value: Value) -> Value:
        match value:
            case Index(expr):
                return _changed(value, expr=self.expr(expr))
            case Element(buffer, indices):
                return _changed(value, buffer=self.buffer(buffer), indices=self.exprs(indices))
            case Unary(_, operand) | Cast(_, operand):
                return _changed(value, operand=self.value(operand))
            case Arith(_, lhs, rhs):
                return _changed(value, lhs=self.value(lhs), rhs=self.value(rhs))
            case Where(cond, then, otherwise):
                return _changed(
                    value,
                    cond=self.value(cond),
                    then=self.value(then),
                    otherwise=self.value(otherwise),
                )
        return value

    def store(self, store: Store) -> Store:
        return _changed(
            store,
            buffer=self.buffer(store.buffer),
            indices=self.exprs(store.indices),
            value=self.value(store.value),
        )

    def axis(self, axis: tuple[str, Expr]) -> tuple[str, Expr]:
        extent = self.expr(axis[1])
        return axis if extent is axis[1] else (axis[0], extent)

    def stmts(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return _kept(body, tuple(self.stmt(statement) for statement in body))

    def stmt(self, node: Stmt) -> Stmt:
        match node:
            case Copy() | Reduce():
                return _changed(node, src=self.region(node.src), dst=self.region(node.dst))
            case Gemm():
                return _changed(
                    node,
                    a=self.region(node.a),
                    b=self.region(node.b),
                    c=self.region(node.c),
                    clear_accum=self.cond(node.clear_accum),
                )
            case Fill():
                return _changed(node, dst=self.region(node.dst), value=self.value(node.value))
            case Map():
                return _changed(
                    node,
                    axes=_kept(node.axes, tuple(map(self.axis, node.axes))),
                    stores=_kept(node.stores, tuple(map(self.store, node.stores))),
                    guards=_kept(node.guards, tuple(map(self.cond, node.guards))),
                )
            case Define():
                return _changed(node, value=self.value(node.value))
            case Loop():
                return _changed(
                    node,
                    start=self.expr(node.start),
                    extent=self.expr(node.extent),
                    body=self.stmts(node.body),
                )
            case If() | While():
                return _changed(node, cond=self.cond(node.cond), body=self.stmts(node.body))
            case Group():
                return _changed(node, body=self.stmts(node.body))


def _kept(old: tuple[P, ...], new: tuple[P, ...]) -> tuple[P, ...]:
    """`old` where `new` holds the same objects."""
    return old if all(map(is_, old, new)) else new


def _changed(node: P, **parts: Any) -> P:
    """The node with those parts; the node itself where they are the ones that it has."""
    for name, part in parts.items():
        if getattr(node, name) is not part:
            break
    else:
        return node
    kind: Any = type(node)
    for each in kind.__attrs_attrs__:
        parts.setdefault(each.name, getattr(node, each.name))
    return cast(P, kind(**parts))


def replace_symbols(kernel: K, env: Mapping[str, IntLike]) -> K:
    """The kernel with symbols replaced everywhere."""
    rewrite = Rewrite(env)
    return evolve(
        kernel,
        tensors=tuple(rewrite.buffer(buffer) for buffer in kernel.tensors),
        grid=tuple((name, rewrite.expr(extent)) for name, extent in kernel.grid),
        threads=rewrite.expr(kernel.threads),
        buffers=tuple(rewrite.buffer(buffer) for buffer in kernel.buffers),
        body=rewrite.stmts(kernel.body),
        pools=tuple(pool.at(env) for pool in kernel.pools),
    )


def free_vars(expr: Expr | Cond) -> frozenset[str]:
    """Names of the run-time integers in an Expr or a Cond."""
    return frozenset(symbol.name for symbol in symbols(expr) if isinstance(symbol, Var))


def open_params(expr: Expr | Cond) -> frozenset[str]:
    """Names of the Params in an Expr or a Cond."""
    return frozenset(symbol.name for symbol in symbols(expr) if isinstance(symbol, Param))
