"""cuBLAS's products on the host's memory, as its documentation has them: columns first."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

_TYPES: dict[int, Any] = {0: np.float32, 2: np.float16, 14: ml_dtypes.bfloat16}
_TF32, _FLOAT32 = 77, 68

calls: list[str] = []


def host_cublas() -> ModuleType:
    """The module to stand in for cupy_backends.cuda.libs.cublas."""
    module = ModuleType("cublas")
    vars(module).update(gemmEx=_gemm, gemmStridedBatchedEx=_gemm_batched)
    return module


def _gemm(
    handle: Any, op_a: int, op_b: int, m: int, n: int, k: int, alpha: int,
    a: int, a_kind: int, lda: int, b: int, b_kind: int, ldb: int,
    beta: int, c: int, c_kind: int, ldc: int, compute: int, algorithm: int,
) -> None:  # fmt: skip
    calls.append("gemmEx")
    assert compute == _FLOAT32 or (compute == _TF32 and a_kind == 0)
    one, kept = (ctypes.c_float.from_address(each).value for each in (alpha, beta))
    left = _stored(a, a_kind, (k, m) if op_a else (m, k), lda)
    right = _stored(b, b_kind, (n, k) if op_b else (k, n), ldb)
    out = _stored(c, c_kind, (m, n), ldc)
    left, right = left.T if op_a else left, right.T if op_b else right
    found = one * (left.astype(np.float32) @ right.astype(np.float32))
    if kept:
        found += kept * out.astype(np.float32)
    out[...] = found.astype(out.dtype)


def _gemm_batched(
    handle: Any, op_a: int, op_b: int, m: int, n: int, k: int, alpha: int,
    a: int, a_kind: int, lda: int, a_apart: int, b: int, b_kind: int, ldb: int, b_apart: int,
    beta: int, c: int, c_kind: int, ldc: int, c_apart: int, batch: int, compute: int, algo: int,
) -> None:  # fmt: skip
    for z in range(batch):
        size = np.dtype(_TYPES[a_kind]).itemsize * z
        _gemm(
            handle, op_a, op_b, m, n, k, alpha, a + size * a_apart, a_kind, lda,
            b + size * b_apart, b_kind, ldb, beta, c + size * c_apart, c_kind, ldc, compute, algo,
        )  # fmt: skip
    calls[-batch:] = ["gemmStridedBatchedEx"]


def _stored(address: int, kind: int, shape: tuple[int, int], pitch: int) -> Any:
    """A column-major matrix at an address."""
    rows, columns = shape
    assert pitch >= rows, "a leading dimension is no shorter than a column"
    element = np.dtype(_TYPES[kind])
    size = (pitch * (columns - 1) + rows) * element.itemsize
    memory = np.frombuffer((ctypes.c_uint8 * size).from_address(address), element)
    strides = (element.itemsize, pitch * element.itemsize)
    return np.lib.stride_tricks.as_strided(memory, shape, strides)
