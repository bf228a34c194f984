"""The meaning of ops: conversions, poison, bounds, and what `run` refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import explorer.lang as T
from explorer.errors import KernelError
from explorer.expr import FALSE, TRUE, Var, const
from explorer.ir.dtypes import DTYPES, dtype
from explorer.ir.elementwise import convert
from explorer.ir.interpreter import execute, poison, poisoned, read_region, run
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Cast,
    Copy,
    Define,
    Element,
    Fill,
    Gemm,
    Index,
    Literal,
    Region,
    Unary,
    Where,
    whole,
)
from explorer.ir.values import compute_dtype
from explorer.machine import Scope

FLOAT32, INT8 = dtype("float32"), dtype("int8")


def buffer(name: str, *shape: int, kind: str = "float32", scope: Scope = Scope.SHARED) -> Buffer:
    return Buffer(name, tuple(map(const, shape)), dtype(kind), scope)


def box(of: Buffer, start: tuple[Any, ...], extent: tuple[int, ...]) -> Region:
    return Region(of, tuple(map(const, start)), tuple(map(const, extent)))


# ---------------------------------------------------------------- execute


def test_execute_runs_one_op_on_the_arrays_that_view_returns():
    a, b = buffer("a", 2, 3), buffer("b", 2, 3)
    slots = {"a": np.arange(6, dtype="f").reshape(2, 3), "b": np.zeros((2, 3), "f")}
    asked = []

    def view(name: str) -> Any:
        asked.append(name)
        return slots[name]

    execute(Copy("c", whole(a), whole(b)), {}, view)
    np.testing.assert_array_equal(slots["b"], slots["a"])
    assert asked == ["a", "b"]
    execute(Fill("f", whole(b), Literal(3)), {}, view)
    np.testing.assert_array_equal(slots["b"], np.full((2, 3), 3))


def test_define_sets_a_scalar():
    table = buffer("t", 4, kind="int32", scope=Scope.GLOBAL)
    scalars = {"g": 2}
    view = {"t": np.array([5, 6, 7, 8], np.int32)}.__getitem__
    execute(Define("d", "first", Element(table, (Var("g") + 1,))), scalars, view)
    execute(Define("d", "next", Index(Var("first") + 1)), scalars, view)
    assert scalars == {"g": 2, "first": 8, "next": 9}
    execute(Define("d", "outside", Element(table, (const(9),))), scalars, view)
    assert scalars["outside"] == 0


@pytest.mark.parametrize("start", [-2, 0, 2, 3, 9])
def test_a_region_outside_its_tensor_reads_zero(start):
    tensor = buffer("t", 4, scope=Scope.GLOBAL)
    array = np.arange(1, 5, dtype="f")
    found = read_region(box(tensor, (start,), (3,)), {}, {"t": array}.__getitem__)
    expected = [array[i] if 0 <= i < 4 else 0 for i in range(start, start + 3)]
    np.testing.assert_array_equal(found, expected)


def test_a_region_outside_an_on_chip_buffer_is_an_error():
    tile = buffer("s", 4)
    with pytest.raises(KernelError, match="'s' is accessed at 2:5 of 4"):
        read_region(box(tile, (2,), (3,)), {}, {"s": np.zeros(4, "f")}.__getitem__)


@pytest.mark.parametrize("clear", [TRUE, FALSE])
def test_gemm_accumulates_in_the_type_of_its_accumulator(clear):
    names = {"a": "float16", "b": "float16", "c": "float32"}
    a, b, c = (buffer(n, 2, 2, kind=k) for n, k in names.items())
    arrays = {
        "a": np.full((2, 2), 300, np.float16),
        "b": np.full((2, 2), 300, np.float16),
        "c": np.ones((2, 2), "f"),
    }
    op = Gemm("g", whole(a), whole(b), whole(c), False, False, clear)
    execute(op, {}, arrays.__getitem__)
    np.testing.assert_array_equal(arrays["c"], np.full((2, 2), 180000 + (clear == FALSE)))


def test_integer_gemm_is_exact_and_wraps():
    a, b = buffer("a", 1, 2, kind="int8"), buffer("b", 2, 1, kind="int8")
    c = buffer("c", 1, 1, kind="int32")
    arrays = {
        "a": np.array([[-128, 127]], np.int8),
        "b": np.array([[-128], [127]], np.int8),
        "c": np.array([[2**31 - 1]], np.int32),
    }
    op = Gemm("g", whole(a), whole(b), whole(c), False, False)
    execute(op, {}, arrays.__getitem__)
    assert arrays["c"][0, 0] == (2**31 - 1 + 128 * 128 + 127 * 127) - 2**32


# ---------------------------------------------------------------- conversions


def test_floats_round_to_nearest_even():
    halves = np.array([2049, 2051, 1e6, -1e6, np.nan], "f")
    out = convert(halves, dtype("float16"))
    np.testing.assert_array_equal(out, np.array([2048, 2052, np.inf, -np.inf, np.nan], "f2"))
    assert convert(np.float32(1.00390625), dtype("bfloat16")) == ml_dtypes.bfloat16(1.0)


@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if d.kind in ("int", "uint")])
def test_floats_to_integers_truncate_and_saturate(name):
    target = dtype(name)
    low = -(2 ** (target.bits - 1)) if target.kind == "int" else 0
    high = 2 ** (target.bits - (target.kind == "int")) - 1
    given = np.array([1.9, -1.9, 1e30, -1e30, np.nan])
    expected = [1, max(-1, low), high, low, 0]
    assert [int(value) for value in convert(given, target)] == expected


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_integers_wrap(values):
    array = np.array(values, np.int64)
    for name in ("int4", "uint4", "int8", "uint8", "int16", "int32"):
        target = dtype(name)
        wrapped = [int(value) for value in convert(array, target)]
        span = 2**target.bits
        assert all((w - v) % span == 0 for w, v in zip(wrapped, values, strict=True))
        low = -(span // 2) if target.kind == "int" else 0
        assert all(low <= w < low + span for w in wrapped)


# ---------------------------------------------------------------- poison


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_has_a_poison(name):
    element = dtype(name)
    array = poisoned((2,), element)
    assert array.dtype == element.numpy
    if element.is_float and element.bits >= 8:
        assert np.all(np.isnan(array.astype(np.float64)))
    else:
        assert int(array[0]) == int(poison(element)) != 0


def test_reading_what_nobody_wrote_shows():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), N: T.Tensor((4,), "int32")):
        with T.Kernel(2) as b:
            S = T.alloc_shared((2,), "float32")
            I = T.alloc_local((2,), "int32")
            if b == 0:
                T.clear(S)
                T.clear(I)
            T.copy(S, A[b * 2])
            T.copy(I, N[b * 2])

    out = run(kernel, {})
    np.testing.assert_array_equal(out["A"], [0, 0, np.nan, np.nan])
    assert list(out["N"][:2]) == [0, 0] and all(out["N"][2:] == poison(dtype("int32")))


# ---------------------------------------------------------------- types of values


def test_the_type_in_which_values_are_computed():
    half = Element(buffer("h", 1, kind="float16"), (const(0),))
    double = Element(buffer("d", 1, kind="float64"), (const(0),))
    byte = Element(buffer("u", 1, kind="uint8"), (const(0),))
    word = Element(buffer("w", 1, kind="uint32"), (const(0),))
    for value, expected in (
        (half, "float32"),
        (Arith("+", half, double), "float64"),
        (Arith("*", byte, half), "float32"),
        (Arith("+", byte, byte), "int32"),
        (Arith("+", byte, word), "int64"),
        (Arith("/", byte, byte), "float32"),
        (Arith("<", half, byte), "bool"),
        (Unary("not", byte), "bool"),
        (Unary("exp2", byte), "float32"),
        (Unary("neg", byte), "int32"),
        (Cast(INT8, half), "int32"),
        (Where(Literal(True), byte, Literal(1.5)), "float32"),
        (Literal(2**40), "int64"),
        (Index(Var("i")), "int64"),
    ):
        assert compute_dtype(value) == dtype(expected), value


def test_a_cast_rounds_and_a_store_rounds():
    @T.prim_func
    def kernel(X: T.Tensor((1,), "float16"), Y: T.Tensor((2,), "float32")):
        with T.Kernel(1):
            Y[0] = X[0] * X[0]
            Y[1] = (X[0] * X[0]).astype(T.float16)

    x = np.array([1 + 2.0**-10], np.float16)
    out = run(kernel, {"X": x})["Y"]
    assert out[0] == np.float32(x[0]) ** 2
    assert out[1] == np.float32(x[0] * x[0]) != out[0]


# ---------------------------------------------------------------- run


def copy_kernel(n: int = 4) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float16")):
        with T.Kernel(1):
            S = T.alloc_shared((T.Param("m"),), "float32")
            T.copy(A[0], S)
            T.copy(S, B[0])

    return kernel


def test_inputs_are_not_modified_and_are_converted():
    kernel = copy_kernel().at(m=2)
    given = {"A": np.arange(4, dtype=np.float64), "B": np.full(4, 7, np.float16)}
    out = run(kernel, given)
    assert out["B"].dtype == np.float16
    np.testing.assert_array_equal(out["B"], [0, 1, 7, 7])
    np.testing.assert_array_equal(given["B"], np.full(4, 7))
    assert set(out) == {"B"}


@pytest.mark.parametrize(
    "inputs,message",
    [
        ({}, "kernel 'kernel': no array for tensor 'A'"),
        (
            {"A": np.zeros(3, "f")},
            "kernel 'kernel': tensor 'A' has shape (4,), its array (3,)",
        ),
        (
            {"A": np.zeros(4, "f"), "C": np.zeros(4)},
            "kernel 'kernel' has no tensor 'C': it has A, B",
        ),
    ],
)
def test_run_refuses_wrong_inputs(inputs, message):
    with pytest.raises(KernelError) as caught:
        run(copy_kernel().at(m=2), inputs)
    assert str(caught.value) == message


def test_run_refuses_open_params():
    with pytest.raises(KernelError) as caught:
        run(copy_kernel(), {})
    assert str(caught.value) == (
        "kernel 'kernel' has open Params m: fix them with kernel.at(...) before running it"
    )


def test_a_faulty_lane_that_is_switched_off_does_not_fault():
    @T.prim_func
    def kernel(Y: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((4,), "float32")
            T.fill(S, 2.0)
            for i in T.Parallel(8):
                Y[i] = T.if_then_else(i < 4, S[i], 1.0)
            for i in T.Parallel(8):
                if i >= 4:
                    S[i - 4] = 3.0
            for i in T.Parallel(8):
                if i < 4:
                    Y[i] = Y[i] + S[i]

    np.testing.assert_array_equal(run(kernel, {})["Y"], [5] * 4 + [1] * 4)


def test_a_faulty_lane_is_an_error():
    @T.prim_func
    def kernel(Y: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((4,), "float32")
            T.fill(S, 2.0)
            for i in T.Parallel(8):
                Y[i] = S[i]

    message = r"'S' of shape \(4,\) is accessed outside its bounds"
    with pytest.raises(KernelError, match=message):
        run(kernel, {})
