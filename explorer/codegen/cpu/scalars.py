"""Symbolic integers and conditions as C, and the names that may stand in it.

Invariant: every name of a user's reaches the source through `c_name`, with a prefix that no other
kind of name has, so that it meets neither a keyword nor a name of the runtime.
"""

from __future__ import annotations

import re

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
from explorer.program.launch import TILE

PART = Var("<part>")
_SPECIAL = {PART.name: "part", TILE.name: "tile"}
_CALLS = {"//": "ex_div", "%": "ex_mod", "min": "ex_min", "max": "ex_max", "ceildiv": "ex_ceildiv"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def c_name(prefix: str, name: str) -> str:
    """A user's name as a C identifier; KernelError for one that cannot stand in source."""
    if not _NAME.match(name):
        raise KernelError(
            f"'{name}' cannot stand in generated source: use letters, digits and underscores, "
            "at most 64, no leading digit"
        )
    return f"{prefix}_{name}"


def quoted(name: str) -> str:
    """A user's name for a comment or a string of the source: harmless characters only."""
    return re.sub(r"[^A-Za-z0-9_.]", "?", name)


def var_name(name: str) -> str:
    """The C name of a run-time integer."""
    return _SPECIAL.get(name) or c_name("v", name)


def c_expr(expr: Expr) -> str:
    """A symbolic integer as a C expression of type long."""
    match expr:
        case Const(value):
            return str(value) if value >= 0 else f"({value})"
        case Var(name):
            return var_name(name)
        case Binary(op, lhs, rhs):
            left, right = c_expr(lhs), c_expr(rhs)
            if op in _CALLS:
                return f"{_CALLS[op]}({left}, {right})"
            return f"({left} {op} {right})"
        case Select(cond, then, otherwise):
            return f"({c_cond(cond)} ? {c_expr(then)} : {c_expr(otherwise)})"
        case Lookup():
            return f"{expr.name}[{c_expr(expr.index)}]"
    raise KernelError(f"'{expr}' is not fixed: bind every size before emitting source")


def c_cond(cond: Cond) -> str:
    """A condition as a C expression."""
    match cond:
        case Truth(value):
            return str(int(value))
        case Compare(op, lhs, rhs):
            return f"({c_expr(lhs)} {op} {c_expr(rhs)})"
        case Not(operand):
            return f"!{c_cond(operand)}"
        case Logic(op, operands):
            sign = " && " if op == "and" else " || "
            return f"({sign.join(map(c_cond, operands))})"
    raise KernelError(f"not a condition: {cond!r}")


def fixed(expr: Expr, what: str) -> int:
    """The value of an extent that the source needs as a literal; KernelError where it has none."""
    if not isinstance(expr, Const):
        raise KernelError(f"{what} is '{expr}', the cpu backend needs a fixed size")
    return expr.value
