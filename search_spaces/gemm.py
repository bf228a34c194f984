"""C = op(A) op(B): the four operand layouts of a general matrix multiply.

`gemm` is A (M x K) times B (K x N), both row-major, what `A @ B` is in NumPy. `gemm_nt` takes B as
N x K, `gemm_tn` A as K x M, `gemm_tt` both. A BLAS, which counts columns first, calls `gemm` NN,
`gemm_nt` TN and `gemm_tn` NT. Floats of up to 32 bits accumulate in float32, float64 in float64;
fp8 products are stored as bfloat16. On the h200 float32 is multiplied as tf32; it and fp8 are read
along the reduction only, which is `gemm_nt`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from gemm_h200 import TF32_HINTS, h200_hints, h200_tiles

import explorer.lang as T
from explorer import Arrays, Peer, Problem, Workload, standard_normal

TILES = {
    "cpu": {
        "block_M": (32, 64, 96, 128, 192, 256, 384, 512),
        "block_N": (32, 64, 96, 128, 192, 256, 384, 512),
        "block_K": (32, 64, 128, 256),
    },
    "h200": h200_tiles,
}
HINTS = {"h200": h200_hints, "h200 float32": TF32_HINTS}
TOLERANCE = {
    "float32": 1e-5,
    "float64": 1e-13,
    "float16": 1e-3,
    "bfloat16": 8e-3,
    # The h200 adds fp8 products with 14 bits or so; the error grows with the reduction.
    "float8_e4m3": 2e-2,
}
TOLERANCE_ON = {"h200": {"float32": 2e-3}}


def trace(problem: Problem, transpose_a: bool, transpose_b: bool) -> T.TracedKernel:
    """The plain kernel of a problem, its tile sizes open."""
    M, N, K = problem["M"], problem["N"], problem["K"]
    dtype = problem.dtype.name
    accum_dtype = "float64" if dtype == "float64" else "float32"
    out_dtype = output_dtype(dtype)
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))
    a_shape, a_tile = ((K, M), (block_K, block_M)) if transpose_a else ((M, K), (block_M, block_K))
    b_shape, b_tile = ((N, K), (block_N, block_K)) if transpose_b else ((K, N), (block_K, block_N))

    @T.prim_func
    def gemm(
        A: T.Tensor(a_shape, dtype),
        B: T.Tensor(b_shape, dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared(a_tile, dtype)
            B_shared = T.alloc_shared(b_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                if transpose_a:
                    T.copy(A[ko * block_K, by * block_M], A_shared)
                else:
                    T.copy(A[by * block_M, ko * block_K], A_shared)
                if transpose_b:
                    T.copy(B[bx * block_N, ko * block_K], B_shared)
                else:
                    T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(
                    A_shared,
                    B_shared,
                    C_local,
                    transpose_A=transpose_a,
                    transpose_B=transpose_b,
                )
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm


def output_dtype(dtype: str) -> str:
    """The type of the product: that of the operands, bfloat16 for fp8."""
    return "bfloat16" if dtype.startswith("float8") else dtype


def gemm_workload(name: str, transpose_a: bool, transpose_b: bool) -> Workload:
    """The search problem of one operand layout."""

    def shapes(problem: Problem) -> tuple[tuple[int, int], tuple[int, int]]:
        m, n, k = problem["M"], problem["N"], problem["K"]
        return (k, m) if transpose_a else (m, k), (n, k) if transpose_b else (k, n)

    def inputs(problem: Problem, rng: np.random.Generator) -> Arrays:
        a_shape, b_shape = shapes(problem)
        element = problem.dtype.numpy
        return {
            "A": standard_normal(rng, a_shape, element),
            "B": standard_normal(rng, b_shape, element),
        }

    def operands(arrays: Arrays, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        a, b = (arrays[name].astype(dtype, copy=False) for name in ("A", "B"))
        return a.T if transpose_a else a, b.T if transpose_b else b

    def reference(problem: Problem, arrays: Arrays) -> Arrays:
        return {"C": np.matmul(*operands(arrays, np.float64))}

    def numpy_matmul(problem: Problem, arrays: Arrays) -> None:
        # NumPy multiplies 16-bit floats one by one; through float32 it has BLAS.
        wide = problem.dtype.bits >= 32
        a, b = operands(arrays, problem.dtype.numpy if wide else np.float32)
        if wide:
            np.matmul(a, b, out=arrays["C"])
        else:
            np.copyto(arrays["C"], np.matmul(a, b), casting="same_kind")

    def cublas_matmul(problem: Problem, arrays: Arrays) -> None:
        # On the device NumPy's product dispatches to cuBLAS.
        a, b = operands(arrays, problem.dtype.numpy)
        np.matmul(a, b, out=arrays["C"])

    def tf32_matmul(problem: Problem, arrays: Any) -> None:
        a, b = operands(arrays, problem.dtype.numpy)
        a.reduced_product(b, arrays["C"])

    def kernel(problem: Problem) -> T.TracedKernel:
        return trace(problem, transpose_a, transpose_b)

    return Workload(
        name=name,
        sizes={"M": 1024, "N": 1024, "K": 1024},
        kernel=kernel,
        tiles=TILES,
        inputs=inputs,
        reference=reference,
        work=work,
        tolerance=TOLERANCE,
        tolerance_on=TOLERANCE_ON,
        hints=HINTS,
        usual_dtypes={"h200": "bfloat16"},
        dtypes=("float32", "float64", "float16", "bfloat16", "float8_e4m3"),
        peers=(
            Peer("numpy", "cpu", numpy_matmul),
            Peer("cublas", "h200", cublas_matmul, ("bfloat16", "float16")),
            Peer("cublas tf32", "h200", tf32_matmul, ("float32",)),
            *(SCALED if transpose_b and not transpose_a else ()),
        ),
        description=f"C = {'A.T' if transpose_a else 'A'} @ {'B.T' if transpose_b else 'B'}",
    )


def scaled_matmul(problem: Problem, arrays: Any) -> None:
    """A @ B.T of fp8 by cuBLASLt, with its fast accumulation; A as M x K, B as N x K."""
    import torch  # noqa: PLC0415

    fp8 = torch.float8_e4m3fn
    a, b = (torch.from_dlpack(arrays[name].bits).view(fp8) for name in "AB")
    c = torch.from_dlpack(arrays["C"].bits.view(np.int16)).view(torch.bfloat16)
    one = _ones(torch)
    torch._scaled_mm(a, b.t(), one, one, out_dtype=c.dtype, out=c, use_fast_accum=True)


@cache
def _ones(torch: Any) -> Any:
    return torch.ones((), device="cuda")


# The library takes fp8 operands along the reduction only.
SCALED = (Peer("torch._scaled_mm", "h200", scaled_matmul, ("float8_e4m3",), needs="torch"),)


def work(problem: Problem) -> float:
    """Operations: a multiplication and an addition for each of M x N x K."""
    return 2.0 * problem["M"] * problem["N"] * problem["K"]


gemm = gemm_workload("gemm", False, False)
gemm_nt = gemm_workload("gemm_nt", False, True)
gemm_tn = gemm_workload("gemm_tn", True, False)
gemm_tt = gemm_workload("gemm_tt", True, True)
