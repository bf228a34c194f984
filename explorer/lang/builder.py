"""Collects the statements of one kernel while its function runs.

`lang.driver` opens its blocks and names its buffers; the operations of `lang.ops` call `emit`.

Invariant: names of buffers and scalars are unique in the kernel, and an open block is closed by
the construct that opened it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from explorer.expr import TRUE, Cond, Expr, Var, all_of
from explorer.ir.access import access
from explorer.ir.annotations import Annotation
from explorer.ir.dtypes import DType
from explorer.ir.nodes import (
    Buffer,
    Define,
    Element,
    Map,
    Op,
    Region,
    Stmt,
    Store,
)
from explorer.ir.verify import op_problem
from explorer.lang.context import Trail, located
from explorer.lang.values import (
    BufferRef,
    Reads,
    Scalar,
    as_scalar,
    choose,
    converted,
)
from explorer.schedule.ws import WSSchedule

if TYPE_CHECKING:
    from explorer.lang.pools import KernelPool


# Scalars that every program has: where a block is in its walk over the tiles.
ORDINALS = {"tile": "ordinal", "unit": "ordinal"}


@define(eq=False)
class Frame:
    """An open block: its statements so far, and the guard of stores in an element-wise body."""

    kind: str
    body: list[Stmt] = field(factory=list)
    loop_vars: tuple[str, ...] = ()
    stores: list[tuple[Store, Cond]] = field(factory=list)
    guards: list[Cond | Scalar] = field(factory=list)


@define(eq=False)
class Builder:
    """The kernel under construction."""

    kernel_name: str
    trail: Trail
    tensors: list[BufferRef] = field(factory=list)
    buffers: list[BufferRef] = field(factory=list)
    grid: tuple[tuple[str, Expr], ...] = ()
    threads: Expr | None = None
    annotations: list[Annotation] = field(factory=list)
    pools: list[KernelPool[Any]] = field(factory=list)
    schedule: WSSchedule | None = None
    scalars: list[str] = field(factory=list)
    frames: list[Frame] = field(factory=list)
    finished: tuple[Stmt, ...] = ()
    _names: dict[str, str] = field(factory=dict)
    _writes: dict[str, int] = field(factory=dict)

    # ------------------------------------------------------------ names

    def claim(self, name: str, kind: str, exact: bool = False) -> str:
        """Reserve a name for a `kind` of thing; `exact` refuses one that is taken."""
        held = self._names.get(name)
        if held is None and kind in ("loop", "scalar", "argument"):
            held = ORDINALS.get(name)
        if held is not None and not (kind == held == "loop"):
            if exact:
                raise located(f"the {kind} '{name}' shadows the {held} '{name}': use another name")
            stem, count = name, 2
            while f"{stem}_{count}" in self._names:
                count += 1
            name = f"{stem}_{count}"
        self._names[name] = kind
        return name

    def name_buffer(self, ref: BufferRef, name: str, exact: bool = False) -> None:
        """Give an unnamed buffer its name."""
        ref.rename(evolve(ref._buffer, name=self.claim(name, "buffer", exact)))

    # ------------------------------------------------------------ statements

    @property
    def elementwise(self) -> bool:
        """Whether the innermost block is an element-wise body."""
        return bool(self.frames) and self.frames[-1].kind == "parallel"

    @property
    def line(self) -> int:
        """The user's source line."""
        return self.trail.here()[1]

    def require_open(self, what: str) -> None:
        """KernelError unless a statement may stand here."""
        if not self.frames:
            raise located(f"{what} stands outside `with T.Kernel(...)`: move it into the block")
        if self.elementwise:
            raise located(f"{what} cannot stand in a T.Parallel body: move it out of the loop")

    def emit(self, op: Op, what: str) -> None:
        """Append an op to the innermost block."""
        self.require_open(what)
        problem = op_problem(op)
        if problem is not None:
            raise located(problem)
        self.frames[-1].body.append(op)
        for region in access(op).writes:
            self._count_write(region.buffer.home)

    def define(self, name: str, value: Any) -> Var:
        """Read an integer into a scalar and return it as a symbol."""
        scalar = as_scalar(value)
        if not name:
            name = f"{next(iter(sorted(scalar.reads)), ('value', 0))[0]}_value"
        self.verify_reads(scalar.reads)
        if self.elementwise:
            raise located(
                f"an element of '{name.removesuffix('_value')}' cannot be an index or a condition "
                "in a T.Parallel body: read it into a variable before the loop"
            )
        unique = self.claim(name, "scalar")
        self.emit(Define("", unique, scalar.value, self.line), f"the scalar '{name}'")
        return Var(unique)

    def set_scalar(self, name: str, value: Any) -> None:
        """Emit an assignment to a scalar that already has its name."""
        self.emit(Define("", name, as_scalar(value).value, self.line), f"the scalar '{name}'")

    def convert(self, value: Any, dtype: DType) -> Any:
        """A value converted to an element type."""
        return converted(dtype, value)

    def store(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        value: Any,
        atomic: bool = False,
        op_id: str = "",
    ) -> None:
        """buffer[indices] = value, in an element-wise body or as a statement of its own."""
        scalar = as_scalar(value)
        self.verify_reads(scalar.reads)
        guard: Cond = TRUE
        if self.elementwise:
            for each in self.frames[-1].guards:
                if isinstance(each, Cond):
                    guard = all_of(guard, each)
                else:
                    self.verify_reads(each.reads)
                    kept: Any = 0 if atomic else Scalar(Element(buffer, indices))
                    scalar = as_scalar(choose(each, scalar, kept))
        store = Store(buffer, indices, scalar.value, atomic)
        if self.elementwise:
            self.frames[-1].stores.append((store, guard))
            self._count_write(buffer.home)
        else:
            self.emit(Map(op_id, (), (store,), (TRUE,), self.line), f"a store to '{buffer.name}'")

    def atomic_tile(self, target: Region, source: Region, op_id: str) -> None:
        """target += source, element by element, each addition one indivisible step."""
        axes = self.claim_loop_vars(f"e{axis}" for axis in range(len(source.shape)))
        pairs = tuple(zip(axes, source.shape, strict=True))
        element = Element(source.buffer, _within(source, axes))
        store = Store(target.buffer, _within(target, axes), element, atomic=True)
        self.emit(Map(op_id, pairs, (store,), (TRUE,), self.line), "T.atomic_add")

    def append(self, statement: Stmt) -> None:
        """Append a finished block, or a body, to the innermost open block."""
        self.frames[-1].body.append(statement)

    def writes_of(self, buffer: str) -> int:
        """How many writes of a buffer were emitted so far."""
        return self._writes.get(buffer, 0)

    def verify_reads(self, reads: Reads) -> None:
        """KernelError for a value that reads a buffer written since it was built."""
        for buffer, seen in reads:
            if seen != self.writes_of(buffer):
                raise located(
                    f"a value read from '{buffer}' is used after '{buffer}' was written: "
                    "read it again, or store it in a buffer of its own first"
                )

    def _count_write(self, buffer: str) -> None:
        self._writes[buffer] = self._writes.get(buffer, 0) + 1

    # ------------------------------------------------------------ blocks

    @contextmanager
    def block(self, kind: str, loop_vars: tuple[str, ...] = ()) -> Iterator[Frame]:
        """Open a block; the caller builds its statement from the frame."""
        frame = Frame(kind, loop_vars=loop_vars)
        self.frames.append(frame)
        try:
            yield frame
        finally:
            self.frames.remove(frame)

    def claim_loop_vars(self, names: Iterable[str]) -> tuple[str, ...]:
        """Reserve loop variables; KernelError where one hides an enclosing loop or a buffer."""
        taken = {name for frame in self.frames for name in frame.loop_vars}
        taken |= {name for name, _ in self.grid}
        result = []
        for name in names:
            if name in taken:
                raise located(f"the loop variable '{name}' shadows an enclosing one: rename it")
            if self._names.get(name, "loop") != "loop":
                self.claim(name, "loop", exact=True)
            result.append(self.claim(name, "loop"))
            taken.add(name)
        return tuple(result)


def _within(region: Region, axes: tuple[str, ...]) -> tuple[Expr, ...]:
    """The indices of an element of a region, one axis per dimension that is not squeezed."""
    remaining = iter(axes)
    return tuple(
        start if axis in region.squeezed else start + Var(next(remaining))
        for axis, start in enumerate(region.start)
    )
