"""Element-wise functions of the surface."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from explorer.expr import Cond, Expr, IntLike, all_of, any_of, negate
from explorer.expr import ceildiv as ceildiv_expr
from explorer.ir.nodes import Arith, Unary
from explorer.lang.dtypes import element_type
from explorer.lang.values import Scalar, as_index, as_scalar, choose, converted, extremum, unary

_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _function(op: str, what: str) -> Callable[[Any], Any]:
    def apply(x: Any) -> Any:
        return _NUMBERS[op](x) if isinstance(x, int | float) else unary(op, x)

    apply.__name__ = apply.__qualname__ = op
    apply.__doc__ = f"{what} of an element value or a number."
    return apply


exp = _function("exp", "e to the power")
exp2 = _function("exp2", "Two to the power")
log = _function("log", "The natural logarithm")
log2 = _function("log2", "The logarithm to base two")
sqrt = _function("sqrt", "The square root")
rsqrt = _function("rsqrt", "The reciprocal square root")
tanh = _function("tanh", "The hyperbolic tangent")
sigmoid = _function("sigmoid", "The logistic function")
floor = _function("floor", "The largest integer at most")
ceil = _function("ceil", "The smallest integer at least")
abs_ = _function("abs", "The absolute value")


def max_(a: Any, b: Any) -> Any:
    """The larger of two values."""
    return extremum("max", a, b)


def min_(a: Any, b: Any) -> Any:
    """The smaller of two values."""
    return extremum("min", a, b)


def clamp(x: Any, low: Any, high: Any) -> Any:
    """`x` limited to [low, high]."""
    return extremum("min", extremum("max", x, low), high)


def power(x: Any, y: Any) -> Any:
    """`x` to the power `y`."""
    left, right = as_scalar(x), as_scalar(y)
    return Scalar(Arith("pow", left.value, right.value), left.reads | right.reads)


def if_then_else(cond: Any, then: Any, otherwise: Any) -> Any:
    """`then` where `cond` holds, else `otherwise`; the branch not taken is not accessed."""
    return choose(cond, then, otherwise)


def cast(value: Any, dtype: Any) -> Any:
    """A value converted to an element type; TileLang's argument order (dtype first) also works."""
    if isinstance(value, str) and not isinstance(dtype, str):
        value, dtype = dtype, value
    return converted(element_type(dtype), value)


def infinity(dtype: Any = "float32") -> float:
    """Positive infinity of a floating-point type."""
    element_type(dtype)
    return math.inf


def ceildiv(a: Any, b: Any) -> Any:
    """The quotient rounded up; an int for ints."""
    if isinstance(a, int) and isinstance(b, int):
        return int(ceildiv_expr(a, b).__index__())
    return ceildiv_expr(as_index(a), as_index(b))


def floordiv(a: IntLike, b: IntLike) -> Any:
    """The quotient rounded down."""
    return a // b


def floormod(a: IntLike, b: IntLike) -> Any:
    """The remainder of `floordiv`."""
    return a % b


def logical(op: str, a: Any, b: Any) -> Any:
    """`and` or `or` of two truth values of any kind."""
    if isinstance(a, Cond | bool) and isinstance(b, Cond | bool):
        return all_of(a, b) if op == "and" else any_of(a, b)
    left, right = as_scalar(a), as_scalar(b)
    return Scalar(Arith(op, left.value, right.value), left.reads | right.reads)


def negation(a: Any) -> Any:
    """The truth value that holds where `a` does not."""
    if isinstance(a, Cond):
        return negate(a)
    scalar = as_scalar(a)
    return Scalar(Unary("not", scalar.value), scalar.reads)


def is_symbolic(value: Any) -> bool:
    """Whether a value is known only when the kernel runs or when its Params are fixed."""
    return isinstance(value, Expr | Cond | Scalar)
