"""What kernel bodies compute with: buffers, indexed buffers and element values.

Symbolic integers are `expr.Expr`s themselves. Everything that reads an element is a `Scalar`.

Invariant: a Scalar is pure and is evaluated where it is stored; one that reads a buffer that was
written since is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from explorer.expr import Cond, Const, Expr, compare, const, maximum, minimum, select, truth
from explorer.ir.dtypes import DType
from explorer.ir.extents import difference
from explorer.ir.nodes import Arith, Buffer, Cast, Element, Literal, Region, Unary, Value, Where
from explorer.ir.values import (
    condition_value,
    index_value,
    is_integer,
    value_condition,
    value_index,
)
from explorer.lang.context import current, located
from explorer.lang.dtypes import SurfaceType, element_type, surface_type

Reads = frozenset[tuple[str, int]]


class Scalar:
    """An element value. Arithmetic builds larger values; it has no truth value in Python."""

    __slots__ = ("_reads", "_value")

    def __init__(self, value: Value, reads: Reads = frozenset()) -> None:
        self._value = value
        self._reads = reads

    @property
    def value(self) -> Value:
        """The IR value."""
        return self._value

    @property
    def reads(self) -> Reads:
        """Buffers read, each with the number of writes it had seen."""
        return self._reads

    def astype(self, dtype: Any) -> Any:
        """The value converted to another element type."""
        return converted(element_type(dtype), self)

    def __bool__(self) -> bool:
        raise located("an element value has no truth value in Python: use T.if_then_else(...)")

    def __add__(self, other: Any) -> Any:
        return arithmetic("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return arithmetic("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return arithmetic("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return arithmetic("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return arithmetic("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return arithmetic("*", other, self)

    def __truediv__(self, other: Any) -> Any:
        return arithmetic("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return arithmetic("/", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return arithmetic("//", self, other)

    def __mod__(self, other: Any) -> Any:
        return arithmetic("%", self, other)

    def __and__(self, other: Any) -> Any:
        return arithmetic("&", self, other)

    def __or__(self, other: Any) -> Any:
        return arithmetic("|", self, other)

    def __xor__(self, other: Any) -> Any:
        return arithmetic("^", self, other)

    def __lshift__(self, other: Any) -> Any:
        return arithmetic("<<", self, other)

    def __rshift__(self, other: Any) -> Any:
        return arithmetic(">>", self, other)

    def __pow__(self, other: Any) -> Any:
        return arithmetic("pow", self, other)

    def __neg__(self) -> Any:
        return Scalar(Unary("neg", self.value), self.reads)

    def __eq__(self, other: object) -> Any:
        return comparison("==", self, other)

    def __ne__(self, other: object) -> Any:
        return comparison("!=", self, other)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Any:
        return comparison("<", self, other)

    def __le__(self, other: Any) -> Any:
        return comparison("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return comparison(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return comparison(">=", self, other)


class BufferRef:
    """A tensor or an on-chip buffer. Its name is that of the variable it is assigned to."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    @property
    def buffer(self) -> Buffer:
        """The IR buffer; one that was never assigned to a variable is named here."""
        if not self._buffer.name:
            current("a buffer").name_buffer(self, self._buffer.scope.value.split(".")[-1])
        return self._buffer

    def rename(self, buffer: Buffer) -> None:
        """Take the named buffer; the builder calls it once."""
        self._buffer = buffer

    @property
    def named(self) -> bool:
        """Whether it has its name."""
        return bool(self._buffer.name)

    @property
    def name(self) -> str:
        """Its name in the kernel."""
        return self.buffer.name

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its extents; plain ints where they are constant."""
        return tuple(s.value if isinstance(s, Const) else s for s in self._buffer.shape)

    @property
    def dtype(self) -> SurfaceType:
        """Its element type."""
        return surface_type(self._buffer.dtype)

    def scope(self) -> str:
        """The name of its memory."""
        return self._buffer.scope.value

    def __getitem__(self, index: Any) -> Tile:
        return Tile(self.buffer, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        builder = current(f"a store to '{self.name}'")
        builder.store(self.buffer, Tile(self.buffer, index).indices(), value)

    def __iter__(self) -> Any:
        raise located(f"buffer '{self.name}' cannot be iterated over: index it")


class Tile(Scalar):
    """A buffer with an index: an element in arithmetic, the start or box of a region in an op."""

    __slots__ = ("buffer", "extents", "starts")

    def __init__(self, buffer: Buffer, index: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) != len(buffer.shape):
            shape = ", ".join(map(str, buffer.shape))
            raise located(
                f"'{buffer.name}' has {len(buffer.shape)} dimensions (shape ({shape})) "
                f"but {len(parts)} indices: give one index or slice for each"
            )
        self.buffer = buffer
        builder = current(f"'{buffer.name}'")
        self._reads = frozenset(((buffer.home, builder.writes_of(buffer.home)),))
        pairs = [_bounds(buffer, axis, part) for axis, part in enumerate(parts)]
        self.starts = tuple(start for start, _ in pairs)
        self.extents = tuple(extent for _, extent in pairs)

    @property
    def sliced(self) -> bool:
        """Whether some dimension is a slice."""
        return any(extent is not None for extent in self.extents)

    def indices(self) -> tuple[Expr, ...]:
        """The indices of one element; KernelError where it is a box."""
        if self.sliced:
            raise located(
                f"a slice of '{self.buffer.name}' is not an element: index it in T.Parallel, "
                "or use T.copy"
            )
        return self.starts

    def region(self) -> Region:
        """The box of a sliced tile; indexed dimensions are squeezed."""
        extents = tuple(const(1) if e is None else e for e in self.extents)
        squeezed = frozenset(axis for axis, e in enumerate(self.extents) if e is None)
        return Region(self.buffer, self.starts, extents, squeezed)

    @property
    def value(self) -> Value:
        """The element."""
        return Element(self.buffer, self.indices())

    @property
    def dtype(self) -> SurfaceType:
        """The element type of its buffer."""
        return surface_type(self.buffer.dtype)


def _bounds(buffer: Buffer, axis: int, part: Any) -> tuple[Expr, Expr | None]:
    if not isinstance(part, slice):
        return as_index(part), None
    if part.step not in (None, 1):
        raise located(f"'{buffer.name}' is sliced with step {part.step}: only step 1 is supported")
    start = as_index(0 if part.start is None else part.start)
    stop = buffer.shape[axis] if part.stop is None else as_index(part.stop)
    extent = difference(stop, start)
    if isinstance(extent, Const) and extent.value < 1:
        raise located(f"the slice {start}:{stop} of '{buffer.name}' is empty")
    return start, extent


# ---------------------------------------------------------------- conversions


def as_scalar(value: Any) -> Scalar:
    """Anything that can stand in an element-wise body, as a Scalar."""
    match value:
        case Tile():
            return Scalar(value.value, value.reads)
        case Scalar():
            return value
        case Expr():
            return Scalar(index_value(value))
        case Cond():
            return Scalar(condition_value(value))
        case bool() | int() | float():
            return Scalar(Literal(value))
        case BufferRef():
            raise located(f"buffer '{value.name}' is used as an element: index it")
    if hasattr(value, "item"):
        return Scalar(Literal(value.item()))
    raise located(f"{value!r} is not a value of the kernel language")


def as_index(value: Any) -> Expr:
    """An integer for regions, loops and shapes; an element read becomes a scalar definition."""
    match value:
        case Expr():
            return value
        case Scalar():
            inner = value.value
            known = value_index(inner)
            if known is not None:
                return known
            if not is_integer(inner):
                raise located("a floating-point value cannot be an index")
            return current("an element as an index").define("", value)
        case float() | str() | None:
            raise located(f"{value!r} is not an integer")
    try:
        return const(value)
    except TypeError as problem:
        raise located(str(problem)) from None


def as_condition(value: Any) -> Cond:
    """A condition on scalars; one that reads elements becomes a scalar definition."""
    if isinstance(value, Cond | bool):
        return truth(value)
    if isinstance(value, Expr):
        return compare("!=", value, 0)
    scalar = as_scalar(value)
    known = value_condition(scalar.value)
    if known is not None:
        return known
    return compare("!=", current("a condition").define("", scalar), 0)


# ---------------------------------------------------------------- operators

_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "pow": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_SYMBOLIC = frozenset(("+", "-", "*", "//", "%"))


def arithmetic(op: str, lhs: Any, rhs: Any) -> Any:
    """`lhs op rhs`: plain Python, a symbolic integer, or an element value."""
    scalars = isinstance(lhs, Scalar) or isinstance(rhs, Scalar)
    if not scalars:
        symbolic = isinstance(lhs, Expr) or isinstance(rhs, Expr)
        numbers = isinstance(lhs, Expr | int) and isinstance(rhs, Expr | int)
        if not symbolic or (numbers and op in _SYMBOLIC):
            return _PYTHON[op](lhs, rhs)
        if numbers and op in ("<<", ">>") and isinstance(rhs, int):
            return lhs * (1 << rhs) if op == "<<" else lhs // (1 << rhs)
    left, right = as_scalar(lhs), as_scalar(rhs)
    return Scalar(Arith(op, left.value, right.value), left.reads | right.reads)


def comparison(op: str, lhs: Any, rhs: Any) -> Any:
    """`lhs op rhs` as a bool, a Cond or an element value."""
    if isinstance(lhs, Scalar) or isinstance(rhs, Scalar):
        if op in (">", ">="):
            return comparison("<" if op == ">" else "<=", rhs, lhs)
        left, right = as_scalar(lhs), as_scalar(rhs)
        return Scalar(Arith(op, left.value, right.value), left.reads | right.reads)
    if isinstance(lhs, Expr) or isinstance(rhs, Expr):
        if not all(isinstance(side, Expr | int) for side in (lhs, rhs)):
            if isinstance(lhs, float) or isinstance(rhs, float):
                return comparison(op, as_scalar(lhs), as_scalar(rhs))
            return _PYTHON[op](lhs, rhs)
        if op in (">", ">="):
            return compare("<" if op == ">" else "<=", rhs, lhs)
        return compare(op, lhs, rhs)
    return _PYTHON[op](lhs, rhs)


def unary(op: str, operand: Any) -> Scalar:
    """An element-wise function of one value."""
    scalar = as_scalar(operand)
    return Scalar(Unary(op, scalar.value), scalar.reads)


def extremum(op: str, lhs: Any, rhs: Any) -> Any:
    """min or max of two values of any kind."""
    if isinstance(lhs, int | float) and isinstance(rhs, int | float):
        return min(lhs, rhs) if op == "min" else max(lhs, rhs)
    if isinstance(lhs, Expr | int) and isinstance(rhs, Expr | int):
        return minimum(lhs, rhs) if op == "min" else maximum(lhs, rhs)
    left, right = as_scalar(lhs), as_scalar(rhs)
    return Scalar(Arith(op, left.value, right.value), left.reads | right.reads)


def choose(cond: Any, then: Any, otherwise: Any) -> Any:
    """`then` where `cond` holds, else `otherwise`."""
    if isinstance(cond, bool):
        return then if cond else otherwise
    integers = isinstance(then, Expr | int) and isinstance(otherwise, Expr | int)
    if isinstance(cond, Cond) and integers:
        return select(cond, then, otherwise)
    parts = [as_scalar(part) for part in (cond, then, otherwise)]
    reads = frozenset().union(*(part.reads for part in parts))
    return Scalar(Where(*(part.value for part in parts)), reads)


def converted(dtype: DType, operand: Any) -> Any:
    """A value as `dtype`; a symbolic integer stays one under an integer type."""
    if isinstance(operand, Expr | int) and dtype.kind in ("int", "uint") and dtype.bits >= 32:
        return operand
    scalar = as_scalar(operand)
    return Scalar(Cast(dtype, scalar.value), scalar.reads)
