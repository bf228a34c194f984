"""cuBLAS through CuPy: the matrix product that candidates are compared with.

cuBLAS is column-major: C = A B of row-major matrices is C^T = B^T A^T there, so that operands
change places and a row-major matrix counts as transposed once less.

Invariant: accumulation is in float32 and the algorithm is cuBLAS's own choice.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from explorer.errors import InputError
from explorer.ir.dtypes import DType

# cudaDataType of library_types.h; CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 and the default
# algorithm of cublas_api.h.
_DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
_COMPUTE_FLOAT32, _COMPUTE_TF32 = 68, 77
_ALGORITHM_DEFAULT = -1
_PLAIN, _TRANSPOSED = 0, 1


class Matrix(Protocol):
    """A row-major matrix on the device, or the transpose of one."""

    @property
    def element(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def bits(self) -> Any: ...


def matmul(left: Matrix, right: Matrix, out: Matrix, reduced: bool = False) -> None:
    """out <- left right, both operands possibly transposed views, out row-major.

    `reduced` lets float32 operands be read as tf32.
    """
    from cupy.cuda import device  # noqa: PLC0415
    from cupy_backends.cuda.libs import cublas  # noqa: PLC0415

    name = left.element.name
    kind = _DATA_TYPES.get(name)
    if kind is None or out.transposed:
        raise InputError(f"cublas: no product of {name} arrays into {out.element}")
    rows, depth = left.shape
    columns = right.shape[1]
    one, zero = np.array(1, np.float32), np.array(0, np.float32)
    handle = device.get_cublas_handle()
    cublas.gemmEx(
        handle,
        _operation(right),
        _operation(left),
        columns,
        rows,
        depth,
        one.ctypes.data,
        right.bits.data.ptr,
        kind,
        _pitch(right),
        left.bits.data.ptr,
        kind,
        _pitch(left),
        zero.ctypes.data,
        out.bits.data.ptr,
        kind,
        columns,
        _COMPUTE_TF32 if reduced else _COMPUTE_FLOAT32,
        _ALGORITHM_DEFAULT,
    )


def _operation(array: Matrix) -> int:
    return _TRANSPOSED if array.transposed else _PLAIN


def _pitch(array: Matrix) -> int:
    """Elements from a row to the next; of a single row, its length."""
    rows, columns = array.bits.shape
    return int(array.bits.strides[0]) // int(array.bits.itemsize) if rows > 1 else int(columns)
