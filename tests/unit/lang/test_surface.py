"""Every element of the surface: what it becomes, and that it means what it says."""

# Kernels here use the constructs under test, however unusual.
# ruff: noqa: PLR0124, PLW0108, RUF059, SIM201

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import explorer.lang as T
from explorer.expr import TRUE, Const, Param, Var
from explorer.ir.interpreter import run
from explorer.ir.nodes import Copy, Define, Gemm, Group, If, Loop, Map, While, walk
from explorer.ir.printer import kernel_digest, show_kernel
from explorer.machine import Scope
from tests.kernels.gemm import gemm


def ids(kernel: T.TracedKernel) -> list[str]:
    return [statement.id for statement, _ in walk(kernel.body)]


def text(kernel: T.TracedKernel) -> list[str]:
    """The printed body, without its indentation of two."""
    lines = show_kernel(kernel).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  grid")) + 1
    return [line[2:] for line in lines[first:] if not line.startswith("  buffer ")]


def elementwise(body: Any, n: int = 8, dtype: Any = "float32") -> Any:
    """The kernel that stores body(x, i) for each x of a vector."""

    @T.prim_func
    def elementwise(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1):
            S = T.alloc_shared((n,), dtype)
            T.copy(X, S)
            for i in T.Parallel(n):
                S[i] = body(S[i], i)
            T.copy(S, Y)

    return elementwise


# ---------------------------------------------------------------- kernels and Params


def test_a_gemm_prints_as_it_was_written():
    assert text(gemm(100, 100, 100)) == [
        "fill_C_local: fill C_local <- 0",
        "ko: for ko in 0 :+ ceildiv(100, block_K) pipelined stages 3",
        "  copy_A_shared: copy A_shared <- A[by * block_M :+ block_M, ko * block_K :+ block_K]",
        "  copy_B_shared: copy B_shared <- B[ko * block_K :+ block_K, bx * block_N :+ block_N]",
        "  gemm_C_local: gemm C_local += A_shared @ B_shared",
        "copy_C: copy C[by * block_M :+ block_M, bx * block_N :+ block_N] <- C_local",
    ]


def test_params_stay_open_until_at():
    kernel = gemm(100, 100, 100)
    assert kernel.params == ("block_N", "block_M", "block_K")
    half = kernel.at(block_M=16)
    assert half.params == ("block_N", "block_K")
    assert half.at(block_N=8, block_K=4).params == ()
    assert half.buffer("C_local").shape == (Const(16), Param("block_N"))
    assert isinstance(half, T.TracedKernel)


def test_a_structure_has_one_digest():
    assert kernel_digest(gemm(8, 8, 8)) == kernel_digest(gemm(8, 8, 8))
    assert kernel_digest(gemm(8, 8, 8)) != kernel_digest(gemm(8, 8, 9))


def test_tracing_is_fast():
    gemm(64, 64, 64)
    start = time.perf_counter()
    for _ in range(10):
        gemm(64, 64, 64)
    assert (time.perf_counter() - start) / 10 < 0.02


def test_the_source_is_known():
    kernel = gemm(8, 8, 8)
    file, line = kernel.source
    assert file.endswith("gemm.py")
    assert all(statement.line > line for statement, _ in walk(kernel.body))


# ---------------------------------------------------------------- launch, buffers, types


def test_launch_and_allocations():
    @T.prim_func
    def kernel(A: T.Tensor((4, 6, 8), T.bfloat16), n: T.int32):
        with T.Kernel(3, 5, 7, threads=256) as (x, y, z):
            shared = T.alloc_shared((2, 3), T.float16)
            fragment = T.alloc_fragment([4], "float32")
            local = T.alloc_local(1, "int32")
            tmem = T.alloc_tmem((128, 64), "float32")
            l1, l0a = T.alloc_l1((8, 8), "float16"), T.alloc_l0a((8, 8), "float16")
            l0b = T.alloc_l0b((8, 8), "float16")
            l0c = T.alloc_l0c((8, 8), "float32")
            ring = [T.alloc_shared((2,), "int8") for _ in range(2)]
            T.clear(shared)
            assert shared.shape == (2, 3) and shared.dtype == T.float16 == "float16"
            assert A.dtype == "bfloat16" and A.scope() == "global"

    assert kernel.grid == (("x", Const(3)), ("y", Const(5)), ("z", Const(7)))
    assert kernel.threads == Const(256)
    assert kernel.scalars == ("n",)
    assert [(b.name, b.scope) for b in kernel.buffers] == [
        ("shared", Scope.SHARED),
        ("fragment", Scope.FRAGMENT),
        ("local", Scope.LOCAL),
        ("tmem", Scope.TMEM),
        ("l1", Scope.L1),
        ("l0a", Scope.L0A),
        ("l0b", Scope.L0B),
        ("l0c", Scope.L0C),
        ("ring_0", Scope.SHARED),
        ("ring_1", Scope.SHARED),
    ]


def test_block_variables_that_the_author_ignores_get_names():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32")):
        with T.Kernel(2, 3) as (_, by):
            A[by] = 1.0

    assert [name for name, _ in kernel.grid] == ["bx", "by"]
    assert kernel.threads == Const(128)


def test_every_dtype_is_an_attribute_and_a_conversion():
    assert T.float16.bits == 16 and T.float8_e4m3.name == "float8_e4m3"
    kernel = elementwise(lambda x, i: T.float32(T.int32(x)) + 0.5)
    out = run(kernel, {"X": np.linspace(-2, 2, 8, dtype="f")})["Y"]
    np.testing.assert_array_equal(out, np.trunc(np.linspace(-2, 2, 8, dtype="f")) + 0.5)


# ---------------------------------------------------------------- copies and regions


def region_kernel(shape: tuple[int, ...], tile: tuple[int, ...], source: Any) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor(shape, "float32"), B: T.Tensor(tile, "float32")):
        with T.Kernel(1):
            S = T.alloc_shared(tile, "float32")
            T.copy(source(A), S)
            T.copy(S, B)

    return kernel


@pytest.mark.parametrize(
    "source,numpy_slice",
    [
        (lambda A: A[1, 2, 3], np.s_[1, 2:5, 3:7]),
        (lambda A: A[1, 2:5, 3:7], np.s_[1, 2:5, 3:7]),
        (lambda A: A[0, :3, 4:], np.s_[0, 0:3, 4:8]),
        (lambda A: A[1:2, 2:5, 3:7], np.s_[1, 2:5, 3:7]),
    ],
)
def test_copy_of_a_box(source, numpy_slice):
    a = np.arange(2 * 6 * 8, dtype="f").reshape(2, 6, 8)
    kernel = region_kernel((2, 6, 8), (3, 4), source)
    np.testing.assert_array_equal(run(kernel, {"A": a})["B"], a[numpy_slice])


def test_an_indexed_dimension_in_the_middle_is_squeezed():
    a = np.arange(4 * 3 * 5, dtype="f").reshape(4, 3, 5)
    kernel = region_kernel((4, 3, 5), (4, 5), lambda A: A[:, 1, :])
    np.testing.assert_array_equal(run(kernel, {"A": a})["B"], a[:, 1, :])


def test_reads_outside_a_tensor_give_zero_and_writes_vanish():
    a = np.ones((3, 3), dtype="f")
    kernel = region_kernel((3, 3), (4, 4), lambda A: A[1, 1])
    expected = np.zeros((4, 4))
    expected[:2, :2] = 1
    np.testing.assert_array_equal(run(kernel, {"A": a})["B"], expected)


def test_slices_with_symbolic_bounds_have_the_extent_of_the_tile():
    m = T.Param("m")

    @T.prim_func
    def kernel(A: T.Tensor((64, 8), "float32")):
        with T.Kernel(T.ceildiv(64, m)) as b:
            S = T.alloc_shared((m, 8), "float32")
            T.copy(A[b * m : (b + 1) * m, :], S)

    (copy,) = kernel.body
    assert isinstance(copy, Copy)
    assert copy.src.extent == (m, Const(8))


def test_copy_of_single_elements():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            T.copy(A[1], B[2])

    out = run(kernel, {"A": np.arange(4, dtype="f"), "B": np.zeros(4, "f")})["B"]
    np.testing.assert_array_equal(out, [0, 0, 1, 0])


# ---------------------------------------------------------------- tile ops


def test_gemm_operands_may_be_slices_and_fragments():
    @T.prim_func
    def kernel(A: T.Tensor((2, 4, 4), "float32"), C: T.Tensor((4, 4), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((2, 4, 4), "float32")
            F = T.alloc_fragment((4, 4), "float32")
            acc = T.alloc_fragment((4, 4), "float32")
            T.copy(A, S)
            T.copy(S[0, :, :], F)
            T.gemm(F, S[1, :, :], acc, clear_accum=True)
            T.copy(acc, C)

    a = np.random.default_rng(0).standard_normal((2, 4, 4)).astype("f")
    np.testing.assert_allclose(run(kernel, {"A": a})["C"], a[0] @ a[1], rtol=1e-5)


def test_clear_accum_may_depend_on_the_iteration():
    @T.prim_func
    def kernel(A: T.Tensor((12, 4), "float32"), C: T.Tensor((4, 4), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((4, 4), "float32")
            acc = T.alloc_fragment((4, 4), "float32")
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[k * 4, 0], S)
                T.gemm(S, S, acc, transpose_A=True, clear_accum=k == 0)
            T.copy(acc, C)

    a = np.random.default_rng(0).standard_normal((12, 4)).astype("f")
    np.testing.assert_allclose(run(kernel, {"A": a})["C"], a.T @ a, rtol=1e-4)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize(
    "reduce,numpy_reduce",
    [
        (T.reduce_max, np.max),
        (T.reduce_min, np.min),
        (T.reduce_sum, np.sum),
        (T.reduce_absmax, lambda x, axis: np.max(np.abs(x), axis=axis)),
    ],
)
def test_reductions(reduce, numpy_reduce, dim):
    size = 6 if dim == 0 else 4

    @T.prim_func
    def kernel(A: T.Tensor((4, 6), "float32"), R: T.Tensor((size,), "float32")):
        with T.Kernel(1):
            S = T.alloc_fragment((4, 6), "float32")
            out = T.alloc_fragment((size,), "float32")
            T.copy(A, S)
            reduce(S, out, dim=dim)
            T.copy(out, R)

    a = np.random.default_rng(0).standard_normal((4, 6)).astype("f")
    np.testing.assert_allclose(run(kernel, {"A": a})["R"], numpy_reduce(a, axis=dim), rtol=1e-5)


def test_a_reduction_without_clear_keeps_the_old_value():
    @T.prim_func
    def kernel(A: T.Tensor((2, 3), "float32"), R: T.Tensor((2, 1), "float32")):
        with T.Kernel(1):
            S = T.alloc_fragment((2, 3), "float32")
            out = T.alloc_fragment((2, 1), "float32")
            T.copy(A, S)
            T.fill(out, 10.0)
            T.reduce_sum(S, out, clear=False)
            T.reduce_max(S, out, clear=False)
            T.copy(out, R)

    out = run(kernel, {"A": np.array([[1, 2, 3], [20, 1, 1]], "f")})["R"]
    np.testing.assert_array_equal(out, [[16], [32]])


def test_atomic_add_of_elements_and_of_tiles():
    @T.prim_func
    def kernel(X: T.Tensor((8,), "float32"), total: T.Tensor((3,), "float32")):
        with T.Kernel(2) as b:
            S = T.alloc_shared((4,), "float32")
            part = T.alloc_shared((2,), "float32")
            T.copy(X[b * 4], S)
            T.fill(part, 1.0)
            for i in T.Parallel(4):
                T.atomic_add(total[0], S[i])
            T.atomic_add(total[1], part)

    out = run(kernel, {"X": np.arange(8, dtype="f"), "total": np.zeros(3, "f")})["total"]
    np.testing.assert_array_equal(out, [28, 2, 2])
    assert ids(kernel)[-2:] == ["map_total", "map_total_2"]


# ---------------------------------------------------------------- element-wise bodies


@pytest.mark.parametrize(
    "body,numpy_body",
    [
        (lambda x, i: x * 2 + 1, lambda x, i: x * 2 + 1),
        (lambda x, i: 1 - x / 4, lambda x, i: 1 - x / 4),
        (lambda x, i: -x, lambda x, i: -x),
        (lambda x, i: x + i, lambda x, i: x + i),
        (lambda x, i: T.exp(x), lambda x, i: np.exp(x)),
        (lambda x, i: T.exp2(x), lambda x, i: np.exp2(x)),
        (lambda x, i: T.log2(x * x + 1), lambda x, i: np.log2(x * x + 1)),
        (lambda x, i: T.log(T.abs(x) + 1), lambda x, i: np.log(np.abs(x) + 1)),
        (lambda x, i: T.sqrt(T.abs(x)), lambda x, i: np.sqrt(np.abs(x))),
        (lambda x, i: T.rsqrt(x * x + 1), lambda x, i: 1 / np.sqrt(x * x + 1)),
        (lambda x, i: T.tanh(x), lambda x, i: np.tanh(x)),
        (lambda x, i: T.sigmoid(x), lambda x, i: 1 / (1 + np.exp(-x))),
        (lambda x, i: T.floor(x) + T.ceil(x), lambda x, i: np.floor(x) + np.ceil(x)),
        (lambda x, i: T.max(x, 0), lambda x, i: np.maximum(x, 0)),
        (lambda x, i: T.min(x, i), lambda x, i: np.minimum(x, i)),
        (lambda x, i: T.clamp(x, -0.5, 0.5), lambda x, i: np.clip(x, -0.5, 0.5)),
        (lambda x, i: x**2, lambda x, i: x**2),
        (lambda x, i: T.if_then_else(i < 3, x, 0.0), lambda x, i: np.where(i < 3, x, 0)),
        (lambda x, i: T.if_then_else(x > 0, x, -x), lambda x, i: np.abs(x)),
        (lambda x, i: T.if_then_else(x == x, 1.0, 0.0), lambda x, i: np.ones_like(x)),
        (lambda x, i: x.astype("float16"), lambda x, i: x.astype(np.float16)),
        (lambda x, i: T.cast(x, T.int32), lambda x, i: np.trunc(x)),
        (lambda x, i: T.cast("float16", x), lambda x, i: x.astype(np.float16)),
    ],
)
def test_element_wise_functions(body, numpy_body):
    x = np.random.default_rng(0).standard_normal(8).astype("f")
    out = run(elementwise(body), {"X": x})["Y"]
    expected = numpy_body(x, np.arange(8)).astype("f")
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_integer_arithmetic_and_bits():
    kernel = elementwise(lambda x, i: ((x << 2) | 1) ^ (x >> 1) & 3, dtype="int32")
    x = np.arange(-4, 4, dtype=np.int32)
    np.testing.assert_array_equal(run(kernel, {"X": x})["Y"], ((x << 2) | 1) ^ (x >> 1) & 3)
    kernel = elementwise(lambda x, i: x // 3 * 10 + x % 3, dtype="int32")
    np.testing.assert_array_equal(run(kernel, {"X": x})["Y"], x // 3 * 10 + x % 3)


def test_infinity_and_temporaries_and_augmented_stores():
    @T.prim_func
    def kernel(X: T.Tensor((4, 3), "float32"), Y: T.Tensor((4, 3), "float32")):
        with T.Kernel(1):
            S = T.alloc_fragment((4, 3), "float32")
            T.fill(S, -T.infinity(T.float32))
            for i, j in T.Parallel(4, 3):
                x = X[i, j] * 2
                y = T.max(S[i, j], x)
                y += 1
                S[i, j] = y
                S[i, j] *= 2
            T.copy(S, Y)

    x = np.arange(12, dtype="f").reshape(4, 3)
    np.testing.assert_array_equal(run(kernel, {"X": x})["Y"], (x * 2 + 1) * 2)


def test_an_if_in_an_element_wise_body_guards_its_stores():
    @T.prim_func
    def kernel(X: T.Tensor((10,), "float32"), Y: T.Tensor((10,), "float32")):
        with T.Kernel(3) as b:
            for i in T.Parallel(4):
                if b * 4 + i < 10 and not b * 4 + i == 5:
                    Y[b * 4 + i] = X[b * 4 + i]
                if X[b * 4 + i] > 7:
                    Y[b * 4 + i] = -1.0

    x = np.arange(10, dtype="f")
    out = run(kernel, {"X": x, "Y": np.full(10, 9, "f")})["Y"]
    np.testing.assert_array_equal(out, [0, 1, 2, 3, 4, 9, 6, 7, -1, -1])
    (op,) = kernel.body
    assert isinstance(op, Map)
    assert op.guards[1] == TRUE


# ---------------------------------------------------------------- loops


def test_loop_kinds():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            for a in T.serial(4):
                A[a] = 0.0
            for b in T.unroll(2, 6):
                A[b] = 0.0
            for c in range(1, 5):
                A[c] = 0.0
            for d in T.Pipelined(3, num_stages=2):
                A[d] = 0.0
            for _ in T.Serial(2):
                A[0] = 1.0

    found = [
        (loop.var, loop.start, loop.extent, loop.kind, loop.num_stages)
        for loop in kernel.body
        if isinstance(loop, Loop)
    ]
    assert found == [
        ("a", Const(0), Const(4), "serial", 0),
        ("b", Const(2), Const(4), "unrolled", 0),
        ("c", Const(1), Const(4), "serial", 0),
        ("d", Const(0), Const(3), "pipelined", 2),
        ("i", Const(0), Const(2), "serial", 0),
    ]


@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("tiles", [(3, 5), (4, 4), (1, 7), (9, 9)])
def test_persistent_visits_every_tile_once(tiles, group):
    @T.prim_func
    def kernel(C: T.Tensor(tiles, "int32")):
        with T.Kernel(4) as block:
            for bx, by in T.Persistent(list(tiles), 4, block, group_size=group):
                T.atomic_add(C[bx, by], 1)

    out = run(kernel, {"C": np.zeros(tiles, np.int32)})["C"]
    np.testing.assert_array_equal(out, np.ones(tiles))


def test_ascend_persistent():
    @T.prim_func
    def kernel(C: T.Tensor((10,), "int32")):
        with T.Kernel(4) as core:
            for i in T.Persistent([10], 4, core, num_stages=2):
                T.atomic_add(C[i], i)

    np.testing.assert_array_equal(run(kernel, {"C": np.zeros(10, np.int32)})["C"], np.arange(10))
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    assert (loop.kind, loop.num_stages, loop.id) == ("persistent", 2, "wave")


def test_persistent_as_a_block():
    @T.prim_func
    def kernel(C: T.Tensor((5,), "int32")):
        with T.Kernel(1), T.Persistent(5, num_stages=4) as i:
            C[i] = i

    np.testing.assert_array_equal(run(kernel, {})["C"], np.arange(5))
    assert not any(isinstance(s, If) for s, _ in walk(kernel.body))


@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize("swizzle", [1, 2, 8])
@pytest.mark.parametrize("tiles", [(3, 5), (9, 9)])
def test_a_tile_scheduler_visits_every_tile_once(tiles, swizzle, column_major):
    @T.prim_func
    def kernel(C: T.Tensor(tiles, "int32")):
        with T.Kernel(4) as block:
            sched = T.PersistentTileScheduler(*tiles, 4, swizzle, column_major)
            sched.init(block)
            with T.ws_op("waves"):
                while sched.valid():
                    T.atomic_add(C[sched.m_idx, sched.n_idx], sched.current_iter + 1)
                    with T.ws_op("next"):
                        sched.next_tile()

    out = run(kernel, {"C": np.zeros(tiles, np.int32)})["C"]
    waves = -(-tiles[0] * tiles[1] // 4)
    assert sorted(set(out.ravel())) == list(range(1, waves + 1))
    assert np.all(np.bincount(out.ravel())[1:-1] == 4)
    assert isinstance(kernel.statement("waves"), While)
    assert isinstance(kernel.statement("next"), Group)
    assert ids(kernel)[:4] == [
        "sched_current_iter",
        "sched_linear_idx",
        "sched_m_idx",
        "sched_n_idx",
    ]


def test_loop_bounds_may_depend_on_outer_loops_and_on_data():
    @T.prim_func
    def kernel(n: T.Tensor((2,), "int32"), C: T.Tensor((2, 4, 4), "int32")):
        with T.Kernel(2) as b:
            limit = n[b]
            for i in T.serial(limit):
                for j in T.serial(i + 1):
                    C[b, i, j] = 1

    out = run(kernel, {"n": np.array([2, 4], np.int32), "C": np.zeros((2, 4, 4), np.int32)})
    np.testing.assert_array_equal(out["C"][1], np.tril(np.ones((4, 4))))
    assert out["C"][0].sum() == 3
    assert isinstance(kernel.body[0], Define)
    inner = kernel.statement("j")
    assert isinstance(inner, Loop) and inner.extent == Var("i") + 1


def test_a_while_loop_reads_its_condition_again():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=T.Param("threads")):
            n = T.alloc_local((1,), "int32")
            n[0] = 0
            while n[0] < 4:
                A[n[0]] = 5
                n[0] = n[0] + 1

    assert kernel.params == ("threads",)
    concrete = kernel.at(threads=32)
    out = run(concrete, {"A": np.zeros(8, np.int32)})["A"]
    np.testing.assert_array_equal(out, [5] * 4 + [0] * 4)
    assert ids(kernel) == [
        "map_n",
        "n_value",
        "while",
        "n_value_2",
        "map_A",
        "map_n_2",
        "n_value_3",
    ]


def test_an_element_as_an_index_becomes_a_scalar():
    @T.prim_func
    def kernel(index: T.Tensor((3,), "int32"), A: T.Tensor((5, 2), "float32"),
               B: T.Tensor((3, 2), "float32")):  # fmt: skip
        with T.Kernel(3) as b:
            S = T.alloc_shared((1, 2), "float32")
            T.copy(A[index[b], 0], S)
            T.copy(S, B[b, 0])

    a = np.arange(10, dtype="f").reshape(5, 2)
    out = run(kernel, {"index": np.array([4, 0, 2], np.int32), "A": a})["B"]
    np.testing.assert_array_equal(out, a[[4, 0, 2]])
    assert ids(kernel) == ["index_value", "copy_S", "copy_B"]


# ---------------------------------------------------------------- control flow


def test_conditions_become_guards_and_python_conditions_do_not():
    def build(flag: bool) -> Any:
        @T.prim_func
        def kernel(A: T.Tensor((8,), "int32"), switch: T.Tensor((1,), "int32")):
            with T.Kernel(8) as b:
                if flag:
                    A[b] = 1
                else:
                    A[b] = 2
                if (b >= 2 and b != 5) or b == 0:
                    A[b] = 3
                if switch[0] > 0:
                    A[b] = 4
                if not flag:
                    pass
                elif len(A.shape) == 1:
                    A[7] = 9

        return kernel

    assert [type(s).__name__ for s in build(True).body] == ["Map", "If", "Define", "If", "Map"]
    off = {"switch": np.array([0], np.int32)}
    on = {"switch": np.array([1], np.int32)}
    np.testing.assert_array_equal(run(build(True), off)["A"], [3, 1, 3, 3, 3, 1, 3, 9])
    np.testing.assert_array_equal(run(build(False), off)["A"], [3, 2, 3, 3, 3, 2, 3, 3])
    np.testing.assert_array_equal(run(build(False), on)["A"], [4] * 8)


def test_chained_comparisons_and_conditional_expressions():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(8) as b:
            A[b] = 0
            if 2 <= b < 5:
                A[b] = 7 if b == 3 else 1

    np.testing.assert_array_equal(run(kernel, {})["A"], [0, 0, 1, 7, 1, 0, 0, 0])


def test_python_around_the_kernel_keeps_working():
    sizes = {"n": 4}
    log = []

    def double(x: Any) -> Any:
        return x + x

    @T.prim_func
    def kernel(A: T.Tensor((sizes["n"],), "float32")):
        table = [(k, k * k) for k in range(3) if k != 1]
        with T.Kernel(1):
            for position, value in table:
                if position == 3:
                    continue
                A[position] = double(value)
            while len(log) < 2:
                log.append("step")
            for word in ("a", "b"):
                if word == "b":
                    break
                A[3] = float(ord(word)) if word else 0.0

    assert log == ["step", "step"]
    np.testing.assert_array_equal(run(kernel, {"A": np.zeros(4, "f")})["A"], [0, 0, 8, 97])


def test_macros_are_expanded_into_the_kernel():
    @T.macro
    def scaled_copy(src, dst, factor):
        tile = T.alloc_fragment((4,), "float32")
        T.copy(src, tile)
        for i in T.Parallel(4):
            tile[i] = i * tile[i] * factor if factor != 1 else tile[i]
        T.copy(tile, dst)

    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32"),
               C: T.Tensor((4,), "float32")):  # fmt: skip
        with T.Kernel(1):
            scaled_copy(A, B, 3)
            scaled_copy(A, C, 1)

    out = run(kernel, {"A": np.ones(4, "f")})
    np.testing.assert_array_equal(out["B"], [0, 3, 6, 9])
    np.testing.assert_array_equal(out["C"], [1, 1, 1, 1])
    assert [b.name for b in kernel.buffers] == ["tile", "tile_2"]


def test_sizes_known_when_the_kernel_runs():
    rows = T.dynamic("rows")

    @T.prim_func
    def kernel(A: T.Tensor((rows, 4), "float32"), B: T.Tensor((rows, 4), "float32"),
               shift: T.int32):  # fmt: skip
        with T.Kernel(T.ceildiv(rows, 3)) as b:
            S = T.alloc_shared((3, 4), "float32")
            T.copy(A[b * 3 + shift, 0], S)
            T.copy(S, B[b * 3, 0])

    assert kernel.scalars == ("rows", "shift")
    assert "  scalar rows\n  scalar shift\n" in show_kernel(kernel)
    a = np.arange(28, dtype="f").reshape(7, 4)
    out = run(kernel, {"A": a}, shift=1)["B"]
    np.testing.assert_array_equal(out[:6], a[1:])
    np.testing.assert_array_equal(out[6], 0)


# ---------------------------------------------------------------- ids


def test_default_ids_are_made_unique():
    @T.prim_func
    def kernel(A: T.Tensor((4, 4), "float32")):
        with T.Kernel(1) as b:
            S = T.alloc_shared((4, 4), "float32")
            F = T.alloc_fragment((4,), "float32")
            for k in T.serial(2):
                T.copy(A, S)
            for k in T.serial(2):
                T.copy(A, S)
                T.clear(S)
                T.reduce_sum(S, F)
                if b == 0:
                    A[0, 0] = 1.0
                for i in T.Parallel(4):
                    F[i] = 0.0

    assert ids(kernel) == [
        "k",
        "copy_S",
        "k_2",
        "copy_S_2",
        "fill_S",
        "reduce_F",
        "if",
        "map_A",
        "map_F",
    ]


def test_a_scalar_definition_in_a_group_has_the_groups_id():
    @T.prim_func
    def kernel(n: T.Tensor((2,), "int32"), A: T.Tensor((2,), "int32")):
        with T.Kernel(2) as b:
            limit = 0
            with T.ws_op("read"):
                limit = n[b]
            A[b] = limit + T.int32(2.9)

    assert ids(kernel) == ["read", "map_A"]
    assert isinstance(kernel.body[0], Define) and kernel.body[0].name == "limit"
    out = run(kernel, {"n": np.array([3, 4], np.int32)})["A"]
    np.testing.assert_array_equal(out, [5, 6])


def test_ids_that_the_author_gives():
    @T.prim_func
    def kernel(A: T.Tensor((4, 4), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((4, 4), "float32")
            acc = T.alloc_fragment((4, 4), "float32")
            T.clear(acc, annotations={T.WSID: "zero"})
            for k in T.Pipelined(2, num_stages=2, annotations={T.WSID: "main"}):
                T.copy(A, S, annotations={T.WSID: "copy_A"})
                T.gemm(S, S, acc, annotations={T.WSID: "mma"})
                for i, j in T.Parallel(4, 4, annotations={T.WSID: "bump"}):
                    acc[i, j] += 1
            with T.ws_op("store"):
                T.copy(acc, A)
            with T.ws_op("finish"):
                T.clear(acc)
                T.copy(acc, S)

    assert ids(kernel) == [
        "zero", "main", "copy_A", "mma", "bump", "store", "finish", "fill_acc", "copy_S"
    ]  # fmt: skip
    assert isinstance(kernel.statement("store"), Copy)
    assert isinstance(kernel.statement("finish"), Group)
    assert isinstance(kernel.statement("mma"), Gemm)
