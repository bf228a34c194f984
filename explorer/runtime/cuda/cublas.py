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
    """A row-major matrix on the device, or a batch of them, or the transposes of such."""

    @property
    def element(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def bits(self) -> Any: ...


def matmul(
    left: Matrix,
    right: Matrix,
    out: Matrix,
    alpha: float = 1.0,
    beta: float = 0.0,
    reduced: bool = False,
) -> None:
    """out <- alpha left right + beta out, operands possibly transposed views, out row-major.

    A first dimension counts products, which one call computes. `reduced` lets float32 operands be
    read as tf32.
    """
    from cupy.cuda import device  # noqa: PLC0415
    from cupy_backends.cuda.libs import cublas  # noqa: PLC0415

    name = left.element.name
    kind = _DATA_TYPES.get(name)
    if kind is None or {right.element, out.element} != {left.element} or out.transposed:
        raise InputError(f"cublas: no product of {name} arrays into {out.element}")
    batch, (rows, depth) = left.shape[:-2], left.shape[-2:]
    columns = right.shape[-1]
    shapes = right.shape, out.shape
    if len(batch) > 1 or shapes != ((*batch, depth, columns), (*batch, rows, columns)):
        raise InputError(f"cublas: no product of {left.shape} and {right.shape} into {out.shape}")
    scale, keep = np.array(alpha, np.float32), np.array(beta, np.float32)
    product = cublas.gemmStridedBatchedEx if batch else cublas.gemmEx
    product(
        device.get_cublas_handle(),
        _operation(right),
        _operation(left),
        columns,
        rows,
        depth,
        scale.ctypes.data,
        *_place(right, kind),
        *_place(left, kind),
        keep.ctypes.data,
        *_place(out, kind),
        *batch,
        _COMPUTE_TF32 if reduced else _COMPUTE_FLOAT32,
        _ALGORITHM_DEFAULT,
    )


def _operation(array: Matrix) -> int:
    return _TRANSPOSED if array.transposed else _PLAIN


def _place(array: Matrix, kind: int) -> tuple[int, ...]:
    """Address, type and leading dimension; of a batch also the elements to the next matrix.

    The leading dimension is what lies from a row to the next; of a single row, its length.
    """
    *_, rows, columns = array.bits.shape
    *apart, pitch, _ = (int(each) // int(array.bits.itemsize) for each in array.bits.strides)
    return int(array.bits.data.ptr), kind, pitch if rows > 1 else int(columns), *apart
