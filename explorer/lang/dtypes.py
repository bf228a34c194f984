"""Element types of the surface: `T.float16` names a type and `T.float16(x)` converts to it.

Invariant: a SurfaceType equals the `ir` type of its name; the IR only ever holds the latter.
"""

from __future__ import annotations

from typing import Any

from explorer.errors import InputError
from explorer.ir.dtypes import DTYPES, DType, dtype
from explorer.lang.context import current, located


class SurfaceType(DType):
    """An element type that can be called to convert a value."""

    __slots__ = ()

    def __call__(self, value: Any) -> Any:
        """The value converted; a plain number is rounded at once."""
        if isinstance(value, bool | int | float):
            return self.numpy.type(value).item()
        return current(f"T.{self.name}").convert(value, element_type(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.name == other
        return isinstance(other, DType) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def surface_type(element: DType) -> SurfaceType:
    """The callable counterpart of a type."""
    return SurfaceType(element.name, element.bits, element.kind)


def element_type(given: Any) -> DType:
    """The `ir` type of a name, a type, or Python's int, float and bool."""
    python = {int: "int32", float: "float32", bool: "bool"}
    if isinstance(given, DType):
        return DTYPES[given.name]
    name = python.get(given, given) if isinstance(given, type) else given
    if not isinstance(name, str):
        raise located(f"{given!r} is not a dtype: write T.float16 or 'float16'")
    try:
        return dtype(name)
    except InputError as problem:
        raise located(str(problem)) from None


SURFACE_TYPES: dict[str, SurfaceType] = {
    name: surface_type(element) for name, element in DTYPES.items()
}
