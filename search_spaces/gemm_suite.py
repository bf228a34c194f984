"""The shapes on which matrix products are compared with the vendor's library.

Layouts are named after what their operands look like in memory, row by row: `gemm` reads A[M, K]
and B[K, N], what `A @ B` is in NumPy; `gemm_nt` reads A[M, K] and B[N, K], what `A @ B.T` is. A
BLAS, which counts columns first, calls them otherwise: the product of two operands whose rows
follow K (`gemm_nt`) is its TN, that of `gemm` its NN, that of `gemm_tn` its NT. `gemm_promoted` is
`gemm_nt` of fp8 whose partial sums are promoted to float32 on the way.
"""

from __future__ import annotations

from explorer import Case, Suite

LAYOUTS = {
    "gemm_nt": "A[M,K] B[N,K] (BLAS TN)",
    "gemm": "A[M,K] B[K,N] (BLAS NN)",
    "gemm_tn": "A[K,M] B[K,N] (BLAS NT)",
    "gemm_tt": "A[K,M] B[N,K] (BLAS TT)",
    "gemm_promoted": "A[M,K] B[N,K] promoted",
}
CUBES = (8192, 4096)
SHAPES = (
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 2048, 2048),
    (16384, 16384, 4096),
    (4096, 14336, 4096),
    (4096, 4096, 14336),
    (8192, 28672, 8192),
    (128, 7168, 4096),
    (64, 7168, 18432),
    (1024, 1024, 16384),
    (4000, 4000, 4000),
    (4096, 4096, 512),
)
FP8_LAYOUTS = ("gemm_nt", "gemm_promoted")
FP8_SHAPES = ((8192, 8192, 8192), (4096, 7168, 2112))

suite = Suite(
    name="gemm",
    machine="h200",
    size_names=("M", "N", "K"),
    layouts=LAYOUTS,
    dtypes=("bfloat16", "float16", "float8_e4m3", "float32"),
    cases=(
        *(Case("gemm_nt", shape, "bfloat16") for shape in SHAPES),
        *(Case(name, (n, n, n), "bfloat16") for name in ("gemm", "gemm_tn") for n in CUBES),
        Case("gemm_nt", (8192, 8192, 8192), "float16"),
        *(Case(name, shape, "float8_e4m3") for name in FP8_LAYOUTS for shape in FP8_SHAPES),
    ),
)
