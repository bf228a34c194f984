import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.expr import (
    FALSE,
    TRUE,
    Affine,
    Binary,
    Const,
    Param,
    Var,
    affine,
    all_of,
    any_of,
    ceildiv,
    compare,
    divides,
    evaluate,
    holds,
    implies,
    lookup,
    lookups,
    maximum,
    minimum,
    negate,
    round_up,
    select,
    substitute,
    substitute_cond,
    symbols,
    total,
)

x, y = Param("x"), Var("y")


def test_constants_fold() -> None:
    assert Const(6) * 7 == Const(42)
    assert x + 0 == x and x * 1 == x and x * 0 == Const(0) and x // 1 == x and x % 1 == Const(0)
    assert x - x == Const(0) and minimum(x, x) == x


def test_operators_round_as_python_does() -> None:
    for a, b in itertools.product(range(-7, 8), range(1, 5)):
        assert evaluate(Const(a) // b) == a // b
        assert evaluate(Const(a) % b) == a % b
        assert evaluate(ceildiv(a, b)) == -(-a // b)
        assert evaluate(round_up(a, b)) % b == 0


def test_divisor_must_be_positive() -> None:
    with pytest.raises(ZeroDivisionError, match=r"'x // 0': the divisor must be positive"):
        x // 0


def test_no_truth_value_in_python_control_flow() -> None:
    with pytest.raises(TypeError, match="the symbolic integer 'x' has no truth value"):
        bool(x)
    with pytest.raises(TypeError, match="the condition 'x < 3' is symbolic"):
        bool(x < 3)


def test_booleans_are_no_integers() -> None:
    with pytest.raises(TypeError, match="expected an integer"):
        x + True


def test_conditions_fold() -> None:
    assert compare("<", 1, 2) == TRUE and compare("==", x, x) == TRUE
    assert all_of(x < 3, True) == (x < 3)
    assert all_of(x < 3, False) == FALSE and any_of(x < 3, True) == TRUE
    assert negate(negate(x < 3)) == (x < 3)
    assert implies(False, x < 3) == TRUE
    assert select(True, x, y) == x and select(x < y, x, x) == x


def test_substitution_folds() -> None:
    assert substitute((x + y) * 2, {"x": 3, "y": 4}) == Const(14)
    assert substitute_cond(divides(x, y), {"x": 4, "y": 12}) == TRUE
    assert symbols(select(x < y, x, 1)) == {x, y}


def test_affine_forms() -> None:
    assert affine(3 * y + 2 - y) == Affine(2, (("y", 2),))
    assert affine(x * y) is None and affine(y // 2) is None


def test_free_symbols_are_named() -> None:
    with pytest.raises(KeyError, match="no value for 'x'"):
        evaluate(x + 1, {})


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9))
def test_trees_evaluate_like_python(a: int, b: int, c: int) -> None:
    env = {"x": a, "y": b}
    tree = maximum(x + y * c, minimum(x, y) - 3) // c + total([x, y, c]) % c
    assert evaluate(tree, env) == max(a + b * c, min(a, b) - 3) // c + (a + b + c) % c
    assert holds(compare("<=", tree, tree + 1), env)


def test_printing_keeps_the_meaning() -> None:
    tree = (x - (y - 1)) * (x % 3)
    assert str(tree) == "(x - (y - 1)) * (x % 3)"
    assert isinstance(tree, Binary)


def test_a_lookup_is_a_value_by_index() -> None:
    i = Var("i")
    found = lookup((5, 7, 9), i + 1)
    assert evaluate(found, {"i": 1}) == 9
    assert substitute(found, {"i": 0}) == Const(7)
    assert symbols(found) == {i}
    assert list(lookups(found // 2 + found)) == [found, found]
    assert lookup((5, 7), i) != lookup((7, 5), i)
    assert affine(found) is None
