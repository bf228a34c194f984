"""Footprint arithmetic: how many bytes buffers and barriers take, and where rings lie.

The same formulas serve the capacity rule (symbolic) and the emitters (offsets), so that what was
proven is what is allocated.

Invariant: every version of a ring starts at a multiple of its scope's alignment; barriers follow
the rings.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from explorer.expr import Expr, IntLike, ceildiv, const, evaluate, round_up
from explorer.ir.nodes import Buffer
from explorer.machine import Machine, Scope


def slot_bytes(buffer: Buffer, machine: Machine) -> Expr:
    """The padded size of one version of a shared buffer."""
    memory = machine.memory(buffer.scope)
    alignment = memory.alignment_bytes if memory else 1
    return round_up(ceildiv(buffer.bits, 8), alignment)


def barriers_bytes(depths: Iterable[IntLike], machine: Machine) -> Expr:
    """The size of the full and empty barriers of pipelines with those depths."""
    result: Expr = const(0)
    for depth in depths:
        result = result + const(depth) * (2 * machine.barrier_bytes)
    return result


@frozen
class Placed:
    """A ring at a byte offset; `pitch_bytes` apart for each version."""

    buffer: str
    offset_bytes: int
    pitch_bytes: int
    versions: int


@frozen
class SharedLayout:
    """Rings in order, then the barriers; `total_bytes` is the block's shared memory."""

    rings: tuple[Placed, ...]
    barriers_offset_bytes: int
    total_bytes: int

    def ring(self, buffer: str) -> Placed:
        """Where the ring of a buffer lies; KeyError where it has none."""
        for ring in self.rings:
            if ring.buffer == buffer:
                return ring
        raise KeyError(buffer)


def shared_layout(
    rings: Iterable[tuple[Buffer, int]], depths: Iterable[int], machine: Machine
) -> SharedLayout:
    """Offsets of (buffer, versions) rings of one block and of the pipelines' barriers."""
    offset = 0
    placed = []
    for buffer, versions in rings:
        if buffer.scope != Scope.SHARED:
            continue
        pitch = evaluate(slot_bytes(buffer, machine))
        placed.append(Placed(buffer.name, offset, pitch, versions))
        offset += pitch * versions
    total = offset + evaluate(barriers_bytes(depths, machine))
    return SharedLayout(tuple(placed), offset, total)
