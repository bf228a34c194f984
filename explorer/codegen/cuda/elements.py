"""Element types and element values as CUDA C++.

Values are computed in the types of `ir.values`: float, double, int, long long, bool. Floats of 16
bits lie in memory and fragments as their bits (u16).

Invariant: a value means here what it means in the NumPy interpreter, up to the rounding of the
device's exp, log, tanh and their kin.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from attrs import frozen

from explorer.codegen.cuda.scalars import Scalars
from explorer.errors import KernelError
from explorer.expr import Expr
from explorer.ir.dtypes import DType
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Cast,
    Element,
    Index,
    Literal,
    Unary,
    Value,
    Where,
)
from explorer.ir.values import LOGICAL, compute_dtype, promote

_STORED = {
    "float64": "double",
    "float32": "float",
    "float16": "u16",
    "bfloat16": "u16",
    "float8_e4m3": "unsigned char",
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint64": "unsigned long long",
    "uint32": "unsigned int",
    "uint16": "unsigned short",
    "uint8": "unsigned char",
    "bool": "unsigned char",
}
_FUNCTIONS = {
    name: name for name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "floor", "ceil")
} | {"abs": "fabs"}
# Floats of 8 bits are read, never written: conversions differ in what becomes of large values.
_READ_ONLY = {"float8_e4m3": "e4m3"}
NARROW_FLOATS = {"float16": "f16", "bfloat16": "bf16"}


def stored_type(element: DType) -> str:
    """The C++ type of a stored element; KernelError where the backend has none."""
    found = _STORED.get(element.name)
    if found is None:
        raise KernelError(f"the cuda backend has no element type {element}")
    return found


def compute_type(kind: DType) -> str:
    """The C++ type in which values of a compute type are held."""
    return "bool" if kind.kind == "bool" else _STORED[kind.name]


def widened_text(text: str, element: DType) -> str:
    """A stored element as a value."""
    narrow = (NARROW_FLOATS | _READ_ONLY).get(element.name)
    if narrow:
        return f"from_{narrow}({text})"
    return f"({text} != 0)" if element.kind == "bool" else text


def stored_text(text: str, source: DType, target: DType) -> str:
    """A value of compute type `source` as a stored element."""
    if target.name in _READ_ONLY:
        raise KernelError(f"the cuda backend stores no {target}; store bfloat16 or float32")
    narrow = NARROW_FLOATS.get(target.name)
    if narrow:
        return f"to_{narrow}((float)({text}))"
    if target.kind == "bool":
        return f"(unsigned char)(({text}) != 0)"
    if source.is_float and not target.is_float and target.bits < 32:
        low = -(1 << (target.bits - 1)) if target.kind == "int" else 0
        high = (1 << (target.bits - (target.kind == "int"))) - 1
        return f"({_STORED[target.name]})min(max((int)({text}), {low}), {high})"
    return f"({stored_type(target)})({text})"


@frozen
class Values:
    """Prints element values; `load` gives the widened text of an element."""

    scalars: Scalars
    load: Callable[[Buffer, tuple[Expr, ...]], str]

    def typed(self, value: Value, kind: DType) -> str:
        """A value in a compute type."""
        if isinstance(value, Literal) and kind.is_float:
            return _float_literal(float(value.value), kind)
        text, own = self.text(value), compute_dtype(value)
        return text if own == kind else f"({compute_type(kind)})({text})"

    def stored(self, value: Value, target: DType) -> str:
        """A value as a stored element."""
        kind = compute_dtype(value)
        if isinstance(value, Literal) and target.is_float:
            kind = _FLOAT64 if target.bits > 32 else _FLOAT32
        return stored_text(self.typed(value, kind), kind, target)

    def text(self, value: Value) -> str:
        """A value in its own compute type."""
        kind = compute_dtype(value)
        match value:
            case Literal(number):
                return _literal(number, kind)
            case Index(expr):
                return f"(long long){self.scalars.expr(expr)}"
            case Element(buffer, indices):
                return self.load(buffer, indices)
            case Cast(target, operand):
                return widened_text(self.stored(operand, target), target)
            case Unary(op, operand):
                return self._unary(op, operand, kind)
            case Arith(op, lhs, rhs):
                return self._arith(op, lhs, rhs, kind)
            case Where(cond, then, otherwise):
                yes, no = self.typed(then, kind), self.typed(otherwise, kind)
                return f"(({self.text(cond)}) ? {yes} : {no})"

    def _unary(self, op: str, operand: Value, kind: DType) -> str:
        if op == "not":
            return f"(!({self.text(operand)}))"
        text = self.typed(operand, kind)
        if op == "neg":
            return f"(-{text})"
        if not kind.is_float:
            return f"abs({text})"
        suffix = "f" if kind.bits == 32 else ""
        if op == "sigmoid":
            one = "1.0f" if suffix else "1.0"
            return f"({one} / ({one} + exp{suffix}(-({text}))))"
        return f"{_FUNCTIONS[op]}{suffix}({text})"

    def _arith(self, op: str, lhs: Value, rhs: Value, result: DType) -> str:
        if op in LOGICAL:
            sign = "&&" if op == "and" else "||"
            return f"(({self.text(lhs)}) {sign} ({self.text(rhs)}))"
        kind = result if op == "/" else promote(compute_dtype(lhs), compute_dtype(rhs))
        left, right = self.typed(lhs, kind), self.typed(rhs, kind)
        if op in ("min", "max"):
            return f"{'least' if op == 'min' else 'most'}({left}, {right})"
        if op == "pow":
            return f"pow{'f' if kind.bits == 32 else ''}({left}, {right})"
        if op in ("//", "%"):
            if kind.is_float:
                raise KernelError(f"the cuda backend has no {op} of floating-point values")
            return f"{'floor_div' if op == '//' else 'floor_mod'}({left}, {right})"
        return f"({left} {op} {right})"


_FLOAT32, _FLOAT64 = DType("float32", 32, "float"), DType("float64", 64, "float")


def _literal(number: float | int | bool, kind: DType) -> str:
    if isinstance(number, bool):
        return str(number).lower()
    if isinstance(number, int):
        return f"{number}ll" if kind.bits > 32 else f"({number})"
    return _float_literal(number, kind)


def _float_literal(number: float, kind: DType) -> str:
    single = kind.bits == 32
    if math.isnan(number) or math.isinf(number):
        bits = "0x7fffffff" if math.isnan(number) else "0x7f800000"
        sign = "-" if number < 0 else ""
        return f"({sign}__int_as_float({bits}))"
    text = repr(float(number))
    return f"({text}{'f' if single else ''})"
