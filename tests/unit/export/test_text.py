"""The printed arithmetic has the value of the tree, and no name reaches the text unchecked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import KernelError, ScheduleError
from explorer.export.text import (
    cond_text,
    dtype_text,
    expr_text,
    region_text,
    value_text,
    variable,
)
from explorer.expr import (
    Cond,
    Expr,
    Var,
    all_of,
    any_of,
    ceildiv,
    compare,
    const,
    evaluate,
    holds,
    maximum,
    minimum,
    negate,
    select,
)
from explorer.ir.dtypes import dtype
from explorer.ir.nodes import Arith, Buffer, Cast, Element, Literal, Region, Unary, Where, whole
from explorer.machine import Scope

NAMES = ("i", "j")
LANGUAGE = SimpleNamespace(
    min=min,
    max=max,
    ceildiv=lambda a, b: -(-a // b),
    if_then_else=lambda cond, a, b: a if cond else b,
)


def _python(text: str, env: dict[str, int]) -> Any:
    return eval(text, {"T": LANGUAGE, **env})


leaves = st.one_of(st.integers(-9, 9).map(const), st.sampled_from(NAMES).map(Var))


def _conds(exprs: st.SearchStrategy[Expr]) -> st.SearchStrategy[Cond]:
    plain = st.builds(compare, st.sampled_from(["<", "<=", "==", "!="]), exprs, exprs)
    return st.one_of(
        plain,
        plain.map(negate),
        st.lists(plain, min_size=2, max_size=3).map(lambda each: all_of(*each)),
        st.lists(plain, min_size=2, max_size=3).map(lambda each: any_of(*each)),
    )


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    divisor = st.integers(1, 7)
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, b: a // b, inner, divisor),
        st.builds(lambda a, b: a % b, inner, divisor),
        st.builds(ceildiv, inner, divisor),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(select, _conds(inner), inner, inner),
    )


exprs = st.recursive(leaves, _grow, max_leaves=12)
envs = st.fixed_dictionaries({name: st.integers(-20, 20) for name in NAMES})


@given(exprs, envs)
def test_an_expression_keeps_its_value(expr: Expr, env: dict[str, int]) -> None:
    assert _python(expr_text(expr), env) == evaluate(expr, env)


@given(_conds(exprs), envs)
def test_a_condition_keeps_its_truth(cond: Cond, env: dict[str, int]) -> None:
    assert bool(_python(cond_text(cond), env)) == holds(cond, env)


@pytest.mark.parametrize(
    "name", ["T", "lambda", "a b", "1a", "", "x);import os;(", "a.b", "naïve", "a\nb"]
)
def test_a_name_that_is_no_variable_is_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="cannot be a variable of the exported kernel"):
        variable(name, "buffer")


def test_values() -> None:
    tile = Buffer("acc", (const(8), const(8)), dtype("float32"), Scope.FRAGMENT)
    here = Element(tile, (Var("i"), Var("j")))
    assert value_text(Arith("+", here, Unary("exp2", here))) == "(acc[i, j] + T.exp2(acc[i, j]))"
    assert value_text(Cast(dtype("bfloat16"), here)) == "T.cast(acc[i, j], T.bfloat16)"
    assert value_text(Unary("neg", Literal(1.5))) == "(-1.5)"
    assert value_text(Literal(float("-inf"))) == "(-T.infinity(T.float32))"
    masked = Where(Arith("<", here, Literal(0)), Literal(0), here)
    assert value_text(masked) == "T.if_then_else((acc[i, j] < 0), 0, acc[i, j])"
    assert value_text(Arith("max", here, Literal(0))) == "T.max(acc[i, j], 0)"
    with pytest.raises(KernelError, match="NaN"):
        value_text(Literal(float("nan")))


def test_regions() -> None:
    tensor = Buffer("A", (const(4), const(64)), dtype("float16"), Scope.GLOBAL)
    tile = Region(tensor, (Var("i"), Var("j") * 8), (const(1), const(8)), frozenset({0}))
    assert region_text(whole(tensor)) == "A"
    assert region_text(tile) == "A[i, j * 8 : (j * 8) + 8]"
    assert region_text(tile, short=True) == region_text(tile)
    box = Region(tensor, (const(0), Var("j") * 8), (const(4), const(8)))
    assert region_text(box, short=True) == "A[0, j * 8]"


def test_element_types() -> None:
    assert dtype_text(dtype("float8_e4m3")) == "T.float8_e4m3fn"
    assert dtype_text(dtype("bfloat16")) == "T.bfloat16"
    with pytest.raises(KernelError, match="uint4"):
        dtype_text(dtype("uint4"))
