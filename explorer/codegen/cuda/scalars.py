"""Symbolic integers and conditions as CUDA C++, of type int.

Division and modulo are floored in the IR and truncated in C++; a plain `/` or `%` is printed where
the dividend is known not to be negative.

Invariant: every name of a user's gets a prefix that no other kind of name has.
"""

from __future__ import annotations

import re

from attrs import evolve, field, frozen

from explorer.codegen.cuda.bounds import Interval, Ranges, known, nonnegative
from explorer.errors import KernelError
from explorer.expr import (
    Binary,
    Compare,
    Cond,
    Const,
    Expr,
    Logic,
    Lookup,
    Not,
    Select,
    Truth,
    Var,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def c_name(prefix: str, name: str) -> str:
    """A user's name as an identifier; KernelError for one that cannot stand in source."""
    plain = name.replace(".", "_")
    if not _NAME.match(plain):
        raise KernelError(
            f"'{name}' cannot stand in generated source: use letters, digits and underscores, "
            "at most 64, no leading digit"
        )
    return f"{prefix}_{plain}"


def fixed(expr: Expr, what: str) -> int:
    """The value of an integer that the source needs as a literal."""
    if not isinstance(expr, Const):
        raise KernelError(f"{what} is '{expr}', the cuda backend needs a fixed number")
    return expr.value


def table_text(table: Lookup) -> str:
    """The declaration of the values of a lookup."""
    values = ", ".join(map(str, table.values))
    return f"static __device__ const u16 {table.name}[{len(table.values)}] = {{{values}}};\n"


@frozen
class Scalars:
    """Prints expressions under what is known about their variables."""

    ranges: Ranges = field(factory=dict)

    def within(self, name: str, bounds: Interval) -> Scalars:
        """With one more variable."""
        return evolve(self, ranges={**self.ranges, name: bounds})

    def expr(self, expr: Expr) -> str:
        """An integer."""
        match expr:
            case Const(value):
                return str(value) if value >= 0 else f"({value})"
            case Var(name):
                return c_name("v", name)
            case Binary(op, lhs, rhs):
                return self._binary(op, lhs, rhs)
            case Select(cond, then, otherwise):
                decided = known(cond, self.ranges)
                if decided is not None:
                    return self.expr(then if decided else otherwise)
                return f"({self.cond(cond)} ? {self.expr(then)} : {self.expr(otherwise)})"
            case Lookup():
                return f"{expr.name}[{self.expr(expr.index)}]"
        raise KernelError(f"'{expr}' is not fixed: bind every size before emitting source")

    def wide(self, expr: Expr) -> str:
        """An integer of 64 bits, widened before anything is multiplied."""
        match expr:
            case Const(value):
                return f"{value}ll" if value >= 0 else f"({value}ll)"
            case Binary(op, lhs, rhs) if op in ("+", "-", "*"):
                return f"({self.wide(lhs)} {op} {self.wide(rhs)})"
        return f"(long long){self.expr(expr)}"

    def _binary(self, op: str, lhs: Expr, rhs: Expr) -> str:
        left, right = self.expr(lhs), self.expr(rhs)
        if op in ("min", "max"):
            return f"{op}({left}, {right})"
        if op in ("+", "-", "*"):
            return f"({left} {op} {right})"
        if not nonnegative(lhs, self.ranges):
            named = {"//": "floor_div", "%": "floor_mod", "ceildiv": "ceil_div"}[op]
            return f"{named}({left}, {right})"
        if op == "ceildiv":
            return f"(({left} + {right} - 1) / {right})"
        return f"({left} {'/' if op == '//' else '%'} {right})"

    def cond(self, cond: Cond) -> str:
        """A truth value."""
        decided = known(cond, self.ranges)
        if decided is not None:
            return str(decided).lower()
        match cond:
            case Truth(value):
                return str(value).lower()
            case Compare(op, lhs, rhs):
                return f"({self.expr(lhs)} {op} {self.expr(rhs)})"
            case Not(operand):
                return f"!{self.cond(operand)}"
            case Logic(op, operands):
                sign = " && " if op == "and" else " || "
                return f"({sign.join(map(self.cond, operands))})"
        raise KernelError(f"not a condition: {cond!r}")
