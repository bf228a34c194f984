"""C = A B.T of fp8 operands whose partial sums are promoted to float32 every so often.

The matrix unit of the h200 adds fp8 products with fewer bits than float32 has, so that the error
of a long reduction grows. Here every `promote` steps of block_K the partial sums are added to a
second accumulator in float32 and start anew: a choice between error and speed. Without promotion
it is `gemm_nt` of float8_e4m3. A cpu adds in float32 anyhow, where promotion has nothing to gain.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from gemm_h200 import PAIR, TURNS, also, h200_hint, in_pairs

import explorer.lang as T
from explorer import Arrays, Hint, Peer, Problem, Workload, standard_normal

TILES = {
    "cpu": {
        "block_M": (32, 64, 96, 128, 192, 256),
        "block_N": (32, 64, 96, 128, 192, 256),
        "block_K": (32, 64, 128, 256),
        "promote": (1, 2, 4, 8),
    },
    "h200": {
        "block_M": (64, 128, 256),
        "block_N": (64, 96, 128, 160, 192, 256),
        "block_K": (64, 128),
        "promote": (1, 2, 4, 8),
    },
}


def hint(skeleton: str, tile: tuple[int, int, int], depth: int, promote: int) -> Hint:
    """Two accumulators fill the registers, so that tiles are half as large as elsewhere."""
    return also(h200_hint(skeleton, tile, depth), promote=promote, lag_gemm_C_part=0)


HINTS = {
    "h200": (
        hint(PAIR.format("staged"), (128, 128, 128), 6, 1),
        hint(PAIR.format("direct"), (128, 128, 128), 6, 1),
        hint(PAIR.format("staged"), (128, 128, 128), 5, 4),
        hint(TURNS.format("staged"), (64, 128, 128), 6, 1),
        hint(PAIR.format("staged"), (128, 160, 128), 5, 1),
        hint(PAIR.format("staged"), (128, 192, 128), 4, 1),
        hint(PAIR.format("staged in 2"), (128, 192, 128), 5, 1),
        in_pairs(hint(PAIR.format("staged in 2"), (128, 192, 128), 5, 1)),
        hint(PAIR.format("staged"), (128, 192, 128), 4, 4),
    )
}


def trace(problem: Problem) -> T.TracedKernel:
    """The plain kernel of a problem, tile sizes and promotion interval open."""
    M, N, K = problem["M"], problem["N"], problem["K"]
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))
    promote = T.Param("promote")

    @T.prim_func
    def gemm_promoted(
        A: T.Tensor((M, K), "float8_e4m3"),
        B: T.Tensor((N, K), "float8_e4m3"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "float8_e4m3")
            B_shared = T.alloc_shared((block_N, block_K), "float8_e4m3")
            C_part = T.alloc_fragment((block_M, block_N), "float32")
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            T.clear(C_part)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_part, transpose_B=True)
                if (ko + 1) % promote == 0:
                    for i, j in T.Parallel(block_M, block_N):
                        C_local[i, j] = C_local[i, j] + C_part[i, j]
                    T.clear(C_part)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = C_local[i, j] + C_part[i, j]
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm_promoted


def inputs(problem: Problem, rng: np.random.Generator) -> Arrays:
    element = problem.dtype.numpy
    shapes = {"A": (problem["M"], problem["K"]), "B": (problem["N"], problem["K"])}
    return {name: standard_normal(rng, shape, element) for name, shape in shapes.items()}


def reference(problem: Problem, arrays: Any) -> Arrays:
    a, b = (arrays[name].astype(np.float64) for name in "AB")
    return {"C": np.matmul(a, b.T)}


def work(problem: Problem) -> float:
    """Operations: a multiplication and an addition for each of M x N x K."""
    return 2.0 * problem["M"] * problem["N"] * problem["K"]


def numpy_matmul(problem: Problem, arrays: Any) -> None:
    """A @ B.T in float32, through which NumPy has BLAS."""
    a, b = (arrays[name].astype(np.float32) for name in "AB")
    np.copyto(arrays["C"], np.matmul(a, b.T), casting="same_kind")


def scaled_matmul(problem: Problem, arrays: Any) -> None:
    """A @ B.T by cuBLASLt, its partial sums promoted too."""
    import torch  # noqa: PLC0415

    fp8 = torch.float8_e4m3fn
    a, b = (torch.from_dlpack(arrays[name].bits).view(fp8) for name in "AB")
    c = torch.from_dlpack(arrays["C"].bits.view(np.int16)).view(torch.bfloat16)
    one = _one(torch)
    torch._scaled_mm(a, b.t(), one, one, out_dtype=c.dtype, out=c, use_fast_accum=False)


@cache
def _one(torch: Any) -> Any:
    return torch.ones((), device="cuda")


gemm_promoted = Workload(
    name="gemm_promoted",
    sizes={"M": 1024, "N": 1024, "K": 1024},
    kernel=trace,
    tiles=TILES,
    inputs=inputs,
    reference=reference,
    work=work,
    tolerance={"float8_e4m3": 4e-3},
    dtypes=("float8_e4m3",),
    hints=HINTS,
    peers=(
        Peer("numpy", "cpu", numpy_matmul),
        Peer("torch._scaled_mm", "h200", scaled_matmul, needs="torch"),
    ),
    description="C = A @ B.T of fp8, partial sums promoted to float32",
)
