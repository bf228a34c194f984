"""Grouped GEMM: rows offsets[g] to offsets[g + 1] of A are multiplied with B[g].

The offsets are data, so the number of row tiles of a group is known only when the kernel runs.
"""

from itertools import pairwise
from typing import Any

import numpy as np

import explorer.lang as T


def grouped_gemm(
    rows: int,
    groups: int,
    N: int,
    K: int,
    dtype: Any = "float16",
    block_M: Any = T.Param("block_M"),
    block_N: Any = T.Param("block_N"),
    block_K: Any = T.Param("block_K"),
) -> T.TracedKernel:
    @T.prim_func
    def grouped_gemm(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, K, N), dtype),
        offsets: T.Tensor((groups + 1,), T.int32),
        C: T.Tensor((rows, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), groups, threads=128) as (bx, g):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            first = offsets[g]
            last = offsets[g + 1]
            for m in T.serial(T.ceildiv(last - first, block_M)):
                T.clear(C_local)
                for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                    T.copy(A[first + m * block_M, ko * block_K], A_shared)
                    T.copy(B[g, ko * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                for i, j in T.Parallel(block_M, block_N):
                    row = first + m * block_M + i
                    if row < last:
                        C[row, bx * block_N + j] = C_local[i, j]

    return grouped_gemm


def grouped_gemm_reference(a: np.ndarray, b: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    parts = [
        a[lo:hi].astype(np.float64) @ b[g].astype(np.float64)
        for g, (lo, hi) in enumerate(pairwise(offsets))
    ]
    return np.concatenate(parts, axis=0)
