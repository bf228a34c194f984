"""Attention forward with running maximum and sum, causal or not, grouped heads.

Layout (batch, sequence, heads, dim). With fewer keys than queries or the reverse, the causal
mask is aligned at the end of both, so that the last query sees every key.
"""

import math
from typing import Any

import numpy as np

import explorer.lang as T


def attention(
    batch: int,
    heads: int,
    kv_heads: int,
    q_len: int,
    kv_len: int,
    dim: int,
    causal: bool = False,
    dtype: Any = "float16",
    block_M: Any = T.Param("block_M"),
    block_N: Any = T.Param("block_N"),
) -> T.TracedKernel:
    scale = math.log2(math.e) / math.sqrt(dim)
    groups = heads // kv_heads
    past = kv_len - q_len

    @T.prim_func
    def attention(
        Q: T.Tensor((batch, q_len, heads, dim), dtype),
        K: T.Tensor((batch, kv_len, kv_heads, dim), dtype),
        V: T.Tensor((batch, kv_len, kv_heads, dim), dtype),
        O: T.Tensor((batch, q_len, heads, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(q_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            S = T.alloc_fragment((block_M, block_N), T.float32)
            P = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, dim), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            row_max_prev = T.alloc_fragment((block_M,), T.float32)
            rescale = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)
            block_sum = T.alloc_fragment((block_M,), T.float32)

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity(T.float32))
            visible = T.min(kv_len, (bx + 1) * block_M + past) if causal else kv_len
            for k in T.Pipelined(T.ceildiv(T.max(visible, 0), block_N), num_stages=2):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // groups, :], K_shared)
                T.gemm(Q_shared, K_shared, S, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    in_range = k * block_N + j < kv_len
                    if causal:
                        in_range = in_range and k * block_N + j <= bx * block_M + i + past
                    S[i, j] = T.if_then_else(in_range, S[i, j], -T.infinity(T.float32))
                T.copy(row_max, row_max_prev)
                T.reduce_max(S, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.if_then_else(
                        row_max[i] == -T.infinity(T.float32),
                        1.0,
                        T.exp2((row_max_prev[i] - row_max[i]) * scale),
                    )
                for i, j in T.Parallel(block_M, block_N):
                    S[i, j] = T.if_then_else(
                        row_max[i] == -T.infinity(T.float32),
                        0.0,
                        T.exp2((S[i, j] - row_max[i]) * scale),
                    )
                T.reduce_sum(S, block_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * rescale[i] + block_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    acc[i, j] *= rescale[i]
                T.copy(S, P)
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // groups, :], V_shared)
                T.gemm(P, V_shared, acc)
            for i, j in T.Parallel(block_M, dim):
                acc[i, j] = T.if_then_else(row_sum[i] > 0, acc[i, j] / row_sum[i], 0.0)
            T.copy(acc, O[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return attention


def attention_reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False
) -> np.ndarray:
    heads, dim = q.shape[2:]
    groups = heads // k.shape[2]
    q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
    k64, v64 = (np.repeat(x, groups, axis=2) for x in (k64, v64))
    scores = np.einsum("bqhd,bkhd->bhqk", q64, k64) / math.sqrt(dim)
    if causal:
        q_len, kv_len = scores.shape[2:]
        rows, columns = np.arange(q_len)[:, None], np.arange(kv_len)[None, :]
        scores = np.where(columns <= rows + kv_len - q_len, scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("bhqk,bkhd->bqhd", weights, v64)
