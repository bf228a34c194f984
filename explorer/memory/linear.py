"""How many bits a linear offset into a tensor takes.

Invariant: the width follows from the largest offset that the strides lead to, not from the number
of elements: a strided tensor is larger than what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

NARROW_MAX = 2**31 - 1


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor, in elements."""
    return tuple(accumulate(reversed(shape[1:]), mul, initial=1))[::-1] if shape else ()


def largest_offset(shape: Sequence[int], strides: Sequence[int] | None = None) -> int:
    """The largest linear offset of an element; dense row-major strides if none are given."""
    steps = row_major(shape) if strides is None else strides
    return sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))


def offset_bits(shape: Sequence[int], strides: Sequence[int] | None = None) -> int:
    """32 where a signed 32-bit integer holds every offset, else 64."""
    return 32 if largest_offset(shape, strides) <= NARROW_MAX else 64
