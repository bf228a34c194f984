"""Exprs and Conds as solver terms: the only translation from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import z3

from explorer.expr import Binary, Compare, Cond, Const, Expr, Logic, Not, Param, Select, Truth, Var

Terms = Mapping[str, Any]


def lower(expr: Expr, terms: Terms) -> Any:
    """The integer term of an Expr; `terms` gives the term of every symbol."""
    match expr:
        case Const(value):
            return z3.IntVal(value)
        case Param(name) | Var(name):
            return terms[name]
        case Select(cond, then, otherwise):
            return z3.If(lower_cond(cond, terms), lower(then, terms), lower(otherwise, terms))
        case Binary(op, lhs, rhs):
            return _binary(op, lower(lhs, terms), lower(rhs, terms))
    raise TypeError(f"not a symbolic integer: {expr!r}")


def _binary(op: str, a: Any, b: Any) -> Any:
    # The divisors are positive, where the solver's division and modulo are floored like ours.
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a / b
        case "%":
            return a % b
        case "ceildiv":
            return (a + b - 1) / b
        case "min":
            return z3.If(a <= b, a, b)
        case "max":
            return z3.If(a >= b, a, b)
    raise TypeError(f"unknown operation {op!r}")


def lower_cond(cond: Cond, terms: Terms) -> Any:
    """The truth term of a Cond."""
    match cond:
        case Truth(value):
            return z3.BoolVal(value)
        case Compare("<", lhs, rhs):
            return lower(lhs, terms) < lower(rhs, terms)
        case Compare("<=", lhs, rhs):
            return lower(lhs, terms) <= lower(rhs, terms)
        case Compare("==", lhs, rhs):
            return lower(lhs, terms) == lower(rhs, terms)
        case Compare(_, lhs, rhs):
            return lower(lhs, terms) != lower(rhs, terms)
        case Not(operand):
            return z3.Not(lower_cond(operand, terms))
        case Logic("and", operands):
            return z3.And(*(lower_cond(operand, terms) for operand in operands))
        case Logic(_, operands):
            return z3.Or(*(lower_cond(operand, terms) for operand in operands))
    raise TypeError(f"not a condition: {cond!r}")
