"""Element-wise values in NumPy: a Map's body is evaluated for all its index tuples at once.

Invariant: a lane whose guard is false, or on the branch not taken of a Where, never faults.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from explorer.errors import KernelError
from explorer.expr import (
    TRUE,
    Binary,
    Compare,
    Cond,
    Const,
    Expr,
    Logic,
    Not,
    Param,
    Select,
    Truth,
    Var,
    evaluate,
)
from explorer.ir.dtypes import DType
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Cast,
    Element,
    Index,
    Literal,
    Map,
    Store,
    Unary,
    Value,
    Where,
)
from explorer.ir.values import LOGICAL, compute_dtype, promote
from explorer.machine import Scope

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
View: TypeAlias = Callable[[str], Array]
Env: TypeAlias = Mapping[str, Any]

_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "ceildiv": lambda a, b: -np.floor_divide(-a, b),
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_ARITH: dict[str, Callable[[Any, Any], Any]] = _INTEGERS | {
    "/": np.true_divide,
    "pow": np.power,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "and": np.logical_and,
    "or": np.logical_or,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "not": np.logical_not,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
}


def matrix_dtype(accumulator: DType) -> np.dtype[Any]:
    """The NumPy type in which a floating-point gemm accumulates."""
    return np.dtype(np.float64 if accumulator.bits > 32 else np.float32)


def convert(values: Any, target: DType) -> Array:
    """Values as `target`: floats round to nearest even; floats to integers truncate and saturate
    (NaN becomes 0); integers to integers wrap."""
    array = np.asarray(values)
    if array.dtype == target.numpy:
        return array
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if target.is_float:
            return array.astype(target.numpy)
        if target.kind == "bool":
            return np.asarray(array != 0)
        if array.dtype.kind in "iub":
            return _wrap(array, target)
        low = -(1 << (target.bits - 1)) if target.kind == "int" else 0
        high = (1 << (target.bits - (target.kind == "int"))) - 1
        wide = np.trunc(np.nan_to_num(array.astype(np.float64), nan=0.0))
        result = np.where(wide >= high, high, np.where(wide <= low, low, wide))
        if target.bits < 64:
            return result.astype(np.int64).astype(target.numpy)
        inside = np.clip(wide, float(low), np.nextafter(float(high), 0)).astype(target.numpy)
        return np.where(wide >= high, target.numpy.type(high), inside)


def _wrap(array: Array, target: DType) -> Array:
    if target.bits >= 8:
        return array.astype(target.numpy)
    low = array.astype(np.int64) & ((1 << target.bits) - 1)
    if target.kind == "int":
        low = np.where(low >= 1 << (target.bits - 1), low - (1 << target.bits), low)
    return low.astype(target.numpy)


def execute_map(op: Map, scalars: Mapping[str, int], view: View) -> None:
    """Execute a Map store by store, each for all index tuples."""
    env: dict[str, Any] = dict(scalars)
    shape = tuple(evaluate(extent, scalars) for _, extent in op.axes)
    for axis, ((name, _), extent) in enumerate(zip(op.axes, shape, strict=True)):
        lane = [1] * len(shape)
        lane[axis] = extent
        env[name] = np.arange(extent).reshape(lane)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for store, guard in zip(op.stores, op.guards, strict=True):
            active = True if guard == TRUE else condition_lanes(guard, env)
            _store(store, active, shape, env, view)


def _store(store: Store, active: Any, shape: tuple[int, ...], env: Env, view: View) -> None:
    array = view(store.buffer.name)
    value = _evaluate(store.value, env, view, active)
    places = [index_lanes(index, env) for index in store.indices]
    inside, all_inside = _inside(store.buffer, places, array.shape, active)
    value = convert(value, store.buffer.dtype)
    if all_inside and active is True and not store.atomic:
        lanes = np.broadcast_shapes(shape, *(np.shape(place) for place in places))
        array[tuple(np.broadcast_to(place, lanes) for place in places)] = value
        return
    chosen = np.broadcast_to(np.logical_and(inside, active), shape)
    where = tuple(np.broadcast_to(place, shape)[chosen] for place in places)
    values = np.broadcast_to(value, shape)[chosen]
    if store.atomic:
        np.add.at(array, where, values)
    else:
        array[where] = values


def _inside(
    buffer: Buffer, places: list[Any], shape: tuple[int, ...], active: Any
) -> tuple[Any, bool]:
    """Which lanes are within the array, and whether all are; on-chip misses are errors."""
    inside: Any = True
    complete = True
    for place, size in zip(places, shape, strict=True):
        if np.size(place) and (np.min(place) < 0 or np.max(place) >= size):
            complete = False
            inside = np.logical_and(inside, np.logical_and(place >= 0, place < size))
    if not complete and buffer.scope != Scope.GLOBAL:
        outside = np.logical_not(inside)
        if np.any(np.logical_and(outside, active)):
            raise KernelError(f"'{buffer.name}' of shape {shape} is accessed outside its bounds")
    return inside, complete


def index_lanes(expr: Expr, env: Env) -> Any:
    """An Expr for all lanes; `env` maps names to ints or index arrays."""
    match expr:
        case Const(value):
            return value
        case Var(name) | Param(name):
            return env[name]
        case Binary(op, lhs, rhs):
            return _INTEGERS[op](index_lanes(lhs, env), index_lanes(rhs, env))
        case Select(cond, then, otherwise):
            return np.where(
                condition_lanes(cond, env), index_lanes(then, env), index_lanes(otherwise, env)
            )
    raise TypeError(f"not a symbolic integer: {expr!r}")


def condition_lanes(cond: Cond, env: Env) -> Any:
    """A Cond for all lanes."""
    match cond:
        case Truth(value):
            return value
        case Compare(op, lhs, rhs):
            return _INTEGERS[op](index_lanes(lhs, env), index_lanes(rhs, env))
        case Not(operand):
            return np.logical_not(condition_lanes(operand, env))
        case Logic(op, operands):
            combine = np.logical_and if op == "and" else np.logical_or
            result = condition_lanes(operands[0], env)
            for operand in operands[1:]:
                result = combine(result, condition_lanes(operand, env))
            return result
    raise TypeError(f"not a condition: {cond!r}")


def evaluate_value(value: Value, scalars: Mapping[str, int], view: View) -> Any:
    """A value outside a Map, where no axes are bound."""
    with np.errstate(all="ignore"):
        return _evaluate(value, scalars, view, True)


def _evaluate(value: Value, env: Env, view: View, active: Any) -> Any:
    match value:
        case Literal(number):
            return number
        case Index(expr):
            return index_lanes(expr, env)
        case Element(buffer, indices):
            return _load(buffer, indices, env, view, active)
        case Cast(target, operand):
            stored = convert(_evaluate(operand, env, view, active), target)
            return stored.astype(compute_dtype(value).numpy)
        case Unary(op, operand):
            inner = _typed(_evaluate(operand, env, view, active), compute_dtype(value))
            return _UNARY[op](inner)
        case Arith(op, lhs, rhs):
            together = promote(compute_dtype(lhs), compute_dtype(rhs))
            if op == "/":
                together = compute_dtype(value)
            left, right = (_evaluate(side, env, view, active) for side in (lhs, rhs))
            if op in LOGICAL:
                return _ARITH[op](left, right)
            return _ARITH[op](_typed(left, together), _typed(right, together))
        case Where(cond, then, otherwise):
            test = np.asarray(_evaluate(cond, env, view, active)) != 0
            kind = compute_dtype(value)
            yes = _typed(_evaluate(then, env, view, np.logical_and(active, test)), kind)
            no = _typed(_evaluate(otherwise, env, view, np.logical_and(active, ~test)), kind)
            return np.where(test, yes, no)


def _typed(values: Any, kind: DType) -> Array:
    return np.asarray(values).astype(kind.numpy, copy=False)


def _load(buffer: Buffer, indices: tuple[Expr, ...], env: Env, view: View, active: Any) -> Array:
    array = view(buffer.name)
    places = [index_lanes(index, env) for index in indices]
    inside, all_inside = _inside(buffer, places, array.shape, active)
    if not all_inside:
        places = [
            np.clip(place, 0, max(size - 1, 0))
            for place, size in zip(places, array.shape, strict=True)
        ]
        if 0 in array.shape:
            return np.zeros(np.shape(inside), dtype=compute_dtype(Element(buffer, indices)).numpy)
    found = _typed(array[tuple(places)], compute_dtype(Element(buffer, indices)))
    return found if all_inside else np.where(inside, found, found.dtype.type(0))
