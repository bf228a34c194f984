"""Gemms computed transposed: the rewritten kernel means what the kernel means."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import explorer.lang as T
from explorer.errors import ScheduleError
from explorer.expr import Param
from explorer.ir.access import access
from explorer.ir.interpreter import run
from explorer.ir.nodes import Copy, Gemm, Kernel, Map, ops
from explorer.ir.swapped import swap_operands
from explorer.ir.transforms import stage_store
from explorer.runtime import load_workload
from tests.kernels.attention import attention
from tests.kernels.dequant import dequant_gemm
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.gemm import gemm

SIZES = st.tuples(*[st.integers(1, 40)] * 3)
TILES = st.tuples(*[st.integers(1, 24)] * 3)


def tiled(kernel: Kernel, tiles: tuple[int, int, int]) -> Kernel:
    return kernel.at(**dict(zip(("block_M", "block_N", "block_K"), tiles, strict=True)))


def gemms_of(kernel: Kernel) -> tuple[str, ...]:
    return tuple(op.id for op in ops(kernel.body) if isinstance(op, Gemm))


def same_results(kernel: Kernel, swapped: Kernel, inputs: dict[str, np.ndarray]) -> None:
    """Both orders of adding products give the same but for rounding."""
    expected = run(kernel, inputs)
    for name, found in run(swapped, inputs).items():
        wanted = expected[name].astype(np.float64)
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-3, atol=2e-3)


@settings(max_examples=25, deadline=None)
@given(SIZES, TILES, st.booleans(), st.booleans(), st.booleans(), st.sampled_from((32, 16)))
def test_it_is_the_same_product(
    sizes: tuple[int, int, int],
    tiles: tuple[int, int, int],
    transpose_a: bool,
    transpose_b: bool,
    staged: bool,
    bits: int,
) -> None:
    m, n, k = sizes
    kernel = gemm(m, n, k, f"float{bits}", transpose_a=transpose_a, transpose_b=transpose_b)
    if staged:
        kernel = stage_store(kernel, "copy_C", "C_staging")
    swapped = swap_operands(kernel, ("gemm_C_local",))
    rng = np.random.default_rng(sum(sizes))
    inputs = {
        "A": rng.standard_normal((k, m) if transpose_a else (m, k)).astype(f"float{bits}"),
        "B": rng.standard_normal((n, k) if transpose_b else (k, n)).astype(f"float{bits}"),
    }
    same_results(tiled(kernel, tiles), tiled(swapped, tiles), inputs)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(
        [
            "gemm_bias",
            "gemm_gelu",
            "gemm_residual",
            "gemm_alpha_beta",
            "gemm_batched",
            "gemm_strided",
            "gemm_promoted",
        ]
    ),
    SIZES,
    TILES,
    st.booleans(),
)
def test_epilogues_batches_and_pitches_stay_what_they_are(
    name: str, sizes: tuple[int, int, int], tiles: tuple[int, int, int], staged: bool
) -> None:
    workload = load_workload(name)
    problem = workload.problem(dict(zip("MNK", sizes, strict=True)))
    kernel = workload.trace(problem)
    if staged:
        kernel = stage_store(kernel, "copy_C", "C_staging")
    swapped = swap_operands(kernel, gemms_of(kernel))
    if "promote" in kernel.params:
        kernel, swapped = kernel.at(promote=2), swapped.at(promote=2)
    inputs = workload.draw(problem, np.random.default_rng(1))
    same_results(tiled(kernel, tiles), tiled(swapped, tiles), inputs)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
def test_operands_change_places_and_stay_in_memory_as_they_are(
    transpose_a: bool, transpose_b: bool
) -> None:
    kernel = gemm(16, 256, 64, "bfloat16", transpose_a=transpose_a, transpose_b=transpose_b)
    before = kernel.statement("gemm_C_local")
    swapped = swap_operands(kernel, ("gemm_C_local",))
    after = swapped.statement("gemm_C_local")
    assert isinstance(before, Gemm)
    assert isinstance(after, Gemm)
    assert (after.a, after.b) == (before.b, before.a)
    assert (after.transpose_a, after.transpose_b) == (not transpose_b, not transpose_a)
    assert swapped.buffer("C_local").shape == (Param("block_N"), Param("block_M"))
    assert swapped.buffer("A_shared") == kernel.buffer("A_shared")
    assert [s.id for s in ops(swapped.body)] == [s.id for s in ops(kernel.body)]
    store = swapped.statement("copy_C")
    assert isinstance(store, Map)
    assert [size for _, size in store.axes] == [Param("block_N"), Param("block_M")]
    (written,) = access(tiled(swapped, (16, 64, 32)).statement("copy_C")).writes
    (plain,) = access(tiled(kernel, (16, 64, 32)).statement("copy_C")).writes
    assert (written.start, written.extent) == (plain.start, plain.extent)


def test_the_staging_buffer_is_as_the_tensor() -> None:
    staged = stage_store(gemm(16, 256, 64), "copy_C", "C_staging")
    swapped = swap_operands(staged, ("gemm_C_local",))
    assert swapped.buffer("C_staging") == staged.buffer("C_staging")
    assert isinstance(swapped.statement("copy_C_stage"), Map)
    assert swapped.statement("copy_C") == staged.statement("copy_C")


def test_rows_of_the_turned_fragment_come_first_in_element_wise_bodies() -> None:
    kernel = gemm_epilogue(16, 64, 32)
    swapped = swap_operands(kernel, ("gemm_C_local",))
    bodies = [op for op in ops(swapped.body) if isinstance(op, Map)]
    assert [[str(size) for _, size in op.axes] for op in bodies] == [["block_N", "block_M"]] * 2


def test_no_gemm_is_no_change() -> None:
    kernel = gemm(16, 16, 16)
    assert swap_operands(kernel, ()) is kernel


def cast_kernel() -> Kernel:
    """A second fragment, written by a copy and element-wise, and loaded from global memory."""

    @T.prim_func
    def kernel(A: T.Tensor((20, 12), "float32"), C: T.Tensor((20, 20), "float16")):
        with T.Kernel(1, threads=128) as _:
            A_shared = T.alloc_shared((20, 12), "float32")
            C_local = T.alloc_fragment((20, 20), "float32")
            C_half = T.alloc_fragment((20, 20), "float16")
            T.copy(A[0, 0], A_shared)
            T.copy(C[0, 0], C_half)
            T.copy(C_half, C_local)
            T.gemm(A_shared, A_shared, C_local, transpose_B=True)
            T.gemm(A_shared, A_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(20, 20):
                C_half[i, j] = C_local[i, j] * (i + 1)
            T.copy(C_half, C[0, 0])

    return kernel


def test_fragments_that_meet_it_are_turned_with_it() -> None:
    kernel = cast_kernel()
    swapped = swap_operands(kernel, gemms_of(kernel))
    between = swapped.statement("copy_C_local")
    assert isinstance(between, Copy)
    rng = np.random.default_rng(0)
    inputs = {
        "A": rng.standard_normal((20, 12)).astype(np.float32),
        "C": rng.standard_normal((20, 20)).astype(np.float16),
    }
    same_results(kernel, swapped, inputs)


def reducing() -> Kernel:
    @T.prim_func
    def kernel(A: T.Tensor((16, 16), "float32"), C: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128) as _:
            A_shared = T.alloc_shared((16, 16), "float32")
            C_local = T.alloc_fragment((16, 16), "float32")
            most = T.alloc_fragment((16,), "float32")
            T.copy(A[0, 0], A_shared)
            T.clear(C_local)
            T.gemm(A_shared, A_shared, C_local)
            T.reduce_max(C_local, most, dim=1)
            T.copy(most, C[0])

    return kernel


def scaling() -> Kernel:
    @T.prim_func
    def kernel(A: T.Tensor((16, 16), "float32"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=128) as _:
            A_shared = T.alloc_shared((16, 16), "float32")
            C_local = T.alloc_fragment((16, 16), "float32")
            scale = T.alloc_fragment((16,), "float32")
            T.copy(A[0, 0], A_shared)
            T.fill(scale, 2.0)
            T.clear(C_local)
            T.gemm(A_shared, A_shared, C_local)
            for i, j in T.Parallel(16, 16):
                C_local[i, j] = C_local[i, j] * scale[i]
            T.copy(C_local, C[0, 0])

    return kernel


@pytest.mark.parametrize(
    ("kernel", "gemms", "reason"),
    [
        (gemm(8, 8, 8), ("gemm",), "swapped 'gemm': kernel 'gemm' has no such gemm"),
        (gemm(8, 8, 8), ("copy_C",), "swapped 'copy_C': kernel 'gemm' has no such gemm"),
        (
            cast_kernel(),
            ("gemm_C_local",),
            "gemm 'gemm_C_local_2', which is not swapped, uses 'C_local'",
        ),
        (
            stage_store(gemm(8, 8, 8), "copy_C", "C_staging", 2),
            ("gemm_C_local",),
            "'copy_C_stage' copies part of 'C_local'",
        ),
        (reducing(), ("gemm_C_local",), "'reduce_most' reduces 'C_local', which is held with it"),
        (scaling(), ("gemm_C_local",), "'scale', which is held with it, is no matrix"),
    ],
)
def test_what_is_in_the_way_is_named(kernel: Kernel, gemms: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        swap_operands(kernel, gemms)


def test_attention_keeps_its_orientation() -> None:
    """Its probabilities are the second gemm's operand, and its maxima are taken along rows."""
    kernel = attention(1, 2, 2, 32, 64, 32)
    for gemms in (gemms_of(kernel), gemms_of(kernel)[:1], gemms_of(kernel)[1:]):
        with pytest.raises(ScheduleError, match=r"reduces|is no matrix|change places|not swapped"):
            swap_operands(kernel, gemms)


def test_operands_in_registers_cannot_change_places() -> None:
    kernel = dequant_gemm(16, 64, 64)
    (gemm_id,) = gemms_of(kernel)
    swap_operands(kernel, (gemm_id,))
    private = {b.name: evolve(b, scope=kernel.buffer("C_local").scope) for b in kernel.buffers}
    name = kernel.statement(gemm_id).a.buffer.name

    def moved(op: Gemm) -> Gemm:
        return evolve(op, a=evolve(op.a, buffer=private[name]))

    loop = next(s for s in kernel.body if gemm_id in {op.id for op in ops((s,))})
    body = tuple(moved(op) if isinstance(op, Gemm) else op for op in loop.body)
    changed = evolve(
        kernel,
        body=tuple(evolve(s, body=body) if s is loop else s for s in kernel.body),
    )
    with pytest.raises(ScheduleError, match=f"operand '{name}' is fragment; only shared"):
        swap_operands(changed, (gemm_id,))
