"""Kernels of a fixed number of iterations, 0 included: a copy through a ring, and a GEMM."""

from __future__ import annotations

import explorer.lang as T
from explorer.ir.nodes import Kernel


def copy_pipeline(
    trips: int, dtype: str = "float32", blocks: int = 2, rows: int = 64, columns: int = 64
) -> Kernel:
    """z = x, `trips` tiles a block: global memory, a shared buffer, global memory."""
    tiles = blocks * max(trips, 1)

    @T.prim_func
    def trips_copy(
        x: T.Tensor((tiles * rows, columns), dtype),
        z: T.Tensor((tiles * rows, columns), dtype),
    ):
        with T.Kernel(blocks, threads=256) as bx:
            S = T.alloc_shared((rows, columns), dtype)
            for k in T.Pipelined(trips, num_stages=8, annotations={T.WSID: "k"}):
                T.copy(x[(bx * trips + k) * rows, 0], S, annotations={T.WSID: "load"})
                T.copy(S, z[(bx * trips + k) * rows, 0], annotations={T.WSID: "store"})

    return trips_copy


def fragment_pipeline(
    trips: int, dtype: str = "float32", blocks: int = 2, rows: int = 64, columns: int = 64
) -> Kernel:
    """z = 2 x, `trips` tiles a block: global memory, a shared buffer, registers, global memory."""
    tiles = blocks * max(trips, 1)

    @T.prim_func
    def trips_double(
        x: T.Tensor((tiles * rows, columns), dtype),
        z: T.Tensor((tiles * rows, columns), dtype),
    ):
        with T.Kernel(blocks, threads=256) as bx:
            S = T.alloc_shared((rows, columns), dtype)
            F = T.alloc_fragment((rows, columns), dtype)
            for k in T.Pipelined(trips, num_stages=8, annotations={T.WSID: "k"}):
                T.copy(x[(bx * trips + k) * rows, 0], S, annotations={T.WSID: "load"})
                for i, j in T.Parallel(rows, columns, annotations={T.WSID: "take"}):
                    F[i, j] = S[i, j] * 2
                T.copy(F, z[(bx * trips + k) * rows, 0], annotations={T.WSID: "store"})

    return trips_double


def gemm_trips(
    trips: int, dtype: str = "bfloat16", tiles: int = 2, rows: int = 128, step: int = 64
) -> Kernel:
    """C = A B with a reduction of `trips` steps; without any, C = 0."""
    depth = step * max(trips, 1)

    @T.prim_func
    def trips_gemm(
        A: T.Tensor((tiles * rows, depth), dtype),
        B: T.Tensor((depth, 64), dtype),
        C: T.Tensor((tiles * rows, 64), T.float32),
    ):
        with T.Kernel(tiles, threads=256) as bx:
            A_shared = T.alloc_shared((rows, step), dtype)
            B_shared = T.alloc_shared((step, 64), dtype)
            acc = T.alloc_fragment((rows, 64), T.float32)
            T.clear(acc, annotations={T.WSID: "clear"})
            for k in T.Pipelined(trips, num_stages=8, annotations={T.WSID: "k"}):
                T.copy(A[bx * rows, k * step], A_shared, annotations={T.WSID: "copy_A"})
                T.copy(B[k * step, 0], B_shared, annotations={T.WSID: "copy_B"})
                T.gemm(A_shared, B_shared, acc, annotations={T.WSID: "mma"})
            T.copy(acc, C[bx * rows, 0], annotations={T.WSID: "store"})

    return trips_gemm
