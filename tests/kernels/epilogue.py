"""GEMM with a fused epilogue: C = activation(A B + bias)."""

from collections.abc import Callable
from typing import Any

import numpy as np

import explorer.lang as T


def gemm_epilogue(
    M: int,
    N: int,
    K: int,
    activation: str = "relu",
    dtype: Any = "float16",
    block_M: Any = T.Param("block_M"),
    block_N: Any = T.Param("block_N"),
    block_K: Any = T.Param("block_K"),
) -> T.TracedKernel:
    def gelu(x: Any) -> Any:
        return x * T.sigmoid(x * 1.702)

    activations: dict[str, Callable[[Any], Any]] = {
        "none": lambda x: x,
        "relu": lambda x: T.max(x, 0.0),
        "tanh": T.tanh,
        "gelu": gelu,
    }
    apply = activations[activation]

    @T.prim_func
    def gemm_epilogue(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        bias: T.Tensor((N,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            bias_shared = T.alloc_shared((block_N,), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.copy(bias[bx * block_N], bias_shared)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = apply(C_local[i, j] + bias_shared[j])
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm_epilogue


def gemm_epilogue_reference(
    a: np.ndarray, b: np.ndarray, bias: np.ndarray, activation: str
) -> np.ndarray:
    x = a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64)
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "tanh":
        return np.tanh(x)
    if activation == "gelu":
        return x / (1 + np.exp(-1.702 * x))
    return x
