"""Intervals hold every value of an expression."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from explorer.codegen.cuda.bounds import interval, known
from explorer.codegen.cuda.scalars import Scalars
from explorer.expr import Binary, Compare, Const, Expr, Var, evaluate, holds

RANGES = {"x": (0, 3), "y": (-2, 2)}
LEAVES = st.one_of(st.sampled_from([Var("x"), Var("y")]), st.integers(-4, 4).map(Const))


def _binary(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    plain = st.builds(Binary, st.sampled_from(["+", "-", "*", "min", "max"]), children, children)
    divided = st.builds(
        Binary, st.sampled_from(["//", "%", "ceildiv"]), children, st.integers(1, 5).map(Const)
    )
    return st.one_of(plain, divided)


EXPRESSIONS = st.recursive(LEAVES, _binary, max_leaves=6)
PLACES = [{"x": x, "y": y} for x, y in itertools.product(range(4), range(-2, 3))]


@given(EXPRESSIONS)
def test_every_value_is_within(expr: Expr) -> None:
    low, high = interval(expr, RANGES)
    for place in PLACES:
        value = evaluate(expr, place)
        assert low is None or low <= value
        assert high is None or value <= high


@given(EXPRESSIONS, EXPRESSIONS, st.sampled_from(["<", "<=", "==", "!="]))
def test_decided_conditions_hold_everywhere(lhs: Expr, rhs: Expr, op: str) -> None:
    decided = known(Compare(op, lhs, rhs), RANGES)
    if decided is not None:
        assert all(holds(Compare(op, lhs, rhs), place) == decided for place in PLACES)


def test_division_of_what_may_be_negative_is_floored() -> None:
    scalars = Scalars({"x": (0, 9), "y": (-1, 9)})
    assert scalars.expr(Var("x") // 4) == "(v_x / 4)"
    assert scalars.expr(Var("y") // 4) == "floor_div(v_y, 4)"
    assert scalars.expr(Var("y") % 4) == "floor_mod(v_y, 4)"
