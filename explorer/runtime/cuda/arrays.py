"""Device tensors as a workload's reference and peer see them: arrays with a type, `.T`, matmul.

A workload's functions are written for NumPy arrays. They run on the device unchanged: `astype` to
a wide type gives a CuPy array, on which NumPy's functions dispatch to CuPy, and matmul of 16-bit
arrays, which CuPy has no type for, goes to cuBLAS.

Invariant: the bits of a narrow float lie in an array of unsigned integers; nothing here copies to
the host unless asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from explorer.errors import InputError
from explorer.ir.dtypes import DType, dtype
from explorer.runtime.cuda.cublas import matmul
from explorer.runtime.cuda.elementwise import assign

_BITS = {"bfloat16": np.uint16, "float16": np.uint16, "float8_e4m3": np.uint8}


class DeviceArray:
    """A row-major array on the device, or one whose last two axes have changed places."""

    __array_priority__ = 1000

    def __init__(self, bits: Any, element: DType, transposed: bool = False) -> None:
        self.bits, self.element, self.transposed = bits, element, transposed

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, the last two in the order in which they are used."""
        shape: tuple[int, ...] = tuple(self.bits.shape)
        return (*shape[:-2], *reversed(shape[-2:])) if self.transposed else shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of an element."""
        return self.element.numpy

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - NumPy's name
        """The transpose of a matrix, without a copy."""
        return self.swapaxes(0, 1)

    def swapaxes(self, axis: int, other: int) -> DeviceArray:
        """The array with its last two axes exchanged, without a copy."""
        rank = len(self.bits.shape)
        if sorted((axis % rank, other % rank)) != [rank - 2, rank - 1]:
            raise InputError(f"a device array of rank {rank} exchanges its last two axes only")
        return DeviceArray(self.bits, self.element, not self.transposed)

    def astype(self, target: Any, copy: bool = True) -> Any:
        """A CuPy array of another type; itself for its own."""
        wanted = np.dtype(target)
        if wanted == self.dtype:
            return self
        wide = widened(self.bits, self.element).astype(wanted, copy=False)
        return wide.swapaxes(-2, -1) if self.transposed else wide

    def reduced_product(
        self, other: DeviceArray, out: DeviceArray, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """out <- alpha self other + beta out, float32 read as tf32, as tensor cores do."""
        matmul(self, other, out, alpha, beta, reduced=self.element.name == "float32")

    def assign(self, expression: str, **operands: DeviceArray) -> None:
        """Set every element to a C expression of the operands' elements, in one kernel.

        It is computed in float32. An operand with one dimension less is the same for every row.
        InputError for operands of another element type.
        """
        for name, each in operands.items():
            if each.element != self.element:
                raise InputError(f"operand {name} is {each.element}, the result {self.element}")
        assign(self.element, expression, self.bits, {n: each.bits for n, each in operands.items()})

    def __matmul__(self, other: Any) -> Any:
        product: Any = np.matmul
        return product(self, other)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is not np.matmul or method != "__call__":
            return NotImplemented

        (out,) = options.get("out") or (None,)
        left, right = inputs
        if out is None:
            import cupy  # noqa: PLC0415

            shape = (*left.shape[:-1], right.shape[-1])
            out = DeviceArray(cupy.empty(shape, self.bits.dtype), self.element)
        matmul(left, right, out)
        return out


def device_bits(array: np.ndarray[Any, Any], element: DType) -> Any:
    """A NumPy array on the device, narrow floats as their bits."""
    import cupy  # noqa: PLC0415

    bits = _BITS.get(element.name)
    return cupy.asarray(np.ascontiguousarray(array.view(bits) if bits else array))


def bits_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type that holds an element's bits on the device."""
    return np.dtype(_BITS.get(name, dtype(name).numpy))


def widened(bits: Any, element: DType) -> Any:
    """The values of an array of bits, narrow floats as float32."""
    if element.name == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if element.name == "float16":
        return bits.view(np.float16).astype(np.float32)
    if element.name in _BITS:
        import cupy  # noqa: PLC0415

        every = np.arange(256, dtype=np.uint8).view(element.numpy).astype(np.float32)
        return cupy.asarray(every)[bits]
    return bits
