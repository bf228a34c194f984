"""Dequantising GEMM: C = A W^T with W stored as two int4 a byte, scaled per row and group.

Element 2j of a row of W is the low half of byte j, element 2j + 1 the high half; K odd leaves
the last high half unused.
"""

from typing import Any

import numpy as np

import explorer.lang as T


def dequant_gemm(
    M: int,
    N: int,
    K: int,
    group: int = 32,
    dtype: Any = "float16",
    block_M: Any = T.Param("block_M"),
    block_N: Any = T.Param("block_N"),
    block_K: Any = 32,
) -> T.TracedKernel:
    packed_k = -(-K // 2)
    groups = -(-K // group)

    @T.prim_func
    def dequant_gemm(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, packed_k), T.uint8),
        scales: T.Tensor((N, groups), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            W_shared = T.alloc_shared((block_N, block_K // 2), T.uint8)
            scales_local = T.alloc_fragment((block_N,), dtype)
            W_wide = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(W[bx * block_N, ko * (block_K // 2)], W_shared)
                T.copy(
                    scales[bx * block_N : (bx + 1) * block_N, ko * block_K // group],
                    scales_local,
                )
                for i, j in T.Parallel(block_N, block_K):
                    half = (W_shared[i, j // 2] >> (4 * (j % 2))) & 0xF
                    signed = T.if_then_else(half >= 8, half - 16, half)
                    W_wide[i, j] = signed * scales_local[i]
                T.gemm(A_shared, W_wide, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return dequant_gemm


def pack_int4(w: np.ndarray) -> np.ndarray:
    rows, columns = w.shape
    padded = np.zeros((rows, columns + columns % 2), dtype=np.int64)
    padded[:, :columns] = w
    nibbles = padded & 0xF
    return (nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).astype(np.uint8)


def dequant_gemm_reference(
    a: np.ndarray, w: np.ndarray, scales: np.ndarray, group: int = 32
) -> np.ndarray:
    k = a.shape[1]
    wide = w.astype(np.float64) * np.repeat(scales.astype(np.float64), group, axis=1)[:, :k]
    return a.astype(np.float64) @ wide.T
