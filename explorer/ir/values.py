"""The types in which element values are computed, and conditions as values.

Invariant: element-wise arithmetic has one meaning on every backend. Floating point is computed in
float32 (float64 where an operand is) and rounded to a narrower type only by a Cast or a store;
integers are computed in int32, or in int64 where an operand needs more than 32 bits. Literals
take the type of what they meet.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.expr import Compare, Cond, Const, Expr, Logic, Not, Truth, compare, truth
from explorer.ir.dtypes import DType, dtype
from explorer.ir.nodes import (
    Arith,
    Cast,
    Element,
    Index,
    Literal,
    Unary,
    Value,
    Where,
)

COMPARISONS = frozenset(("<", "<=", "==", "!="))
LOGICAL = frozenset(("and", "or"))
_INT32, _INT64, _FLOAT32, _FLOAT64 = map(dtype, ("int32", "int64", "float32", "float64"))
_BOOL = dtype("bool")


def compute_dtype(value: Value) -> DType:
    """The type in which a value is computed: float32, float64, int32, int64 or bool."""
    match value:
        case Literal(number):
            if isinstance(number, bool):
                return _BOOL
            return _FLOAT32 if isinstance(number, float) else _integer(number)
        case Index():
            return _INT64
        case Element(buffer):
            return widened(buffer.dtype)
        case Cast(target):
            return widened(target)
        case Unary("not"):
            return _BOOL
        case Unary(op, operand):
            inner = compute_dtype(operand)
            return inner if op in ("neg", "abs") else promote(inner, _FLOAT32)
        case Arith(op, lhs, rhs):
            if op in COMPARISONS or op in LOGICAL:
                return _BOOL
            joined = promote(compute_dtype(lhs), compute_dtype(rhs))
            return promote(joined, _FLOAT32) if op == "/" else joined
        case Where(_, then, otherwise):
            return promote(compute_dtype(then), compute_dtype(otherwise))


def widened(element: DType) -> DType:
    """The type in which elements of a stored type are computed."""
    if element.is_float:
        return _FLOAT64 if element.bits > 32 else _FLOAT32
    if element.kind == "bool":
        return _BOOL
    return _INT64 if element.bits > 32 or element.name == "uint32" else _INT32


def promote(a: DType, b: DType) -> DType:
    """The compute type of two compute types: floats over integers, wide over narrow."""
    if a.is_float != b.is_float:
        return a if a.is_float else b
    return a if a.bits >= b.bits and a.kind != "bool" else b


def is_integer(value: Value) -> bool:
    """Whether a value is an integer, and so can steer regions and loops."""
    return compute_dtype(value).kind in ("int", "bool")


def index_value(expr: Expr) -> Value:
    """A symbolic integer as an element value."""
    return Literal(expr.value) if isinstance(expr, Const) else Index(expr)


def condition_value(cond: Cond) -> Value:
    """A condition over symbolic integers as an element value."""
    match cond:
        case Truth(value):
            return Literal(value)
        case Compare(op, lhs, rhs):
            return Arith(op, index_value(lhs), index_value(rhs))
        case Not(operand):
            return Unary("not", condition_value(operand))
        case Logic(op, operands):
            first, *rest = map(condition_value, operands)
            for each in rest:
                first = Arith(op, first, each)
            return first
    raise TypeError(f"not a condition: {cond!r}")


def value_condition(value: Value) -> Cond | None:
    """The condition over symbolic integers that a value is, or None where it reads elements."""
    match value:
        case Literal(bool() as known):
            return truth(known)
        case Arith(op, lhs, rhs) if op in COMPARISONS:
            left, right = value_index(lhs), value_index(rhs)
            return None if left is None or right is None else compare(op, left, right)
    return None


def value_index(value: Value) -> Expr | None:
    """The symbolic integer that a value is, or None where it reads elements."""
    match value:
        case Index(expr):
            return expr
        case Literal(int() as number) if not isinstance(number, bool):
            return Const(number)
    return None


def value_exprs(value: Value) -> Iterator[Expr]:
    """The symbolic integers in a value: those it is made of, and its indices."""
    match value:
        case Index(expr):
            yield expr
        case Element(_, indices):
            yield from indices
        case Unary(_, operand) | Cast(_, operand):
            yield from value_exprs(operand)
        case Arith(_, lhs, rhs):
            yield from value_exprs(lhs)
            yield from value_exprs(rhs)
        case Where(cond, then, otherwise):
            for part in (cond, then, otherwise):
                yield from value_exprs(part)


def _integer(number: int) -> DType:
    return _INT32 if -(2**31) <= number < 2**31 else _INT64
