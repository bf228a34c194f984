"""C31: the width of offsets follows from the largest one that the strides lead to."""

from __future__ import annotations

import pytest

from explorer.memory.linear import largest_offset, offset_bits, row_major


@pytest.mark.parametrize(
    ("shape", "strides", "bits"),
    [
        ((225305, 16, 96), (9728, 96, 1), 64),
        ((8300 * 128, 16, 128), None, 64),
        ((429496, 5000), None, 32),
        ((429498, 5000), None, 64),
        ((225305, 16, 96), None, 32),
        ((1, 1), (1 << 40, 1), 32),
        ((), None, 32),
    ],
)
def test_the_width_of_an_offset(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, bits: int
) -> None:
    assert offset_bits(shape, strides) == bits


def test_dense_strides_end_at_the_last_element() -> None:
    assert row_major((2, 3, 4)) == (12, 4, 1)
    assert largest_offset((2, 3, 4)) == 23
