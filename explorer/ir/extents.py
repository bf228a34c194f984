"""Differences of symbolic integers, so that `(i + 1) * block : i * block` has the extent `block`.

Invariant: the result equals `stop - start` for all values of the symbols.
"""

from __future__ import annotations

from explorer.expr import Binary, Const, Expr, const

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]


def difference(stop: Expr, start: Expr) -> Expr:
    """`stop - start` with common terms cancelled."""
    if isinstance(start, Const) and start.value == 0:
        return stop
    terms = _polynomial(stop)
    for monomial, coefficient in _polynomial(start).items():
        terms[monomial] = terms.get(monomial, 0) - coefficient
    result: Expr = const(0)
    for monomial, coefficient in terms.items():
        if coefficient:
            product = const(1)
            for factor in monomial:
                product = product * factor
            result = result + product * coefficient
    return result


def _polynomial(expr: Expr) -> Polynomial:
    match expr:
        case Const(value):
            return {(): value}
        case Binary("+" | "-" as op, lhs, rhs):
            terms = dict(_polynomial(lhs))
            sign = 1 if op == "+" else -1
            for monomial, coefficient in _polynomial(rhs).items():
                terms[monomial] = terms.get(monomial, 0) + sign * coefficient
            return terms
        case Binary("*", lhs, rhs):
            terms = {}
            for left, a in _polynomial(lhs).items():
                for right, b in _polynomial(rhs).items():
                    monomial = tuple(sorted((*left, *right), key=str))
                    terms[monomial] = terms.get(monomial, 0) + a * b
            return terms
    return {(expr,): 1}
