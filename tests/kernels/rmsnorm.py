"""RMSNorm of rows, in one pass over tiles for the sum and a second one for the result."""

from typing import Any

import numpy as np

import explorer.lang as T


def rmsnorm(
    M: int,
    N: int,
    dtype: Any = "float16",
    epsilon: float = 1e-5,
    block_M: Any = T.Param("block_M"),
    block_N: Any = T.Param("block_N"),
) -> T.TracedKernel:
    @T.prim_func
    def rmsnorm(
        X: T.Tensor((M, N), dtype),
        weight: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            X_shared = T.alloc_shared((block_M, block_N), dtype)
            weight_shared = T.alloc_shared((block_N,), dtype)
            squares = T.alloc_fragment((block_M, block_N), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)
            normed = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bx * block_M, k * block_N], X_shared)
                for i, j in T.Parallel(block_M, block_N):
                    x = X_shared[i, j].astype(T.float32)
                    squares[i, j] = x * x
                T.reduce_sum(squares, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(total[i] / N + epsilon)
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bx * block_M, k * block_N], X_shared)
                T.copy(weight[k * block_N], weight_shared)
                for i, j in T.Parallel(block_M, block_N):
                    normed[i, j] = X_shared[i, j] * scale[i] * weight_shared[j]
                T.copy(normed, Y[bx * block_M, k * block_N])

    return rmsnorm


def rmsnorm_reference(x: np.ndarray, weight: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    x64 = x.astype(np.float64)
    mean = np.mean(x64 * x64, axis=1, keepdims=True)
    return x64 / np.sqrt(mean + epsilon) * weight.astype(np.float64)
