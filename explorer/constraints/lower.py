"""Exprs and Conds as solver terms: the only translation from one to the other.

Choices have few values, so a product or a division by something symbolic is split into cases over
the values of its smaller operand. What is left is linear, which the solver decides fast.

Invariant: a term has the value of its Expr under every assignment from the domains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import z3

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
    evaluate,
    symbols,
)

# Cases beyond which an operation is left to the solver's nonlinear arithmetic.
MAX_CASES = 512


class Lowering:
    """Translates over symbols with finite domains; `equal[name, value]` are their atoms."""

    def __init__(self, domains: Mapping[str, tuple[int, ...]]) -> None:
        self.terms: dict[str, Any] = {name: z3.Int(name) for name in domains}
        self.equal: dict[tuple[str, int], Any] = {
            (name, value): self.terms[name] == value
            for name, domain in domains.items()
            for value in domain
        }
        self._domains = domains
        self._done: dict[Expr, Any] = {}

    def lower(self, expr: Expr) -> Any:
        """The integer term of an Expr; KeyError for a symbol without a domain."""
        if expr not in self._done:
            self._done[expr] = self._lower(expr)
        return self._done[expr]

    def _lower(self, expr: Expr) -> Any:
        match expr:
            case Const(value):
                return z3.IntVal(value)
            case Param(name) | Var(name):
                return self.terms[name]
            case Select(cond, then, otherwise):
                return z3.If(self.lower_cond(cond), self.lower(then), self.lower(otherwise))
            case Binary("*", lhs, rhs) if symbols(lhs) and symbols(rhs):
                small, large = sorted((lhs, rhs), key=self._cases)
                return self._split(small, lambda value: self.lower(large) * value)
            case Binary("//" | "%" | "ceildiv" as op, lhs, rhs) if symbols(rhs):
                term = self.lower(lhs)
                return self._split(rhs, lambda value: _binary(op, term, z3.IntVal(value)))
            case Binary(op, lhs, rhs):
                return _binary(op, self.lower(lhs), self.lower(rhs))
        raise TypeError(f"not a symbolic integer: {expr!r}")

    def _cases(self, expr: Expr) -> int:
        count = 1
        for symbol in symbols(expr):
            count *= len(self._domains[symbol.name])
        return count

    def _split(self, expr: Expr, term_of: Any) -> Any:
        """`term_of(v)` under the condition that `expr` has the value v, for each of its values."""
        if self._cases(expr) > MAX_CASES:
            return term_of(self.lower(expr))
        result: Any = None
        for value, cases in self._values(expr).items():
            term = term_of(value)
            result = term if result is None else z3.If(z3.Or(*cases), term, result)
        return result

    def _values(self, expr: Expr) -> dict[int, list[Any]]:
        """The values of an Expr, each with the assignments of its symbols that give it."""
        found: dict[int, list[Any]] = {}
        for env in self._assignments(expr):
            same = [self.equal[item] for item in env.items()]
            found.setdefault(evaluate(expr, env), []).append(
                same[0] if len(same) == 1 else z3.And(*same)
            )
        return found

    def _assignments(self, expr: Expr) -> Iterator[dict[str, int]]:
        names = sorted(symbol.name for symbol in symbols(expr))
        for values in product(*(self._domains[name] for name in names)):
            yield dict(zip(names, values, strict=True))

    def lower_cond(self, cond: Cond) -> Any:
        """The truth term of a Cond."""
        match cond:
            case Truth(value):
                return z3.BoolVal(value)
            case Compare("<", lhs, rhs):
                return self.lower(lhs) < self.lower(rhs)
            case Compare("<=", lhs, rhs):
                return self.lower(lhs) <= self.lower(rhs)
            case Compare("==", lhs, rhs):
                return self.lower(lhs) == self.lower(rhs)
            case Compare(_, lhs, rhs):
                return self.lower(lhs) != self.lower(rhs)
            case Not(operand):
                return z3.Not(self.lower_cond(operand))
            case Logic("and", operands):
                return z3.And(*map(self.lower_cond, operands))
            case Logic(_, operands):
                return z3.Or(*map(self.lower_cond, operands))
        raise TypeError(f"not a condition: {cond!r}")


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
