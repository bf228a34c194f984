"""Tensor maps: what the bulk copy engine knows of a tensor, encoded by the driver.

Invariant: an encoded map is 128 bytes that hold the tensor's address, so that it belongs to one
allocation.
"""

from __future__ import annotations

import ctypes
from typing import Any

from explorer.codegen.cuda import TensorMap
from explorer.errors import EnvironmentFault

MAP_BYTES = 128
_TYPES = {
    "bfloat16": "BFLOAT16",
    "float16": "FLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "float8_e4m3": "UINT8",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "int8": "UINT8",
    "uint16": "UINT16",
    "int16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "bool": "UINT8",
}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


def encode(tensor_map: TensorMap, address: int) -> bytes:
    """The map of a tensor at a device address; EnvironmentFault where the driver refuses it."""
    from cuda.bindings import driver  # noqa: PLC0415

    rank = len(tensor_map.dims)
    status, encoded = driver.cuTensorMapEncodeTiled(
        _named(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[tensor_map.dtype]}"),
        rank,
        address,
        [driver.cuuint64_t(extent) for extent in tensor_map.dims],
        # A vector has no pitch, and the driver still wants an address for them.
        [driver.cuuint64_t(pitch) for pitch in tensor_map.pitches_bytes or (16,)],
        [driver.cuuint32_t(extent) for extent in tensor_map.box],
        [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        _named(driver.CUtensorMapSwizzle, _swizzle(tensor_map.swizzle_bytes)),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if int(status):
        raise EnvironmentFault(f"tensor map of {tensor_map.tensor}: {status}: {tensor_map}")
    return ctypes.string_at(int(encoded.getPtr()), MAP_BYTES)


def _swizzle(size: int) -> str:
    return f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[size]}"


def _named(kind: Any, name: str) -> Any:
    return getattr(kind, name)
