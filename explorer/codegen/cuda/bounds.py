"""What is known about integers and conditions from the ranges of the variables in them.

Invariant: an interval holds every value that the expression can take; `None` is no bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from explorer.expr import (
    Binary,
    Compare,
    Cond,
    Const,
    Expr,
    Logic,
    Lookup,
    Not,
    Param,
    Select,
    Truth,
    Var,
)

Bound: TypeAlias = "int | None"
Interval: TypeAlias = tuple[Bound, Bound]
Ranges: TypeAlias = Mapping[str, Interval]


def interval(expr: Expr, ranges: Ranges) -> Interval:
    """The smallest and largest value of an Expr."""
    match expr:
        case Const(value):
            return value, value
        case Var(name) | Param(name):
            return ranges.get(name, (None, None))
        case Select(_, then, otherwise):
            one, other = interval(then, ranges), interval(otherwise, ranges)
            return _least(one[0], other[0]), _most(one[1], other[1])
        case Lookup(values, _):
            return min(values), max(values)
        case Binary(op, lhs, rhs):
            return _binary(op, interval(lhs, ranges), interval(rhs, ranges))
    return None, None


def nonnegative(expr: Expr, ranges: Ranges) -> bool:
    """Whether an Expr is known to be at least 0."""
    low, _ = interval(expr, ranges)
    return low is not None and low >= 0


def known(cond: Cond, ranges: Ranges) -> bool | None:
    """The truth of a condition where the ranges decide it."""
    match cond:
        case Truth(value):
            return value
        case Compare(op, lhs, rhs):
            return _compare(op, interval(lhs - rhs, ranges), interval(rhs - lhs, ranges))
        case Not(operand):
            inner = known(operand, ranges)
            return None if inner is None else not inner
        case Logic(op, operands):
            found = [known(operand, ranges) for operand in operands]
            decisive = op == "or"
            if decisive in found:
                return decisive
            return None if None in found else not decisive
    return None


def _compare(op: str, difference: Interval, opposite: Interval) -> bool | None:
    """`difference` bounds lhs - rhs, `opposite` rhs - lhs; they agree but for lost bounds."""
    low, high = difference
    low = low if low is not None or opposite[1] is None else -opposite[1]
    high = high if high is not None or opposite[0] is None else -opposite[0]
    if op in ("<", "<="):
        limit = 0 if op == "<=" else -1
        if high is not None and high <= limit:
            return True
        return False if low is not None and low > limit else None
    same = low == high == 0
    apart = (low is not None and low > 0) or (high is not None and high < 0)
    if same or apart:
        return same if op == "==" else apart
    return None


def _binary(op: str, one: Interval, other: Interval) -> Interval:
    match op:
        case "+":
            return _plus(one[0], other[0]), _plus(one[1], other[1])
        case "-":
            return _plus(one[0], _minus(other[1])), _plus(one[1], _minus(other[0]))
        case "*":
            return _times(one, other)
        case "min":
            return _least(one[0], other[0]), _known_least(one[1], other[1])
        case "max":
            return _known_most(one[0], other[0]), _most(one[1], other[1])
        case "//" | "ceildiv":
            return _quotient(op, one, other)
        case "%":
            if other[1] is None:
                return 0, None
            small = one[0] is not None and one[0] >= 0 and one[1] is not None
            return 0, min(other[1] - 1, one[1]) if small and one[1] is not None else other[1] - 1
    return None, None


def _times(one: Interval, other: Interval) -> Interval:
    if None in one or None in other:
        if (one[0] or 0) >= 0 <= (other[0] or 0) and None not in (one[0], other[0]):
            return (one[0] or 0) * (other[0] or 0), None
        return None, None
    corners = [a * b for a in one for b in other if a is not None and b is not None]
    return min(corners), max(corners)


def _quotient(op: str, one: Interval, other: Interval) -> Interval:
    divisor = other[0] if other[0] == other[1] else None
    if divisor is None:
        return (0, one[1]) if one[0] is not None and one[0] >= 0 else (None, None)
    up = divisor - 1 if op == "ceildiv" else 0
    low = None if one[0] is None else (one[0] + up) // divisor
    return low, None if one[1] is None else (one[1] + up) // divisor


def _plus(a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else a + b


def _minus(a: Bound) -> Bound:
    return None if a is None else -a


def _least(a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else min(a, b)


def _most(a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else max(a, b)


def _known_least(a: Bound, b: Bound) -> Bound:
    return min((x for x in (a, b) if x is not None), default=None)


def _known_most(a: Bound, b: Bound) -> Bound:
    return max((x for x in (a, b) if x is not None), default=None)
