"""Ranges of integers over loops: when a guard always holds, and when two regions meet.

Invariant: 'always' and 'never meet' are proofs. They come from enumerating every value of the
variables that matter, or from intervals; where neither decides, a guard may fail and two regions
may meet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

from attrs import frozen

from explorer.expr import (
    Binary,
    Compare,
    Cond,
    Const,
    Expr,
    Not,
    Select,
    Var,
    affine,
    evaluate,
    holds,
    negate,
    substitute,
    substitute_cond,
    symbols,
)
from explorer.ir.nodes import Kernel, Loop, Region

_ENUMERATED = 50_000


@frozen
class Span:
    """The integers from `low` to `high`, both included."""

    low: int
    high: int


Spans = Mapping[str, Span]


def spans_of(kernel: Kernel, loops: tuple[Loop, ...]) -> dict[str, Span]:
    """Ranges of block variables and of those loop variables whose bounds are constant."""
    found = {
        name: Span(0, extent.value - 1)
        for name, extent in kernel.grid
        if isinstance(extent, Const)
    }
    for loop in loops:
        low, high = bounds(loop.start, found), bounds(loop.start + loop.extent - 1, found)
        if low is not None and high is not None:
            found[loop.var] = Span(low.low, max(low.low, high.high))
    return found


def bounds(expr: Expr, spans: Spans) -> Span | None:
    """The interval of an affine Expr, or None."""
    form = affine(expr)
    if form is None or any(name not in spans for name, _ in form.terms):
        return None
    low = high = form.offset
    for name, factor in form.terms:
        ends = (factor * spans[name].low, factor * spans[name].high)
        low, high = low + min(ends), high + max(ends)
    return Span(low, high)


def always(cond: Cond, spans: Spans) -> bool:
    """Whether a condition holds for all values of its variables."""
    if isinstance(cond, Compare) and cond.op in ("<", "<="):
        gap = bounds(cond.rhs - cond.lhs, spans)
        if gap is not None and gap.low >= (1 if cond.op == "<" else 0):
            return True
    names = sorted(symbol.name for symbol in symbols(cond))
    choices = _values(names, spans, (cond,))
    if choices is None:
        return False
    return all(
        holds(cond, dict(zip(names, values, strict=True)))
        for values in itertools.product(*choices)
    )


def implied(cond: Cond, premises: Iterable[Cond], spans: Spans) -> bool:
    """Whether a condition holds wherever all premises do, as far as their form shows."""
    return always(cond, spans) or any(cond == premise for premise in premises)


def opposite(one: Cond, other: Cond) -> bool:
    """Whether exactly one of two conditions holds, as far as their form shows."""
    if negate(one) == other:
        return True
    match one, other:
        case (Compare("==", a, b), Compare("!=", c, d)) | (
            Compare("!=", a, b),
            Compare("==", c, d),
        ):
            return (a, b) == (c, d)
        case (Compare("<", a, b), Compare("<=", c, d)) | (Compare("<=", c, d), Compare("<", a, b)):
            return (a, b) == (d, c)
    return False


def _values(names: list[str], spans: Spans, nodes: Iterable[Expr | Cond]) -> list[range] | None:
    """The values to enumerate per variable, or None where there are too many.

    A variable that occurs only inside `% constant` is enumerated over one common period.
    """
    kept = tuple(nodes)
    result = []
    for name in names:
        if name not in spans:
            return None
        span = spans[name]
        count = span.high - span.low + 1
        period = math.lcm(*(_period(node, name) for node in kept))
        if 0 < period < count:
            count = period
        result.append(range(span.low, span.low + count))
    return result if math.prod(map(len, result)) <= _ENUMERATED else None


def _period(node: Expr | Cond, name: str) -> int:
    """After how many steps of a variable the value repeats; 0 where that is not shown."""
    if all(symbol.name != name for symbol in symbols(node)):
        return 1
    match node:
        case Binary("%", lhs, Const(modulus)):
            form = affine(lhs)
            return modulus if form is not None else _period(lhs, name)
        case Binary(_, lhs, rhs) | Compare(_, lhs, rhs):
            return math.lcm(_period(lhs, name), _period(rhs, name))
        case Select(cond, then, otherwise):
            parts = (_period(part, name) for part in (cond, then, otherwise))
            return math.lcm(*parts)
        case Not(operand):
            return _period(operand, name)
    return 0


@frozen
class Place:
    """An access: a region, the guards under which it happens, and the ranges of its loops."""

    region: Region
    guards: tuple[Cond, ...]
    spans: tuple[tuple[str, Span], ...]


def may_meet(
    first: Place, second: Place, shared: frozenset[str], apart: Mapping[str, Expr]
) -> bool:
    """Whether two accesses of one buffer can touch one element.

    `shared` names the variables that have the same value for both; the others are independent.
    `apart` gives, for variables of the second access, their value in terms of the first's.
    """
    if first.region.buffer != second.region.buffer:
        return True  # two views of one storage
    one = {name: Var(f"{name}.1") for name, _ in first.spans if name not in shared}
    two: dict[str, Expr] = {
        name: Var(f"{name}.2") for name, _ in second.spans if name not in shared
    }
    two |= {name: substitute(expr, one) for name, expr in apart.items()}
    spans: dict[str, Span] = {}
    for place, renamed, tag in ((first, one, ".1"), (second, two, ".2")):
        for name, span in place.spans:
            spans[f"{name}{tag}" if name in renamed else name] = span
    conds = [substitute_cond(guard, one) for guard in first.guards]
    conds += [substitute_cond(guard, two) for guard in second.guards]
    for name, expr in apart.items():
        limit = dict(second.spans).get(name)
        if limit is not None:
            value = substitute(expr, one)
            conds += [value <= limit.high, value >= limit.low]
    gaps = list(_overlaps(first.region, second.region, one, two))
    if any(_never(gap, spans) for gap in gaps):
        return False
    return _any_point([*gaps, *conds], spans)


def _overlaps(
    first: Region, second: Region, one: Mapping[str, Expr], two: Mapping[str, Expr]
) -> Iterator[Cond]:
    axes = zip(first.start, first.extent, second.start, second.extent, strict=True)
    for a, a_extent, b, b_extent in axes:
        low, high = substitute(a, one), substitute(b, two)
        yield low < high + substitute(b_extent, two)
        yield high < low + substitute(a_extent, one)


def _never(cond: Cond, spans: Spans) -> bool:
    if not isinstance(cond, Compare) or cond.op != "<":
        return cond == (Const(1) < Const(0))
    gap = bounds(cond.lhs - cond.rhs, spans)
    return gap is not None and gap.low >= 0


def _any_point(conds: list[Cond], spans: Spans) -> bool:
    """Whether all conditions can hold at once; True where there are too many values to try."""
    names = sorted({symbol.name for cond in conds for symbol in symbols(cond)})
    known = [cond for cond in conds if all(s.name in spans for s in symbols(cond))]
    names = [name for name in names if name in spans]
    choices = _values(names, spans, known)
    if choices is None:
        return True
    return any(
        all(holds(cond, dict(zip(names, values, strict=True))) for cond in known)
        for values in itertools.product(*choices)
    )


def constant(expr: Expr, default: int) -> int:
    """The value of a constant Expr, else `default`."""
    return evaluate(expr) if not symbols(expr) else default
