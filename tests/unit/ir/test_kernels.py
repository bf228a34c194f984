"""The kernels of the project, each in the interpreter against an independent NumPy reference."""

from __future__ import annotations

import itertools
import math
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.ir.interpreter import run
from tests.kernels.attention import attention, attention_reference
from tests.kernels.dequant import dequant_gemm, dequant_gemm_reference, pack_int4
from tests.kernels.epilogue import gemm_epilogue, gemm_epilogue_reference
from tests.kernels.gemm import gemm, gemm_reference
from tests.kernels.grouped import grouped_gemm, grouped_gemm_reference
from tests.kernels.rmsnorm import rmsnorm, rmsnorm_reference

DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def relative_error(out: np.ndarray, reference: np.ndarray) -> float:
    scale = float(np.linalg.norm(reference)) or 1.0
    return float(np.linalg.norm(out.astype(np.float64) - reference)) / scale


def random(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return values.astype(DTYPES[dtype])


def gemm_error(m: int, n: int, k: int, ta: bool, tb: bool, dtype: str, tiles: tuple[int, ...]):
    accumulator = "float64" if dtype == "float64" else "float32"
    kernel = gemm(m, n, k, dtype, accumulator, ta, tb)
    a = random((k, m) if ta else (m, k), dtype)
    b = random((n, k) if tb else (k, n), dtype, seed=1)
    block_m, block_n, block_k = tiles
    concrete = kernel.at(block_M=block_m, block_N=block_n, block_K=block_k)
    return relative_error(run(concrete, {"A": a, "B": b})["C"], gemm_reference(a, b, ta, tb))


@pytest.mark.parametrize("ta,tb", list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("shape", [(129, 257, 65), (1, 1, 1), (1000, 1, 7)])
def test_gemm_in_every_layout(shape, ta, tb):
    assert gemm_error(*shape, ta, tb, "float32", (32, 64, 16)) < TOLERANCE["float32"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemm_in_every_dtype(dtype):
    assert gemm_error(65, 33, 70, False, True, dtype, (16, 16, 32)) < TOLERANCE[dtype]


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 40)] * 3),
    tiles=st.tuples(*[st.integers(1, 24)] * 3),
    ta=st.booleans(),
    tb=st.booleans(),
)
def test_gemm_of_random_shapes_and_tiles(shape, tiles, ta, tb):
    assert gemm_error(*shape, ta, tb, "float32", tiles) < TOLERANCE["float32"]


def test_an_odd_gemm_runs_well_under_a_second():
    start = time.perf_counter()
    gemm_error(129, 257, 65, False, False, "float32", (32, 32, 32))
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("activation", ["none", "relu", "tanh", "gelu"])
def test_gemm_with_bias_and_activation(activation):
    m, n, k = 65, 47, 33
    a, b, bias = (
        random((m, k), "float16"),
        random((k, n), "float16", 1),
        random((n,), "float16", 2),
    )
    kernel = gemm_epilogue(m, n, k, activation).at(block_M=32, block_N=16, block_K=16)
    out = run(kernel, {"A": a, "B": b, "bias": bias})["C"]
    assert relative_error(out, gemm_epilogue_reference(a, b, bias, activation)) < 2e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "batch,heads,kv_heads,q_len,kv_len,dim",
    [
        (1, 2, 2, 250, 250, 32),
        (2, 4, 2, 33, 70, 16),
        (1, 4, 1, 70, 33, 16),
        (1, 1, 1, 1, 250, 8),
        (1, 1, 1, 1, 1, 8),
    ],
)
def test_attention(batch, heads, kv_heads, q_len, kv_len, dim, causal):
    q = random((batch, q_len, heads, dim), "float16", 1)
    k = random((batch, kv_len, kv_heads, dim), "float16", 2)
    v = random((batch, kv_len, kv_heads, dim), "float16", 3)
    kernel = attention(batch, heads, kv_heads, q_len, kv_len, dim, causal)
    out = run(kernel.at(block_M=32, block_N=48), {"Q": q, "K": k, "V": v})["O"]
    assert np.all(np.isfinite(out.astype(np.float32)))
    assert relative_error(out, attention_reference(q, k, v, causal)) < 2e-3


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    groups=st.integers(1, 3),
    blocks=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    causal=st.booleans(),
)
def test_attention_of_random_shapes(lengths, groups, blocks, causal):
    q = random((1, lengths[0], 2 * groups, 4), "float32", 1)
    k = random((1, lengths[1], 2, 4), "float32", 2)
    v = random((1, lengths[1], 2, 4), "float32", 3)
    kernel = attention(1, 2 * groups, 2, *lengths, 4, causal, "float32")
    out = run(kernel.at(block_M=blocks[0], block_N=blocks[1]), {"Q": q, "K": k, "V": v})["O"]
    assert relative_error(out, attention_reference(q, k, v, causal)) < TOLERANCE["float32"]


@pytest.mark.parametrize("rows,columns", [(3, 4097), (1, 4097), (5, 1), (4, 64)])
def test_rmsnorm(rows, columns):
    x, weight = random((rows, columns), "float16"), random((columns,), "float16", 1)
    kernel = rmsnorm(rows, columns).at(block_M=2, block_N=512)
    out = run(kernel, {"X": x, "weight": weight})["Y"]
    assert relative_error(out, rmsnorm_reference(x, weight)) < 2e-3


@pytest.mark.parametrize("m,n,k", [(33, 104, 66), (5, 7, 65), (1, 1, 1), (16, 32, 130)])
def test_dequantising_gemm(m, n, k):
    a = random((m, k), "float16")
    w = np.random.default_rng(1).integers(-8, 8, (n, k))
    scales = np.abs(random((n, math.ceil(k / 32)), "float16", 2)) + np.float16(0.1)
    kernel = dequant_gemm(m, n, k).at(block_M=16, block_N=16)
    out = run(kernel, {"A": a, "W": pack_int4(w), "scales": scales})["C"]
    assert relative_error(out, dequant_gemm_reference(a, w, scales)) < 3e-3


@pytest.mark.parametrize("sizes", [(17, 0, 1, 40), (0, 0), (1,), (64, 33)])
def test_grouped_gemm(sizes):
    rows, n, k = max(sum(sizes), 1), 29, 33
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    a, b = random((rows, k), "float16"), random((len(sizes), k, n), "float16", 1)
    kernel = grouped_gemm(rows, len(sizes), n, k).at(block_M=16, block_N=16, block_K=16)
    out = run(kernel, {"A": a, "B": b, "offsets": offsets})["C"]
    reference = grouped_gemm_reference(a, b, offsets)
    assert np.all(np.isnan(out[len(reference) :].astype(np.float32)))
    assert relative_error(out[: len(reference)], reference) < 2e-3
