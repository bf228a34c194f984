"""GEMM: C = op(A) op(B), four operand layouts, with or without bias and activation."""

from typing import Any

import numpy as np

import explorer.lang as T


def gemm(
    M: int,
    N: int,
    K: int,
    dtype: Any = "float32",
    accum_dtype: Any = "float32",
    transpose_a: bool = False,
    transpose_b: bool = False,
    block_M: Any = T.Param("block_M"),
    block_N: Any = T.Param("block_N"),
    block_K: Any = T.Param("block_K"),
) -> T.TracedKernel:
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


def gemm_reference(
    a: np.ndarray, b: np.ndarray, transpose_a: bool = False, transpose_b: bool = False
) -> np.ndarray:
    left, right = a.astype(np.float64), b.astype(np.float64)
    return (left.T if transpose_a else left) @ (right.T if transpose_b else right)
