"""A GEMM whose buffers lie in a pool: room for a ring each, and staging over the first ring."""

from __future__ import annotations

from typing import Any

import explorer.lang as T
from explorer.ir.nodes import Kernel

TILE = 64
TILE_BYTES = TILE * TILE * 2


def pooled_gemm(
    slots: int = 2, staging: int = 0, mode: Any = "auto", plain: bool = False, size: int = 256
) -> Kernel:
    """C = A B; rings of `slots` tiles follow each other, the staging tile is at byte `staging`."""
    F16 = T.float16

    @T.prim_func
    def gemm(
        A: T.Tensor((size, size), F16),
        B: T.Tensor((size, size), F16),
        C: T.Tensor((size, size), F16),
    ):
        with T.Kernel(size // TILE, size // TILE, threads=128) as (bx, by):
            pool = T.SMEMPool()
            A_shared = pool.alloc_mma((TILE, TILE), F16, swizzle_mode=mode)
            pool.move_base_to(slots * TILE_BYTES)
            B_shared = pool.alloc_mma((TILE, TILE), F16, swizzle_mode=mode)
            pool.move_base_to(staging)
            if plain:
                C_shared = pool.alloc((TILE, TILE), F16, align=128)
            else:
                C_shared = pool.alloc_mma((TILE, TILE), F16)
            pool.move_base_to(2 * slots * TILE_BYTES)
            pool.commit()
            C_local = T.alloc_fragment((TILE, TILE), T.float32)
            T.clear(C_local)
            for k in T.Pipelined(size // TILE, num_stages=2):
                T.copy(A[by * TILE, k * TILE], A_shared)
                T.copy(B[k * TILE, bx * TILE], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * TILE, bx * TILE])

    return gemm
