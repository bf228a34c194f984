"""Sizes that may be symbolic, and what a pool asks of them.

A kernel may allocate before its tile sizes are known. A condition over known numbers is decided at
once; one over Params is kept as an `Obligation` for whoever fixes them.

Invariant: sizes are ints wherever they are known, so that offsets of equal pools compare equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from attrs import field, frozen

from explorer.errors import MemoryPlanError
from explorer.expr import Cond, CondLike, Const, Expr, IntLike, Truth, const, substitute, truth


def plain(value: IntLike) -> IntLike:
    """An int where the value is known, else its Expr."""
    expr = const(value)
    return expr.value if isinstance(expr, Const) else expr


def bind(value: IntLike, sizes: Mapping[str, IntLike]) -> IntLike:
    """The value with the Params named in `sizes` replaced."""
    return plain(substitute(const(value), sizes))


def known(value: IntLike, what: str) -> int:
    """The int of a size; MemoryPlanError where a Param is still open."""
    result = plain(value)
    if isinstance(result, Expr):
        refuse("symbolic-size", f"{what} is '{result}', which is not known yet; bind it with at()")
    return result


def shape_of(shape: Any) -> tuple[IntLike, ...]:
    """The extents of a shape; MemoryPlanError for anything but a sequence of sizes >= 0."""
    if isinstance(shape, str | Mapping) or not isinstance(shape, Iterable):
        refuse("pool-shape", f"{shape!r} is not a shape; write a tuple, such as ({shape!r},)")
    return tuple(size_of(extent, f"extent {k}") for k, extent in enumerate(shape))


def size_of(value: Any, what: str) -> IntLike:
    """A size that is an integer >= 0 or symbolic; MemoryPlanError otherwise."""
    try:
        size = plain(value)
    except TypeError:
        refuse("pool-size", f"{what} is {value!r}; it must be an integer or symbolic")
    if isinstance(size, int) and size < 0:
        refuse("pool-size", f"{what} is {size}; it must be at least 0")
    return size


def text(shape: Iterable[IntLike]) -> str:
    """A shape as it is written, for messages."""
    extents = [str(extent) for extent in shape]
    return f"({extents[0]},)" if len(extents) == 1 else f"({', '.join(extents)})"


def refuse(rule: str, message: str) -> NoReturn:
    """Raise the MemoryPlanError of a rule."""
    raise MemoryPlanError(f"{rule}: {message}")


@frozen
class Obligation:
    """A condition over Params that must hold; `message` says what is wrong where it does not."""

    rule: str
    holds: Cond = field(converter=truth)
    message: str


class Ledger:
    """Decides conditions, and keeps those that cannot be decided yet."""

    def __init__(self) -> None:
        self._open: list[Obligation] = []

    @property
    def obligations(self) -> tuple[Obligation, ...]:
        """The conditions that wait for sizes, in order."""
        return tuple(self._open)

    def require(self, holds: CondLike, rule: str, message: str) -> None:
        """MemoryPlanError if the condition is false; an obligation if it is symbolic."""
        condition = truth(holds)
        if not isinstance(condition, Truth):
            self._open.append(Obligation(rule, condition, message))
        elif not condition.value:
            refuse(rule, message)
