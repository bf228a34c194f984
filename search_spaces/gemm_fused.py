"""C = f(A B.T): products with work fused into their epilogue, and batched ones.

A is M x K and B is N x K, as in `gemm_nt`. `gemm_bias` adds a vector to every row, `gemm_gelu` and
`gemm_silu` apply a function to that sum, `gemm_residual` adds a matrix D to it. `gemm_alpha_beta`
is alpha A B.T + beta D, `gemm_batched` a product for every index of a first dimension. In
`gemm_strided` the rows of all matrices are `gap` elements further apart than they are long, as the
leading dimensions of a BLAS say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

import explorer.lang as T
from explorer import Arrays, Hint, Problem, Workload, standard_normal

Function = Callable[[Any], Any]
ALPHA, BETA = 0.75, 0.5
TILES = {
    "cpu": {
        "block_M": (32, 64, 96, 128, 192, 256),
        "block_N": (32, 64, 96, 128, 192, 256),
        "block_K": (32, 64, 128, 256),
    },
    "h200": {
        "block_M": (64, 128, 192, 256),
        "block_N": (64, 96, 128, 160, 192, 224, 256),
        "block_K": (32, 64, 128),
    },
}
TOLERANCE = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}
TOLERANCE_ON = {"h200": {"float32": 2e-3}}
PAIR = "roles producer+consumer_0+consumer_1; rings A_shared+B_shared{}; {} epilogue"
GELU_SCALE, GELU_CUBE = 0.7978845608028654, 0.044715


def identity(x: Any) -> Any:
    return x


def gelu(x: Any) -> Any:
    """x times the normal distribution function, in its tanh form."""
    return 0.5 * x * (1.0 + T.tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x)))


def gelu_reference(x: Any) -> Any:
    return 0.5 * x * (1.0 + np.tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x)))


def silu(x: Any) -> Any:
    """x times its logistic function."""
    return x * T.sigmoid(x)


def silu_reference(x: Any) -> Any:
    return x / (1.0 + np.exp(-x))


def h200_hint(rings: str, epilogue: str, tile: tuple[int, int, int], depth: int) -> Hint:
    """Two consumers; what the epilogue reads has two slots, or one where it is a matrix."""
    block_M, block_N, block_K = tile
    values = {"block_M": block_M, "block_N": block_N, "block_K": block_K, "depth_A_B": depth}
    launch = {"blocks": 132, "raster": 2, "group": 8, "warps_producer": 1, "warps_consumer": 4}
    registers = {"nreg_producer": 40, "nreg_consumer": 232, "lag_gemm_C_local": 1}
    beside = {"depth_bias": 2, "depth_D": 1, "depth_bias_D": 1}
    skeleton = PAIR.format(rings, epilogue)
    return Hint(skeleton, values | launch | registers | beside)


def h200_hints(rings: str) -> tuple[Hint, ...]:
    """Tiles that leave registers to an epilogue."""
    return (
        h200_hint(rings, "staged", (128, 128, 64), 4),
        h200_hint(rings, "direct", (128, 192, 64), 4),
        h200_hint(rings, "staged", (128, 192, 64), 3),
        h200_hint(rings, "staged", (128, 256, 64), 3),
        h200_hint(rings, "direct", (128, 128, 64), 5),
    )


def bias_kernel(problem: Problem, apply: Function) -> T.TracedKernel:
    """C = apply(A B.T + bias)."""
    M, N, K = problem["M"], problem["N"], problem["K"]
    dtype = problem.dtype.name
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))

    @T.prim_func
    def gemm_bias(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        bias: T.Tensor((N,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            bias_shared = T.alloc_shared((block_N,), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(bias[bx * block_N], bias_shared)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = apply(C_local[i, j] + bias_shared[j])
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm_bias


def residual_kernel(problem: Problem) -> T.TracedKernel:
    """C = A B.T + bias + D."""
    M, N, K = problem["M"], problem["N"], problem["K"]
    dtype = problem.dtype.name
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))

    @T.prim_func
    def gemm_residual(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        bias: T.Tensor((N,), dtype),
        D: T.Tensor((M, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            bias_shared = T.alloc_shared((block_N,), dtype)
            D_shared = T.alloc_shared((block_M, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(bias[bx * block_N], bias_shared)
            T.copy(D[by * block_M, bx * block_N], D_shared)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = C_local[i, j] + bias_shared[j] + D_shared[i, j]
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm_residual


def alpha_beta_kernel(problem: Problem) -> T.TracedKernel:
    """C = alpha A B.T + beta D."""
    M, N, K = problem["M"], problem["N"], problem["K"]
    dtype = problem.dtype.name
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))

    @T.prim_func
    def gemm_alpha_beta(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        D: T.Tensor((M, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            D_shared = T.alloc_shared((block_M, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(D[by * block_M, bx * block_N], D_shared)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = ALPHA * C_local[i, j] + BETA * D_shared[i, j]
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm_alpha_beta


def batched_kernel(problem: Problem) -> T.TracedKernel:
    """C[z] = A[z] B[z].T."""
    Z, M, N, K = (problem[name] for name in "ZMNK")
    dtype = problem.dtype.name
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))

    @T.prim_func
    def gemm_batched(
        A: T.Tensor((Z, M, K), dtype),
        B: T.Tensor((Z, N, K), dtype),
        C: T.Tensor((Z, M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), Z, threads=128) as (
            bx,
            by,
            bz,
        ):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[bz, by * block_M, ko * block_K], A_shared)
                T.copy(B[bz, bx * block_N, ko * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[bz, by * block_M, bx * block_N])

    return gemm_batched


def strided_kernel(problem: Problem) -> T.TracedKernel:
    """C = A B.T of matrices with gaps between their rows."""
    M, N, K, gap = (problem[name] for name in ("M", "N", "K", "gap"))
    dtype = problem.dtype.name
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))

    @T.prim_func
    def gemm_strided(
        A: T.StridedTensor((M, K), (K + gap, 1), dtype),
        B: T.StridedTensor((N, K), (K + gap, 1), dtype),
        C: T.StridedTensor((M, N), (N + gap, 1), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm_strided


def wide(arrays: Any) -> dict[str, Any]:
    """The arrays in float64."""
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def product(arrays: Mapping[str, Any]) -> Any:
    return np.matmul(arrays["A"], arrays["B"].T)


def workload(
    name: str,
    kernel: Callable[[Problem], T.TracedKernel],
    result: Callable[[dict[str, Any]], Any],
    extra: Mapping[str, tuple[str, ...]],
    rings: str,
    description: str,
    beside: Mapping[str, int] = MappingProxyType({}),
) -> Workload:
    """A product with an epilogue.

    `extra` gives the sizes by name of its further inputs, `rings` how the pipelines that bring
    them are called in a skeleton's title, `beside` the sizes besides M, N and K: Z is that of a
    first dimension.
    """
    batch = ("Z",) if "Z" in beside else ()
    operands = {"A": (*batch, "M", "K"), "B": (*batch, "N", "K")} | dict(extra)

    def inputs(problem: Problem, rng: np.random.Generator) -> Arrays:
        element = problem.dtype.numpy
        return {
            tensor: standard_normal(rng, tuple(problem[size] for size in sizes), element)
            for tensor, sizes in operands.items()
        }

    def reference(problem: Problem, arrays: Any) -> Arrays:
        return {"C": result(wide(arrays))}

    def work(problem: Problem) -> float:
        count = 2.0 * problem["M"] * problem["N"] * problem["K"]
        return count * (problem["Z"] if batch else 1)

    return Workload(
        name=name,
        sizes={"M": 1024, "N": 1024, "K": 1024, **beside},
        kernel=kernel,
        tiles=TILES,
        inputs=inputs,
        reference=reference,
        work=work,
        tolerance=TOLERANCE,
        tolerance_on=TOLERANCE_ON,
        hints={"h200": h200_hints(rings)},
        usual_dtypes={"h200": "bfloat16"},
        dtypes=tuple(TOLERANCE),
        description=description,
    )


def bias_workload(name: str, here: Function, there: Function, description: str) -> Workload:
    """A product plus bias under a function: `here` in the kernel's words, `there` in NumPy's."""
    return workload(
        name,
        lambda problem: bias_kernel(problem, here),
        lambda arrays: there(product(arrays) + arrays["bias"]),
        {"bias": ("N",)},
        " bias_shared",
        description,
    )


gemm_bias = bias_workload("gemm_bias", identity, identity, "C = A @ B.T + bias")
gemm_gelu = bias_workload("gemm_gelu", gelu, gelu_reference, "C = gelu(A @ B.T + bias)")
gemm_silu = bias_workload("gemm_silu", silu, silu_reference, "C = silu(A @ B.T + bias)")
gemm_residual = workload(
    "gemm_residual",
    residual_kernel,
    lambda arrays: product(arrays) + arrays["bias"] + arrays["D"],
    {"bias": ("N",), "D": ("M", "N")},
    " bias_shared+D_shared",
    "C = A @ B.T + bias + D",
)
gemm_alpha_beta = workload(
    "gemm_alpha_beta",
    alpha_beta_kernel,
    lambda arrays: ALPHA * product(arrays) + BETA * arrays["D"],
    {"D": ("M", "N")},
    " D_shared",
    f"C = {ALPHA} A @ B.T + {BETA} D",
)
gemm_batched = workload(
    "gemm_batched",
    batched_kernel,
    lambda arrays: np.matmul(arrays["A"], np.swapaxes(arrays["B"], 1, 2)),
    {},
    "",
    "C[z] = A[z] @ B[z].T",
    {"Z": 4},
)
gemm_strided = workload(
    "gemm_strided",
    strided_kernel,
    product,
    {},
    "",
    "C = A @ B.T, rows with gaps",
    {"gap": 8},
)
