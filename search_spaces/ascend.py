"""Two kernels of Ascend's pipes: copy-scale-copy, and a product through L1 and L0.

Their schedules are predicted: `explorer tune ascend_scale --machine ascend950`. On that machine
`num_stages` of the tile sizes is what every loop that may overlap iterations gets; the scheduler
chooses the versions of each buffer up to that.
"""

from __future__ import annotations

import numpy as np

import explorer.lang as T
from explorer import Arrays, Problem, Workload

CORES = 32
TOLERANCE = {"float32": 1e-5, "float16": 1e-3}


def scale_kernel(problem: Problem) -> T.TracedKernel:
    """B = 2 A over tiles of whole rows; a core takes every CORES-th tile."""
    M, N, dtype = problem["M"], problem["N"], problem.dtype.name
    rows = T.Param("rows")

    @T.prim_func
    def scale(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((rows, N), dtype)
            b = T.alloc_shared((rows, N), dtype)
            for i in T.Persistent([T.ceildiv(M, rows)], CORES, core, num_stages=2):
                T.copy(A[i * rows, 0], a)
                for r, c in T.Parallel(rows, N):
                    b[r, c] = a[r, c] * 2.0
                T.copy(b, B[i * rows, 0])

    return scale


def matmul_kernel(problem: Problem) -> T.TracedKernel:
    """C = A B^T: tiles of A and B in L1, their slices in L0A and L0B, sums in L0C."""
    M, N, K, dtype = problem["M"], problem["N"], problem["K"], problem.dtype.name
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))
    columns = T.ceildiv(N, block_N)

    @T.prim_func
    def matmul(
        A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(CORES) as core:
            a = T.alloc_l1((block_M, block_K), dtype)
            b = T.alloc_l1((block_N, block_K), dtype)
            left = T.alloc_l0a((block_M, block_K), dtype)
            right = T.alloc_l0b((block_N, block_K), dtype)
            c = T.alloc_l0c((block_M, block_N), "float32")
            tiles = T.ceildiv(M, block_M) * columns
            for t in T.Persistent([tiles], CORES, core, num_stages=2):
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                    T.copy(A[t // columns * block_M, k * block_K], a)
                    T.copy(B[t % columns * block_N, k * block_K], b)
                    T.copy(a, left)
                    T.copy(b, right)
                    T.gemm(left, right, c, transpose_B=True, clear_accum=(k == 0))
                T.copy(c, C[t // columns * block_M, t % columns * block_N])

    return matmul


def scale_inputs(problem: Problem, rng: np.random.Generator) -> Arrays:
    """A of normal values."""
    drawn = rng.standard_normal((problem["M"], problem["N"]), np.float32)
    return {"A": drawn.astype(problem.dtype.numpy)}


def matmul_inputs(problem: Problem, rng: np.random.Generator) -> Arrays:
    """A and B of normal values."""
    shapes = {"A": (problem["M"], problem["K"]), "B": (problem["N"], problem["K"])}
    return {
        name: rng.standard_normal(shape, np.float32).astype(problem.dtype.numpy)
        for name, shape in shapes.items()
    }


def scaled(problem: Problem, arrays: Arrays) -> Arrays:
    """2 A."""
    return {"B": arrays["A"].astype(np.float64) * 2.0}


def product(problem: Problem, arrays: Arrays) -> Arrays:
    """A B^T."""
    return {"C": arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64).T}


ascend_scale = Workload(
    name="ascend_scale",
    sizes={"M": 4096, "N": 256},
    kernel=scale_kernel,
    tiles={"ascend950": {"rows": (8, 16, 32, 64, 128), "num_stages": (1, 2, 3, 4)}},
    inputs=scale_inputs,
    reference=scaled,
    work=lambda problem: 2.0 * problem["M"] * problem["N"] * problem.dtype.bits / 8,
    unit="B",
    tolerance=TOLERANCE,
    dtypes=("float32", "float16"),
    description="B = 2 A through the unified buffer",
)
ascend_matmul = Workload(
    name="ascend_matmul",
    sizes={"M": 1024, "N": 1024, "K": 1024},
    kernel=matmul_kernel,
    tiles={
        "ascend950": {
            "block_M": (64, 128, 256),
            "block_N": (64, 128, 256),
            "block_K": (64, 128),
            "num_stages": (1, 2, 3),
        }
    },
    inputs=matmul_inputs,
    reference=product,
    work=lambda problem: 2.0 * problem["M"] * problem["N"] * problem["K"],
    tolerance=TOLERANCE,
    dtypes=("float16", "float32"),
    description="C = A B^T through L1 and L0",
)
