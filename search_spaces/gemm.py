"""C = op(A) op(B): the four operand layouts of a general matrix multiply.

`gemm` is A (M x K) times B (K x N), both row-major, what `A @ B` is in NumPy. `gemm_nt` takes B as
N x K, `gemm_tn` A as K x M, `gemm_tt` both. 16- and 32-bit floats accumulate in float32, float64
in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import explorer.lang as T
from explorer import Arrays, Hint, Peer, Problem, Workload

TILES = {
    "cpu": {
        "block_M": (32, 64, 96, 128, 192, 256, 384, 512),
        "block_N": (32, 64, 96, 128, 192, 256, 384, 512),
        "block_K": (32, 64, 128, 256),
    },
    "h200": {
        "block_M": (64, 128, 192, 256),
        "block_N": (64, 96, 128, 160, 192, 224, 256),
        "block_K": (32, 64, 128),
    },
}
PAIR = "roles producer+consumer_0+consumer_1; rings A_shared+B_shared; {} epilogue"
ONE = "roles producer+consumer; rings A_shared+B_shared; {} epilogue"


def h200_hint(skeleton: str, tile: tuple[int, int, int], depth: int, nreg: int = 232) -> Hint:
    """What fast Hopper kernels share: one warp loads, gemms lag by one, one block a processor."""
    block_M, block_N, block_K = tile
    values = {"block_M": block_M, "block_N": block_N, "block_K": block_K, "depth_A_B": depth}
    launch = {"blocks": 132, "raster": 2, "group": 8, "warps_producer": 1, "warps_consumer": 4}
    registers = {"nreg_producer": 40, "nreg_consumer": nreg, "lag_gemm_C_local": 1}
    return Hint(skeleton, values | launch | registers)


HINTS = {
    "h200": (
        h200_hint(PAIR.format("staged"), (128, 256, 64), 3),
        h200_hint(PAIR.format("direct"), (128, 256, 64), 4),
        h200_hint(PAIR.format("staged"), (128, 192, 64), 4),
        h200_hint(PAIR.format("staged"), (256, 128, 64), 3),
        h200_hint(PAIR.format("staged"), (128, 128, 64), 6),
        h200_hint(ONE.format("staged"), (64, 256, 64), 4),
        h200_hint(ONE.format("direct"), (64, 128, 64), 8),
        h200_hint(ONE.format("direct"), (64, 64, 128), 6),
    )
}
TOLERANCE = {"float32": 1e-5, "float64": 1e-13, "float16": 1e-3, "bfloat16": 8e-3}


def trace(problem: Problem, transpose_a: bool, transpose_b: bool) -> T.TracedKernel:
    """The plain kernel of a problem, its tile sizes open."""
    M, N, K = problem["M"], problem["N"], problem["K"]
    dtype = problem.dtype.name
    accum_dtype = "float64" if dtype == "float64" else "float32"
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))
    a_shape, a_tile = ((K, M), (block_K, block_M)) if transpose_a else ((M, K), (block_M, block_K))
    b_shape, b_tile = ((N, K), (block_N, block_K)) if transpose_b else ((K, N), (block_K, block_N))

    @T.prim_func
    def gemm(
        A: T.Tensor(a_shape, dtype),
        B: T.Tensor(b_shape, dtype),
        C: T.Tensor((M, N), dtype),
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


def gemm_workload(name: str, transpose_a: bool, transpose_b: bool) -> Workload:
    """The search problem of one operand layout."""

    def shapes(problem: Problem) -> tuple[tuple[int, int], tuple[int, int]]:
        m, n, k = problem["M"], problem["N"], problem["K"]
        return (k, m) if transpose_a else (m, k), (n, k) if transpose_b else (k, n)

    def inputs(problem: Problem, rng: np.random.Generator) -> Arrays:
        drawn = (rng.standard_normal(shape, np.float32) for shape in shapes(problem))
        a, b = (array.astype(problem.dtype.numpy) for array in drawn)
        return {"A": a, "B": b}

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
        np.matmul(*operands(arrays, problem.dtype.numpy), out=arrays["C"])

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
        hints=HINTS,
        usual_dtypes={"h200": "bfloat16"},
        dtypes=("float32", "float64", "float16", "bfloat16"),
        peers=(Peer("numpy", "cpu", numpy_matmul), Peer("cublas", "h200", cublas_matmul)),
        description=f"C = {'A.T' if transpose_a else 'A'} @ {'B.T' if transpose_b else 'B'}",
    )


def work(problem: Problem) -> float:
    """Operations: a multiplication and an addition for each of M x N x K."""
    return 2.0 * problem["M"] * problem["N"] * problem["K"]


gemm = gemm_workload("gemm", False, False)
gemm_nt = gemm_workload("gemm_nt", False, True)
gemm_tn = gemm_workload("gemm_tn", True, False)
gemm_tt = gemm_workload("gemm_tt", True, True)
