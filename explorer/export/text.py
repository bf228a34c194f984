"""Symbolic integers, conditions, element values and regions as TileLang's Python.

Invariant: every name that reaches the text is a Python identifier, no keyword, and not the
module's own name `T`; everything else is a number, an operator or a quoted string.
"""

from __future__ import annotations

import keyword
import math

from explorer.errors import KernelError, ScheduleError
from explorer.expr import (
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
)
from explorer.ir.dtypes import DType
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Cast,
    Element,
    Index,
    Literal,
    Region,
    Unary,
    Value,
    Where,
)

_DTYPES = {"float8_e4m3": "float8_e4m3fn", "float4_e2m1": "float4_e2m1fn"}
_ABSENT = ("uint4",)
_CALLS = {"min": "T.min", "max": "T.max", "ceildiv": "T.ceildiv"}
_VALUE_CALLS = {"min": "T.min", "max": "T.max", "pow": "T.pow"}


def variable(name: str, what: str) -> str:
    """`name` if it can be a variable of the printed program, else ScheduleError."""
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name) or name == "T":
        raise ScheduleError(
            f"{what} {name!r} cannot be a variable of the exported kernel: "
            "it must be a Python identifier, no keyword, and not T"
        )
    return name


def dtype_text(dtype: DType) -> str:
    """An element type as an attribute of TileLang's language module."""
    if dtype.name in _ABSENT:
        raise KernelError(f"TileLang 0.1.15 has no element type {dtype.name}")
    return f"T.{_DTYPES.get(dtype.name, dtype.name)}"


def expr_text(expr: Expr) -> str:
    """A symbolic integer; nested operators are parenthesised."""
    match expr:
        case Const(value):
            return str(value)
        case Var(name) | Param(name):
            return variable(name, "variable")
        case Binary(op, lhs, rhs) if op in _CALLS:
            return f"{_CALLS[op]}({expr_text(lhs)}, {expr_text(rhs)})"
        case Binary(op, lhs, rhs):
            return f"{_operand(lhs)} {op} {_operand(rhs)}"
        case Select(cond, then, otherwise):
            parts = f"{cond_text(cond)}, {expr_text(then)}, {expr_text(otherwise)}"
            return f"T.if_then_else({parts})"
    raise TypeError(f"not a symbolic integer: {expr!r}")


def _operand(expr: Expr) -> str:
    text = expr_text(expr)
    inline = isinstance(expr, Binary) and expr.op not in _CALLS
    return f"({text})" if inline or text.startswith("-") else text


def cond_text(cond: Cond) -> str:
    """A condition over symbolic integers."""
    match cond:
        case Truth(value):
            return str(value)
        case Compare(op, lhs, rhs):
            return f"{expr_text(lhs)} {op} {expr_text(rhs)}"
        case Not(operand):
            return f"not ({cond_text(operand)})"
        case Logic(op, operands):
            return f" {op} ".join(f"({cond_text(operand)})" for operand in operands)
    raise TypeError(f"not a condition: {cond!r}")


def shape_text(shape: tuple[Expr, ...]) -> str:
    """A shape as a tuple of constants."""
    parts = [expr_text(extent) for extent in shape]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def element_text(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    """One element of a buffer."""
    return f"{variable(buffer.name, 'buffer')}[{', '.join(map(expr_text, indices))}]"


def region_text(region: Region, short: bool = False) -> str:
    """A region: the bare name of a whole buffer, else slices.

    `short` leaves out the ends of the slices, which the other operand's shape then gives.
    """
    name = variable(region.buffer.name, "buffer")
    starts_at_zero = all(start == Const(0) for start in region.start)
    if starts_at_zero and region.extent == region.buffer.shape and not region.squeezed:
        return name
    if short and not region.squeezed:
        return f"{name}[{', '.join(map(expr_text, region.start))}]"
    parts = [
        expr_text(start)
        if axis in region.squeezed
        else f"{expr_text(start)} : {expr_text(start + extent)}"
        for axis, (start, extent) in enumerate(zip(region.start, region.extent, strict=True))
    ]
    return f"{name}[{', '.join(parts)}]"


def value_text(value: Value) -> str:
    """An element value."""
    match value:
        case Literal(number):
            return _number(number)
        case Index(expr):
            return expr_text(expr)
        case Element(buffer, indices):
            return element_text(buffer, indices)
        case Unary("neg", operand):
            return f"(-{value_text(operand)})"
        case Unary("not", operand):
            return f"(not {value_text(operand)})"
        case Unary(op, operand):
            return f"T.{variable(op, 'function')}({value_text(operand)})"
        case Arith(op, lhs, rhs) if op in _VALUE_CALLS:
            return f"{_VALUE_CALLS[op]}({value_text(lhs)}, {value_text(rhs)})"
        case Arith(op, lhs, rhs):
            return f"({value_text(lhs)} {op} {value_text(rhs)})"
        case Where(cond, then, otherwise):
            parts = ", ".join(map(value_text, (cond, then, otherwise)))
            return f"T.if_then_else({parts})"
        case Cast(dtype, operand):
            return f"T.cast({value_text(operand)}, {dtype_text(dtype)})"
    raise TypeError(f"not an element value: {value!r}")


def _number(number: float | int | bool) -> str:
    if isinstance(number, float) and math.isinf(number):
        return "T.infinity(T.float32)" if number > 0 else "(-T.infinity(T.float32))"
    if isinstance(number, float) and math.isnan(number):
        raise KernelError("a NaN literal has no form in TileLang 0.1.15")
    return repr(number)


__all__ = [
    "cond_text",
    "dtype_text",
    "element_text",
    "expr_text",
    "region_text",
    "shape_text",
    "value_text",
    "variable",
]
