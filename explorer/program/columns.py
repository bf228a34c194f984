"""Lists of lines side by side, within a width.

Invariant: no line is cut; what is too long for its column goes on below, indented further than it
began, and columns for which there is no room stand below the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap

SEPARATOR = " | "
COLUMN_MIN = 32
HANGING = 4


def side_by_side(columns: Sequence[Sequence[str]], width: int = 0) -> Iterator[str]:
    """The rows of the columns; `width` is the longest row, 0 for any."""
    if not width:
        yield from _rows(columns, [max(map(len, column), default=0) for column in columns])
        return
    room = max((width + len(SEPARATOR)) // (COLUMN_MIN + len(SEPARATOR)), 1)
    for first in range(0, len(columns), room):
        if first:
            yield ""
        band = columns[first : first + room]
        yield from _rows(band, _widths(band, width - len(SEPARATOR) * (len(band) - 1)))


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Of each column: what it needs, or an equal share of what the shorter ones leave."""
    needed = [max(map(len, column), default=0) for column in columns]
    widths = [0] * len(columns)
    for rank, index in enumerate(sorted(range(len(columns)), key=needed.__getitem__)):
        widths[index] = min(needed[index], room // (len(columns) - rank))
        room -= widths[index]
    return widths


def _rows(columns: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for row in zip_longest(*columns, fillvalue=""):
        cells = [list(_folded(cell, width)) for cell, width in zip(row, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            padded = (part.ljust(width) for part, width in zip(line, widths, strict=True))
            yield SEPARATOR.join(padded).rstrip()


def _folded(line: str, width: int) -> Iterator[str]:
    if len(line) <= width:
        yield line
        return
    indent = " " * (len(line) - len(line.lstrip()))
    yield from wrap(
        line.strip(),
        max(width, len(indent) + HANGING + 1),
        initial_indent=indent,
        subsequent_indent=indent + " " * HANGING,
        break_on_hyphens=False,
    )
