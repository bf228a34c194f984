"""Kernels beyond plain GEMM through the cpu backend, against the NumPy interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import CPU
from explorer.space import build_space
from tests.kernels.attention import attention
from tests.kernels.dequant import dequant_gemm
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.grouped import grouped_gemm
from tests.kernels.rmsnorm import rmsnorm
from tests.support.cpu_candidates import draw, error, run_schedule

GEMM_TILES = {"block_M": (32, 64), "block_N": (32, 64), "block_K": (32, 64)}
KERNELS: dict[str, tuple[Kernel, dict[str, tuple[int, ...]]]] = {
    "relu": (gemm_epilogue(70, 90, 50, "relu"), GEMM_TILES),
    "gelu": (gemm_epilogue(70, 90, 50, "gelu"), GEMM_TILES),
    "rmsnorm": (rmsnorm(50, 77), {"block_M": (8, 16), "block_N": (32, 128)}),
    "attention": (attention(1, 2, 1, 40, 50, 32, True), {"block_M": (32,), "block_N": (32,)}),
    "dequant": (dequant_gemm(40, 64, 96), GEMM_TILES),
    "grouped": (grouped_gemm(100, 3, 64, 64), GEMM_TILES),
}


def _inputs(kernel: Kernel) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    arrays = {}
    for tensor in kernel.tensors[:-1]:
        shape = tuple(size.__index__() for size in tensor.shape)
        if tensor.name == "offsets":
            arrays[tensor.name] = np.array([0, 30, 30, 100], np.int32)
        elif tensor.dtype.is_float:
            arrays[tensor.name] = rng.standard_normal(shape).astype(tensor.dtype.numpy)
        else:
            arrays[tensor.name] = rng.integers(0, 255, shape).astype(tensor.dtype.numpy)
    return arrays


@pytest.mark.parametrize("name", KERNELS)
def test_it_computes_what_the_kernel_means(name: str) -> None:
    kernel, tiles = KERNELS[name]
    inputs = _inputs(kernel)
    space = build_space(kernel, CPU, tiles)
    for title, schedule in draw(space, 1, seed=1, skeletons=range(min(3, len(space.skeletons)))):
        out = run_schedule(kernel, schedule, CPU, inputs)
        expected = run(kernel.at(**schedule.params), inputs)
        for tensor, array in expected.items():
            assert error(out[tensor], array) < 1e-3, f"{title}: {tensor}\n{schedule}"
