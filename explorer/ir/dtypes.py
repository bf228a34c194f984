"""Element types: name, width, kind, and their NumPy equivalents."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from attrs import frozen

from explorer.errors import InputError


@frozen
class DType:
    """An element type. `kind` is one of float, int, uint, bool; `bits` is its storage width."""

    name: str
    bits: int
    kind: str

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        """Whether values are floating point."""
        return self.kind == "float"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type that holds one element; sub-byte types take a byte each."""
        result: np.dtype[Any] = np.dtype(_NUMPY[self.name])
        return result


_NUMPY: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e3m4": ml_dtypes.float8_e3m4,
    "float8_e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "float6_e2m3fn": ml_dtypes.float6_e2m3fn,
    "float6_e3m2fn": ml_dtypes.float6_e3m2fn,
    "float4_e2m1": ml_dtypes.float4_e2m1fn,
    "int64": np.int64,
    "int32": np.int32,
    "int16": np.int16,
    "int8": np.int8,
    "int4": ml_dtypes.int4,
    "uint64": np.uint64,
    "uint32": np.uint32,
    "uint16": np.uint16,
    "uint8": np.uint8,
    "uint4": ml_dtypes.uint4,
    "bool": np.bool_,
}


def _width(name: str) -> int:
    if name == "bool":
        return 8
    digits = name.split("_", maxsplit=1)[0].lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits)


DTYPES: dict[str, DType] = {
    name: DType(name, _width(name), "bool" if name == "bool" else name.rstrip("0123456789e_m"))
    for name in _NUMPY
    if not name.startswith(("float", "bfloat", "bool"))
} | {name: DType(name, _width(name), "float") for name in _NUMPY if "float" in name}
DTYPES["bool"] = DType("bool", 8, "bool")
_ALIASES = {"float8_e4m3fn": "float8_e4m3", "float4_e2m1fn": "float4_e2m1", "float": "float32"}


def dtype(name: str | DType) -> DType:
    """The type of that name; InputError lists those known."""
    if isinstance(name, DType):
        return name
    found = DTYPES.get(_ALIASES.get(name, name)) if isinstance(name, str) else None
    if found is None:
        raise InputError(f"unknown dtype {name!r}: known are {', '.join(sorted(DTYPES))}")
    return found
