"""Launch and loops of the surface.

Each function returns a description; the builder turns it into a block of the kernel when the
`for` or `with` around it runs.

Invariant: a loop has unit step; one whose trip count is negative when it runs does nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import field, frozen

from explorer.expr import Const, Expr, Var, ceildiv, const, minimum, product
from explorer.ir.extents import difference
from explorer.ir.nodes import If, Loop, Stmt
from explorer.lang.context import current, located
from explorer.lang.values import BufferRef, as_index

if TYPE_CHECKING:
    from explorer.lang.builder import Builder

Names: TypeAlias = "str | tuple[Names, ...] | None"
BuildLoop: TypeAlias = Callable[[tuple[Stmt, ...], int], Stmt]

WSID = "tl.ws_op_id"


def flat_names(names: Names) -> tuple[str, ...]:
    """The names of an assignment target, left to right."""
    if isinstance(names, tuple):
        return tuple(name for each in names for name in flat_names(each))
    return (names,) if names else ()


@frozen(eq=False)
class Hints:
    """The annotations of a loop or an op that the project understands."""

    op_id: str = ""
    eligible: tuple[str, ...] = ()


def read_hints(annotations: Mapping[str, Any] | None) -> Hints:
    """The op id and the multi-buffer claim of `annotations=`; other keys are a backend's hints."""
    given = annotations or {}
    op_id = given.get(WSID, "")
    if not isinstance(op_id, str):
        raise located(f"the op id {op_id!r} is not a string")
    claimed = given.get("multi_buffer_eligible", ())
    refs = (claimed,) if isinstance(claimed, BufferRef) else tuple(claimed)
    if not all(isinstance(ref, BufferRef) for ref in refs):
        raise located("multi_buffer_eligible takes buffers: {'multi_buffer_eligible': [A_shared]}")
    return Hints(op_id, tuple(ref.name for ref in refs))


@frozen(eq=False)
class Grid:
    """What T.Kernel returns."""

    extents: tuple[Expr, ...]
    threads: Expr


@frozen(eq=False)
class OpGroup:
    """What T.ws_op returns."""

    op_id: str


@frozen(eq=False)
class Parallel:
    """What T.Parallel returns: independent index axes of an element-wise body."""

    extents: tuple[Expr, ...]
    op_id: str = ""


@frozen(eq=False)
class LoopSpec:
    """A loop over consecutive integers."""

    what: str
    start: Expr
    extent: Expr
    kind: str
    num_stages: int = 0
    hints: Hints = field(factory=Hints)

    def open(self, builder: Builder, names: Names) -> tuple[str, Any, BuildLoop]:
        """The loop variable, what Python's target receives, and how to close the loop."""
        if isinstance(names, tuple) and len(names) != 1:
            raise located(f"{self.what} has one loop variable, not {len(flat_names(names))}")
        name = flat_names(names)[0] if flat_names(names) else "_"
        (var,) = builder.claim_loop_vars((_visible(name),))
        value = (Var(var),) if isinstance(names, tuple) else Var(var)
        return var, value, lambda body, line: self._loop(var, body, line)

    def _loop(self, var: str, body: tuple[Stmt, ...], line: int) -> Loop:
        return Loop(
            self.hints.op_id,
            var,
            self.start,
            self.extent,
            self.kind,
            self.num_stages,
            body,
            line,
            self.hints.eligible,
        )


@frozen(eq=False)
class TileLoop(LoopSpec):
    """A persistent loop over the tiles of a domain, `wave` tiles apart."""

    domain: tuple[Expr, ...] = ()
    wave: Expr = Const(1)
    index: Expr = Const(0)
    group: int = 1

    def open(self, builder: Builder, names: Names) -> tuple[str, Any, BuildLoop]:
        flat = flat_names(names)
        if len(flat) != len(self.domain):
            raise located(
                f"T.Persistent has a domain of {len(self.domain)} but {len(flat)} loop variables"
            )
        (var,) = builder.claim_loop_vars((_wave_name(builder),))
        tile = Var(var) * self.wave + self.index
        total = product(self.domain)
        exact = self.wave == Const(1) and self.index == Const(0)
        guard = None if exact else tile < total
        tiles = raster(tile, self.domain, self.group)

        def build(body: tuple[Stmt, ...], line: int) -> Stmt:
            inner = body if guard is None else (If("", guard, body, line),)
            return self._loop(var, inner, line)

        return var, (tiles if isinstance(names, tuple) else tiles[0]), build


def raster(tile: Expr, domain: tuple[Expr, ...], group: int) -> tuple[Expr, ...]:
    """The coordinates of a linear tile index, the last axis fastest.

    With `group` above 1 the last axis is walked in panels of that many tiles (a narrower one at
    the end), each swept along the axis before it: a bijection for every domain.
    """
    if len(domain) == 1:
        return (tile,)
    if group <= 1:
        coordinates: list[Expr] = []
        for size in reversed(domain[1:]):
            coordinates.insert(0, tile % size)
            tile = tile // size
        return (tile, *coordinates)
    *outer, slow, fast = domain
    plane = slow * fast
    inner = tile % plane if outer else tile
    panel = inner // (slow * group)
    base = panel * group
    width = minimum(group, fast - base)
    offset = inner - panel * (slow * group)
    pair = (offset // width, base + offset % width)
    return pair if not outer else (*raster(tile // plane, tuple(outer), 1), *pair)


def _visible(name: str) -> str:
    return "i" if name == "_" else name


def _wave_name(builder: Builder) -> str:
    taken = {name for frame in builder.frames for name in frame.loop_vars}
    names = itertools.chain(("wave",), (f"wave_{n}" for n in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _bounds(start: Any, stop: Any, step: Any, what: str) -> tuple[Expr, Expr]:
    if step not in (None, 1):
        raise located(f"{what} has step {step}: only step 1 is supported, scale the variable")
    if stop is None:
        start, stop = 0, start
    first, last = as_index(start), as_index(stop)
    extent = difference(last, first)
    if isinstance(extent, Const) and extent.value < 0:
        extent = const(0)
    return first, extent


def _stages(num_stages: Any, what: str) -> int:
    if isinstance(num_stages, bool) or not isinstance(num_stages, int) or num_stages < 0:
        raise located(
            f"num_stages of {what} must be an int of at least 0, got {num_stages}: "
            "the depth of a ring is a choice of the schedule"
        )
    return num_stages


def serial(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    annotations: Mapping[str, Any] | None = None,
) -> LoopSpec:
    """for i in range(start, stop)."""
    current("T.serial")
    first, extent = _bounds(start, stop, step, "T.serial")
    return LoopSpec("T.serial", first, extent, "serial", hints=read_hints(annotations))


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> LoopSpec:
    """An unrolled loop; `explicit` and `unroll_factor` are hints to a backend."""
    current("T.unroll")
    first, extent = _bounds(start, stop, step, "T.unroll")
    return LoopSpec("T.unroll", first, extent, "unrolled", hints=read_hints(annotations))


def pipelined(
    start: Any,
    stop: Any = None,
    num_stages: int = 0,
    order: list[int] | None = None,
    stage: list[int] | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> LoopSpec:
    """A loop of which `num_stages` iterations may be in flight.

    `order` and `stage` are TileLang's manual pipeline; a schedule says it here, so they are
    refused unless empty.
    """
    current("T.Pipelined")
    if order or stage:
        raise located("T.Pipelined takes no order or stage here: a schedule places each op")
    first, extent = _bounds(start, stop, None, "T.Pipelined")
    stages = _stages(num_stages, "T.Pipelined")
    return LoopSpec("T.Pipelined", first, extent, "pipelined", stages, read_hints(annotations))


def persistent(
    domain: Any,
    wave_size: Any = 1,
    index: Any = 0,
    group_size: int | None = 8,
    num_stages: int = 0,
    *,
    annotations: Mapping[str, Any] | None = None,
) -> TileLoop:
    """A loop over the tiles of `domain` that belong to one resident block.

    CUDA's form: `for bx, by in T.Persistent([tiles_m, tiles_n], blocks, block)`. Ascend's form:
    `for i in T.Persistent([tiles], cores, core, num_stages=n)`, or the number of tiles alone.
    """
    current("T.Persistent")
    sizes = domain if isinstance(domain, list | tuple) else (domain,)
    extents = tuple(as_index(size) for size in sizes)
    wave, first = as_index(wave_size), as_index(index)
    return TileLoop(
        "T.Persistent",
        const(0),
        ceildiv(product(extents), wave),
        "persistent",
        _stages(num_stages, "T.Persistent"),
        read_hints(annotations),
        extents,
        wave,
        first,
        group_size or 1,
    )


def parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> Parallel:
    """An element-wise body over independent axes; the keyword hints are a backend's."""
    current("T.Parallel")
    if not extents:
        raise located("T.Parallel needs at least one extent")
    return Parallel(
        tuple(positive(extent, "a T.Parallel extent") for extent in extents),
        read_hints(annotations).op_id,
    )


def launch(
    *blocks: Any,
    threads: Any = None,
    prelude: str | None = None,
    cluster_dims: Any = None,
) -> Grid:
    """The launch: one to three grid extents, and threads per block (128 by default)."""
    current("T.Kernel")
    if not 1 <= len(blocks) <= 3:
        raise located(f"T.Kernel takes one to three grid extents, got {len(blocks)}")
    if isinstance(threads, list | tuple):
        if len(threads) != 1 and any(extent != 1 for extent in threads[1:]):
            raise located(f"threads={tuple(threads)}: a block has one dimension of threads here")
        threads = threads[0]
    count = const(128) if threads is None else positive(threads, "threads")
    return Grid(tuple(positive(b, "a grid extent") for b in blocks), count)


def positive(value: Any, what: str) -> Expr:
    """An Expr that is at least 1 where it is constant."""
    size = as_index(value)
    if isinstance(size, Const) and size.value < 1:
        raise located(f"{what} must be at least 1, got {size.value}")
    return size


def ws_op(op_id: str) -> OpGroup:
    """Give the enclosed statements one id; several become one op, a while becomes a scope."""
    current("T.ws_op")
    if not isinstance(op_id, str) or not op_id:
        raise located(f"T.ws_op takes a non-empty string, got {op_id!r}")
    return OpGroup(op_id)
