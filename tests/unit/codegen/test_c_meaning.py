"""What emitted C computes: conversions, arithmetic, reductions, as the NumPy interpreter does."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.expr import TRUE, Const, Var
from explorer.ir.dtypes import dtype
from explorer.ir.elementwise import convert
from explorer.ir.interpreter import run
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Cast,
    Copy,
    Element,
    Gemm,
    Index,
    Kernel,
    Literal,
    Map,
    Op,
    Reduce,
    Region,
    Store,
    Unary,
    Value,
    Where,
    whole,
)
from explorer.machine import CPU, Scope
from explorer.program.nodes import Exec, Program, RoleProgram
from explorer.schedule.extensions import Launch
from explorer.schedule.ws import WSRole
from tests.support.cpu_candidates import run_program

I = Var("i")


def _kernel(
    tensors: tuple[Buffer, ...], buffers: tuple[Buffer, ...], body: tuple[Op, ...]
) -> Kernel:
    return Kernel("probe", tensors, (("bx", Const(1)),), Const(1), buffers, body)


def _program(kernel: Kernel, warps: int = 1) -> Program:
    role = WSRole("worker", warps_lo=0, warps_hi=warps)
    steps = tuple(Exec(op) for op in kernel.body)
    private = tuple(buffer for buffer in kernel.buffers if buffer.scope.private)
    return Program(
        kernel.name,
        CPU.name,
        kernel.tensors,
        kernel.grid,
        Launch(blocks=1),
        warps,
        (),
        (),
        (RoleProgram(role, steps, private),),
    )


def _agree(kernel: Kernel, inputs: dict[str, np.ndarray], warps: int = 1, rtol: float = 1e-6):
    out = run_program(_program(kernel, warps), CPU, inputs)
    for name, expected in run(kernel, inputs).items():
        found = np.asarray(out[name])
        if expected.dtype.kind in "iub":
            np.testing.assert_array_equal(found, expected, err_msg=name)
        else:
            np.testing.assert_allclose(
                found.astype(np.float64), expected.astype(np.float64), rtol, 1e-30, err_msg=name
            )
    return out


def _tensor(name: str, kind: str, *shape: int) -> Buffer:
    return Buffer(name, tuple(map(Const, shape)), dtype(kind), Scope.GLOBAL)


def _elementwise(values: dict[str, tuple[str, Value]], inputs: dict[str, tuple[str, np.ndarray]]):
    count = len(next(iter(inputs.values()))[1])
    sources = tuple(_tensor(name, kind, count) for name, (kind, _) in inputs.items())
    targets = tuple(_tensor(name, kind, count) for name, (kind, _) in values.items())
    stores = tuple(
        Store(target, (I,), value)
        for target, (_, value) in zip(targets, values.values(), strict=True)
    )
    op = Map("all", (("i", Const(count)),), stores, tuple(TRUE for _ in stores))
    kernel = _kernel((*sources, *targets), (), (op,))
    return kernel, {name: array for name, (_, array) in inputs.items()}


NARROW = ("float16", "bfloat16", "float8_e4m3")


def _bits(kind: str) -> np.dtype:
    return np.dtype(f"u{dtype(kind).numpy.itemsize}")


@pytest.mark.parametrize("kind", NARROW)
def test_every_narrow_float_widens_exactly(kind: str) -> None:
    bits = np.arange(1 << 16).astype(_bits(kind)).view(dtype(kind).numpy)
    source, target = _tensor("X", kind, 256, 256), _tensor("Y", "float32", 256, 256)
    slot = Buffer("tile", (Const(256), Const(256)), dtype(kind), Scope.FRAGMENT)
    ops = (
        Copy("load", whole(source), whole(slot)),
        Copy("store", whole(slot), whole(target)),
    )
    kernel = _kernel((source, target), (slot,), ops)
    out = run_program(_program(kernel), CPU, {"X": bits.reshape(256, 256)})
    np.testing.assert_array_equal(out["Y"].ravel(), bits.astype(np.float32))


@pytest.mark.parametrize("kind", NARROW)
def test_narrowing_rounds_to_nearest_even(kind: str) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        65504.0,
        65519.99,
        65520.0,
        6e-8,
        2.98e-8,
        3.4e38,
        448.0,
        464.0,
        464.01,
        -0.0009765625,
        0.0029296875,
    ]
    values = np.concatenate(
        [
            bits.view(np.float32),
            np.array(special, np.float32),
            rng.standard_normal(5000).astype(np.float32) * np.float32(2.0) ** -14,
            rng.standard_normal(5000).astype(np.float32) * np.float32(2.0) ** -6,
            rng.standard_normal(5000).astype(np.float32) * np.float32(2.0) ** 8,
            np.arange(0, 1 << 12).astype(np.float32) * np.float32(2.0) ** -25,
        ]
    )
    kernel, inputs = _elementwise(
        {"Y": (kind, Element(_tensor("X", "float32", len(values)), (I,)))},
        {"X": ("float32", values)},
    )
    out = run_program(_program(kernel), CPU, inputs)["Y"]
    expected = convert(values, dtype(kind))
    nan = np.isnan(expected.astype(np.float32))
    assert np.isnan(out[nan].astype(np.float32)).all()
    bits = _bits(kind)
    np.testing.assert_array_equal(out[~nan].view(bits), expected[~nan].view(bits))


def test_float_arithmetic_is_the_interpreters() -> None:
    x = np.array([0.5, -2.5, 3.0, 0.0, np.nan, 1e-3, 7.25, -0.125], np.float32)
    y = np.array([2.0, 1.5, np.nan, -3.0, 1.0, 5.0, -2.0, 0.25], np.float32)
    a, b = (Element(_tensor(name, "float32", 8), (I,)) for name in "XY")
    values: dict[str, tuple[str, Value]] = {
        f"B{n}": ("float32", Arith(op, a, b))
        for n, op in enumerate(("+", "-", "*", "/", "//", "%", "min", "max"))
    }
    for n, op in enumerate(("neg", "abs", "exp", "exp2", "tanh", "sigmoid", "floor", "ceil")):
        values[f"U{n}"] = ("float32", Unary(op, a))
    for n, op in enumerate(("log", "log2", "sqrt", "rsqrt")):
        values[f"P{n}"] = ("float32", Unary(op, Arith("+", Unary("abs", a), Literal(0.1))))
    values["W"] = ("float32", Where(Arith("<", a, b), a, Literal(float("-inf"))))
    values["D"] = ("float64", Arith("*", Cast(dtype("float64"), a), Literal(0.1)))
    values["N"] = ("float32", Arith("+", Cast(dtype("bfloat16"), a), Index(I * 3)))
    kernel, inputs = _elementwise(values, {"X": ("float32", x), "Y": ("float32", y)})
    _agree(kernel, inputs)


def test_integer_arithmetic_and_conversions_are_the_interpreters() -> None:
    x = np.array([7, -7, 2**31 - 1, -(2**31), 5, -5, 0, 123456789], np.int32)
    y = np.array([3, 3, 1, 2, -2, -2, 9, 1000], np.int32)
    f = np.array([1.5, -1.5, np.nan, 300.0, -300.0, 1e20, -1e20, 0.99], np.float32)
    a, b = (Element(_tensor(name, "int32", 8), (I,)) for name in "XY")
    real = Element(_tensor("F", "float32", 8), (I,))
    values: dict[str, tuple[str, Value]] = {
        f"B{n}": ("int32", Arith(op, a, b))
        for n, op in enumerate(("+", "-", "*", "//", "%", "min", "max", "&", "|", "^"))
    }
    values["S"] = ("int32", Arith(">>", a, Literal(3)))
    values["C"] = ("bool", Arith("and", Arith("<", a, b), Unary("not", Arith("==", a, b))))
    values["I8"] = ("int8", Cast(dtype("int8"), real))
    values["U8"] = ("uint8", Cast(dtype("uint8"), real))
    values["I64"] = ("int64", Cast(dtype("int64"), real))
    values["W8"] = ("int8", a)
    kernel, inputs = _elementwise(
        values, {"X": ("int32", x), "Y": ("int32", y), "F": ("float32", f)}
    )
    _agree(kernel, inputs)


@pytest.mark.parametrize("warps", [1, 2])
@pytest.mark.parametrize("kind", ["max", "min", "sum", "absmax"])
def test_reductions_are_the_interpreters(kind: str, warps: int) -> None:
    source, target = _tensor("X", "float32", 6, 9), _tensor("Y", "float32", 6)
    tile = Buffer("tile", (Const(6), Const(9)), dtype("float32"), Scope.FRAGMENT)
    row = Buffer("row", (Const(6),), dtype("float32"), Scope.FRAGMENT)
    ops = (
        Copy("load", whole(source), whole(tile)),
        Reduce("reduce", kind, whole(tile), whole(row), 1),
        Reduce("again", kind, whole(tile), whole(row), 1, clear=False),
        Copy("store", whole(row), whole(target)),
    )
    x = np.random.default_rng(1).standard_normal((6, 9)).astype(np.float32)
    _agree(_kernel((source, target), (tile, row), ops), {"X": x}, warps, rtol=1e-5)


def test_copies_give_zero_outside_a_tensor_on_every_side() -> None:
    source, target = _tensor("X", "float32", 5, 7), _tensor("Y", "float32", 5, 7)
    tile = Buffer("tile", (Const(16), Const(32)), dtype("float32"), Scope.FRAGMENT)
    size = (Const(16), Const(32))
    for start in ((-3, -9), (2, 3), (-20, 0), (0, 40)):
        at = tuple(map(Const, start))
        ops = (
            Copy("load", Region(source, at, size), whole(tile)),
            Copy("store", whole(tile), Region(target, (Const(-1), Const(-2)), size)),
        )
        x = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)
        _agree(_kernel((source, target), (tile,), ops), {"X": x, "Y": x})


@pytest.mark.parametrize("kinds", [("float32", "float64"), ("int8", "int32")])
def test_a_gemm_without_a_micro_kernel_is_still_right(kinds: tuple[str, str]) -> None:
    narrow, wide = kinds
    a, b = _tensor("A", narrow, 5, 6), _tensor("B", narrow, 7, 6)
    c = _tensor("C", wide, 5, 7)
    tiles = tuple(Buffer(f"{t.name}_tile", t.shape, t.dtype, Scope.FRAGMENT) for t in (a, b, c))
    ops = (
        Copy("load_a", whole(a), whole(tiles[0])),
        Copy("load_b", whole(b), whole(tiles[1])),
        Gemm("mul", *map(whole, tiles), False, True, TRUE),
        Gemm("more", *map(whole, tiles), False, True),
        Copy("store", whole(tiles[2]), whole(c)),
    )
    rng = np.random.default_rng(2)
    inputs = {
        "A": rng.integers(-100, 100, (5, 6)).astype(narrow),
        "B": rng.integers(-100, 100, (7, 6)).astype(narrow),
    }
    _agree(_kernel((a, b, c), tiles, ops), inputs)
