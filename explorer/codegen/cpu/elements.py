"""Element types and element values as C.

A stored type has a short name (f32, bf16, i8, ...). Values are computed in the types of
`ir.values`; floats of 16 and of 8 bits are computed, and held on chip, as f32 that their bits
could hold.

Invariant: a value means here what it means in the NumPy interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from attrs import frozen

from explorer.codegen.cpu.scalars import c_cond, c_expr
from explorer.errors import KernelError
from explorer.expr import Expr, all_of, compare
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

_SHORT = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3": "e4m3",
    "bool": "b8",
} | {f"{kind}int{bits}": f"{kind or 'i'}{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)}
NARROW_FLOATS = ("f16", "bf16", "e4m3")
_C_TYPES = (
    {"f64": "double", "f32": "float", "b8": "uint8_t"}
    | {short: f"{short}_t" for short in NARROW_FLOATS}
    | {short: f"{name}_t" for name, short in _SHORT.items() if "int" in name}
)
_FUNCTIONS = {
    name: name for name in ("exp", "exp2", "log", "log2", "sqrt", "tanh", "floor", "ceil")
} | {"abs": "fabs", "rsqrt": "ex_rsqrt", "sigmoid": "ex_sigmoid"}


def short_name(element: DType) -> str:
    """The short name of a stored type; KernelError where the cpu backend has none."""
    found = _SHORT.get(element.name)
    if found is None:
        raise KernelError(f"the cpu backend has no element type {element}")
    return found


def on_chip_name(element: DType) -> str:
    """The short name of a type as slots and fragments hold it."""
    short = short_name(element)
    return "f32" if short in NARROW_FLOATS else short


def c_type(short: str) -> str:
    """The C type of a stored type."""
    return _C_TYPES[short]


def compute_name(kind: DType) -> str:
    """The short name of a compute type."""
    return "b8" if kind.kind == "bool" else short_name(kind)


def rounded(text: str, source: str, target: DType) -> str:
    """A computed value rounded to a stored type, in the type it is computed in."""
    short = short_name(target)
    if short in NARROW_FLOATS:
        return f"ex_f32_from_{short}(ex_{short}_from_{_float(source)}({text}))"
    return converted(text, source, short)


def converted(text: str, source: str, target: str) -> str:
    """A computed value of short type `source` as an element of short type `target`."""
    if target == source:
        return text
    if target in ("f32", "f64", *NARROW_FLOATS):
        return f"ex_{target}_from_{_float(source)}({text})"
    if target == "b8":
        return f"(({text}) != 0)"
    if source in ("f32", "f64"):
        return f"ex_{target}_from_f64({text})"
    return f"(({c_type(target)})({text}))"


def _float(source: str) -> str:
    return source if source == "f32" else "f64"


@frozen
class Place:
    """Where a buffer lies for one op: a C pointer, element strides and sizes per dimension."""

    buffer: Buffer
    pointer: str
    short: str
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    is_global: bool

    def at(self, indices: tuple[Expr, ...]) -> str:
        """The C lvalue of one element."""
        terms = [
            c_expr(index * stride) for index, stride in zip(indices, self.strides, strict=True)
        ]
        return f"{self.pointer}[{' + '.join(terms) or '0'}]"

    def inside(self, indices: tuple[Expr, ...]) -> str:
        """The C condition that an element lies in the tensor."""
        parts = [
            all_of(compare("<=", 0, index), compare("<", index, size))
            for index, size in zip(indices, self.shape, strict=True)
        ]
        return c_cond(all_of(*parts))


@frozen
class ValueEmitter:
    """Element values as C expressions; `place` finds a buffer."""

    place: Callable[[str], Place]

    def typed(self, value: Value, kind: DType) -> str:
        """A value in a compute type."""
        text, own = self.text(value), compute_dtype(value)
        if isinstance(value, Literal) and kind.is_float:
            return f"(({c_type(compute_name(kind))}){text})"
        return text if own == kind else f"(({c_type(compute_name(kind))})({text}))"

    def text(self, value: Value) -> str:
        """A value in its own compute type; a float literal as double."""
        match value:
            case Literal(number):
                return _literal(number)
            case Index(expr):
                return f"((int64_t){c_expr(expr)})"
            case Element(buffer, indices):
                return self.load(buffer, indices)
            case Cast(target, operand):
                return rounded(self.text(operand), compute_name(compute_dtype(operand)), target)
            case Unary(op, operand):
                return self._unary(op, operand, compute_dtype(value))
            case Arith(op, lhs, rhs):
                return self._arith(op, lhs, rhs, compute_dtype(value))
            case Where(cond, then, otherwise):
                kind = compute_dtype(value)
                yes, no = self.typed(then, kind), self.typed(otherwise, kind)
                return f"(({self.text(cond)}) != 0 ? {yes} : {no})"

    def load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """An element, widened; 0 outside its tensor."""
        place = self.place(buffer.name)
        text = place.at(indices)
        if place.short in NARROW_FLOATS:
            text = f"ex_f32_from_{place.short}({text})"
        if not place.is_global:
            return text
        inside = place.inside(indices)
        return text if inside == "1" else f"({inside} ? {text} : 0)"

    def _unary(self, op: str, operand: Value, kind: DType) -> str:
        text = self.typed(operand, kind) if op != "not" else self.text(operand)
        if op in ("neg", "not"):
            return f"({'-' if op == 'neg' else '!'}{text})"
        if not kind.is_float:
            return f"ex_abs({text})"
        return f"{_FUNCTIONS[op]}{'f' if kind.bits == 32 else ''}({text})"

    def _arith(self, op: str, lhs: Value, rhs: Value, result: DType) -> str:
        if op in LOGICAL:
            sign = "&&" if op == "and" else "||"
            return f"(({self.text(lhs)}) {sign} ({self.text(rhs)}))"
        kind = result if op == "/" else promote(compute_dtype(lhs), compute_dtype(rhs))
        left, right = self.typed(lhs, kind), self.typed(rhs, kind)
        short = compute_name(kind) if kind.is_float else "i64"
        named = {"//": "floordiv", "%": "floormod", "min": "least", "max": "most", "pow": "pow"}
        if op in named:
            return f"(({c_type(compute_name(kind))})ex_{named[op]}_{short}({left}, {right}))"
        return f"({left} {op} {right})"


def _literal(number: float | int | bool) -> str:
    if isinstance(number, bool):
        return str(int(number))
    if isinstance(number, int):
        return f"INT64_C({number})" if abs(number) >= 2**31 else f"({number})"
    if math.isnan(number):
        return "((double)NAN)"
    if math.isinf(number):
        return "((double)INFINITY)" if number > 0 else "(-(double)INFINITY)"
    return f"({number.hex()})"
