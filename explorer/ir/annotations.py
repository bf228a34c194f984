"""What the author of a kernel asks of a schedule, beside the kernel's meaning.

Names, parameters and meaning follow TileLang's Ascend annotations (tilelang 0.1.15). Buffers are
named.

Invariant: an annotation never changes what a kernel computes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from attrs import frozen

from explorer.machine import Scope


class IndexMode(StrEnum):
    """How a version of a buffer is chosen.

    ITERATION: by the flattened loop index. COUNTER: by a local counter that advances after each
    completed epoch. AUTO: by the index where that is safe, else by a counter.
    """

    AUTO = "auto"
    ITERATION = "iteration"
    COUNTER = "counter"


@frozen
class BufferVersions:
    """The versions asked of one buffer.

    `versions` None leaves the count to the scheduler. `opted_out` takes the storage, aliases
    included, out of automatic multi-buffering, explicit claims notwithstanding.
    """

    buffer: str
    versions: int | None
    mode: IndexMode = IndexMode.AUTO
    opted_out: bool = False


@frozen
class ManualMultiBuffer:
    """A buffer whose author writes the version index by hand; `versions` bounds the distance."""

    buffer: str
    versions: int


@frozen
class UnlimitedMemory:
    """Memories whose capacity the scheduler does not count."""

    scopes: tuple[Scope, ...]


@frozen
class RasterHint:
    """The order of blocks that the author suggests: panels of `panel` tiles along an axis."""

    panel: int
    order: str


Annotation: TypeAlias = BufferVersions | ManualMultiBuffer | UnlimitedMemory | RasterHint
