"""C = f(A B.T): products with work fused into their epilogue, and batched ones.

A is M x K and B is N x K, as in `gemm_nt`. `gemm_bias` adds a vector to every row, `gemm_gelu` and
`gemm_silu` apply a function to that sum, `gemm_residual` adds a matrix D to it. `gemm_alpha_beta`
is alpha A B.T + beta D, `gemm_batched` a product for every index of a first dimension. In
`gemm_strided` the rows of all matrices are `gap` elements further apart than they are long, as the
leading dimensions of a BLAS say.

Peers on the h200: cuBLAS where it does the whole work, else cuBLAS and one element-wise kernel,
behind the product or, where a matrix is added, before it, since cuBLAS adds to what C holds; where
torch is installed, its calls that have the epilogue in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from gemm_h200 import PAIR, few_hints, h200_hint, h200_hints, h200_tiles, narrow_hints

import explorer.lang as T
from explorer import Arrays, Hint, Peer, Problem, Workload, standard_normal

Function = Callable[[Any], Any]
Run = Callable[[Problem, Any], None]
ALPHA, BETA = 0.75, 0.5
TILES = {
    "cpu": {
        "block_M": (32, 64, 96, 128, 192, 256),
        "block_N": (32, 64, 96, 128, 192, 256),
        "block_K": (32, 64, 128, 256),
    },
    "h200": h200_tiles,
}
TOLERANCE = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}
TOLERANCE_ON = {"h200": {"float32": 2e-3}}
ROOMY = (
    h200_hint(PAIR.format("staged"), (128, 128, 64), 4),
    h200_hint(PAIR.format("direct"), (128, 192, 64), 4),
    h200_hint(PAIR.format("staged"), (128, 192, 64), 3),
    h200_hint(PAIR.format("direct"), (128, 128, 64), 5),
)
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


def fused_hints(rings: str, problem: Problem) -> tuple[Hint, ...]:
    """Those of the plain product and, where the epilogue reads a matrix, tiles that leave room to
    a slot of it instead; two slots of a vector."""
    hints = h200_hints(problem)
    if "D_shared" in rings and not narrow_hints(problem):
        hints = (*few_hints(problem), *ROOMY)
    operands = "A_shared+B_shared"
    return tuple(
        Hint(
            hint.skeleton.replace(operands, operands + rings),
            {**hint.values, "depth_bias": 2, "depth_D": 1, "depth_bias_D": 1},
        )
        for hint in hints
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


def numpy_peer(result: Function) -> Peer:
    """The reference in the kernel's own precision: in float32, through which NumPy has BLAS."""

    def run(problem: Problem, arrays: Any) -> None:
        inputs = {n: a.astype(np.float32, copy=False) for n, a in arrays.items() if n != "C"}
        np.copyto(arrays["C"], result(inputs), casting="same_kind")

    return Peer("numpy", "cpu", run)


def cublas_peers(run: Run, beside: str = "") -> tuple[Peer, ...]:
    """A product by cuBLAS and what is `beside` it, for the types that it multiplies."""
    return (
        Peer(f"cublas{beside}", "h200", run, ("bfloat16", "float16")),
        Peer(f"cublas tf32{beside}", "h200", run, ("float32",)),
    )


def multiply(problem: Problem, arrays: Any) -> None:
    """C = A B.T."""
    arrays["A"].reduced_product(arrays["B"].T, arrays["C"])


def multiply_batch(problem: Problem, arrays: Any) -> None:
    """C[z] = A[z] B[z].T."""
    arrays["A"].reduced_product(arrays["B"].swapaxes(1, 2), arrays["C"])


def multiply_then(expression: str) -> Run:
    """C = A B.T, then an expression of x = C + bias."""

    def run(problem: Problem, arrays: Any) -> None:
        multiply(problem, arrays)
        arrays["C"].assign(expression, c=arrays["C"], bias=arrays["bias"])

    return run


def add_product(problem: Problem, arrays: Any) -> None:
    """C = bias + D, then C += A B.T."""
    arrays["C"].assign("bias + d", d=arrays["D"], bias=arrays["bias"])
    arrays["A"].reduced_product(arrays["B"].T, arrays["C"], beta=1.0)


def add_scaled_product(problem: Problem, arrays: Any) -> None:
    """C = D, then C = alpha A B.T + beta C."""
    arrays["C"].assign("d", d=arrays["D"])
    arrays["A"].reduced_product(arrays["B"].T, arrays["C"], ALPHA, BETA)


def torch_arrays(torch: Any, arrays: Any) -> tuple[Any, ...]:
    """bias, A, B.T and C as torch's tensors of 16-bit floats, without a copy."""
    bias, a, b, c = (
        torch.from_dlpack(each.bits.view(np.int16)).view(getattr(torch, each.element.name))
        for each in (arrays[name] for name in ("bias", "A", "B", "C"))
    )
    return bias, a, b.t(), c


def torch_addmm(problem: Problem, arrays: Any) -> None:
    """C = A B.T + bias, the bias in cuBLASLt's epilogue."""
    import torch  # noqa: PLC0415

    bias, a, b, c = torch_arrays(torch, arrays)
    torch.addmm(bias, a, b, out=c)


def torch_addmm_gelu(problem: Problem, arrays: Any) -> None:
    """C = gelu(A B.T + bias), both in cuBLASLt's epilogue."""
    import torch  # noqa: PLC0415

    bias, a, b, c = torch_arrays(torch, arrays)
    torch._addmm_activation(bias, a, b, use_gelu=True, out=c)


def workload(
    name: str,
    kernel: Callable[[Problem], T.TracedKernel],
    result: Callable[[dict[str, Any]], Any],
    extra: Mapping[str, tuple[str, ...]],
    rings: str,
    description: str,
    peers: tuple[Peer, ...],
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
        hints={"h200": partial(fused_hints, rings)},
        usual_dtypes={"h200": "bfloat16"},
        dtypes=tuple(TOLERANCE),
        peers=(numpy_peer(result), *peers),
        description=description,
    )


def bias_workload(
    name: str,
    here: Function,
    there: Function,
    expression: str,
    description: str,
    fused: tuple[Peer, ...] = (),
) -> Workload:
    """A product plus bias under a function.

    The function is `here` in the kernel's words, `there` in NumPy's, and for a peer a C
    `expression` of c and bias. `fused` are the peers that have it in the product's epilogue.
    """
    return workload(
        name,
        lambda problem: bias_kernel(problem, here),
        lambda arrays: there(product(arrays) + arrays["bias"]),
        {"bias": ("N",)},
        " bias_shared",
        description,
        (*fused, *cublas_peers(multiply_then(expression), " + element-wise")),
    )


def torch_peer(name: str, run: Run) -> Peer:
    return Peer(name, "h200", run, ("bfloat16", "float16"), needs="torch")


SUM = "(c + bias)"
GELU = (
    f"0.5f * {SUM} * (1.0f + tanhf({GELU_SCALE}f * "
    f"({SUM} + {GELU_CUBE}f * {SUM} * {SUM} * {SUM})))"
)
gemm_bias = bias_workload(
    "gemm_bias",
    identity,
    identity,
    SUM,
    "C = A @ B.T + bias",
    (torch_peer("torch.addmm", torch_addmm),),
)
gemm_gelu = bias_workload(
    "gemm_gelu",
    gelu,
    gelu_reference,
    GELU,
    "C = gelu(A @ B.T + bias)",
    (torch_peer("torch._addmm_activation", torch_addmm_gelu),),
)
gemm_silu = bias_workload(
    "gemm_silu",
    silu,
    silu_reference,
    f"{SUM} / (1.0f + expf(-{SUM}))",
    "C = silu(A @ B.T + bias)",
)
gemm_residual = workload(
    "gemm_residual",
    residual_kernel,
    lambda arrays: product(arrays) + arrays["bias"] + arrays["D"],
    {"bias": ("N",), "D": ("M", "N")},
    " bias_shared+D_shared",
    "C = A @ B.T + bias + D",
    cublas_peers(add_product, " + element-wise"),
)
gemm_alpha_beta = workload(
    "gemm_alpha_beta",
    alpha_beta_kernel,
    lambda arrays: ALPHA * product(arrays) + BETA * arrays["D"],
    {"D": ("M", "N")},
    " D_shared",
    f"C = {ALPHA} A @ B.T + {BETA} D",
    cublas_peers(add_scaled_product, " + copy"),
)
gemm_batched = workload(
    "gemm_batched",
    batched_kernel,
    lambda arrays: np.matmul(arrays["A"], np.swapaxes(arrays["B"], 1, 2)),
    {},
    "",
    "C[z] = A[z] @ B[z].T",
    cublas_peers(multiply_batch, " batched"),
    {"Z": 4},
)
gemm_strided = workload(
    "gemm_strided",
    strided_kernel,
    product,
    {},
    "",
    "C = A @ B.T, rows with gaps",
    cublas_peers(multiply),
    {"gap": 8},
)
