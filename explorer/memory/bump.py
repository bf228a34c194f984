"""Bump arithmetic: where pieces of shared memory lie, and how many slots of a ring fit.

A piece is aligned by its use (`swizzle.alignment_bytes`), counted once, or once a slot if it is
part of the ring. A block's dynamic memory begins after its static memory, and both come out of
what the device grants a block.

Invariant: sizes may be symbolic; every slot of a ring starts aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import field, frozen

from explorer.expr import Cond, Expr, IntLike, all_of, const, evaluate, round_up
from explorer.memory.conditions import plain, refuse
from explorer.memory.swizzle import ORDINARY_BYTES

# Above this a kernel must opt in to its dynamic memory (CUDA programming guide, shared memory).
OPT_IN_BYTES = 48 * 1024


@frozen
class Piece:
    """Bytes that lie together; `slots` copies of them, each aligned."""

    name: str
    size_bytes: IntLike = field(converter=plain)
    alignment_bytes: int = ORDINARY_BYTES
    slots: IntLike = field(default=1, converter=plain)

    @property
    def pitch_bytes(self) -> IntLike:
        """From one slot to the next."""
        if self.slots == 1:
            return self.size_bytes
        return plain(round_up(self.size_bytes, self.alignment_bytes))


@frozen
class Spot:
    """Where a piece lies."""

    piece: Piece
    offset_bytes: IntLike


@frozen
class Bump:
    """Pieces in order; `total_bytes` is one past the last."""

    spots: tuple[Spot, ...]
    total_bytes: IntLike


def bump(pieces: Iterable[Piece], base_bytes: IntLike = 0) -> Bump:
    """Pieces one after the other from `base_bytes`, each aligned by its use."""
    cursor: Expr = const(base_bytes)
    spots = []
    for piece in pieces:
        cursor = round_up(cursor, piece.alignment_bytes)
        spots.append(Spot(piece, plain(cursor)))
        cursor = cursor + const(piece.pitch_bytes) * piece.slots
    return Bump(tuple(spots), plain(cursor))


def slots_that_fit(
    ring: Sequence[Piece], once: Sequence[Piece], budget_bytes: int, limit: int = 64
) -> int:
    """The most slots of a ring, up to `limit`, that fit beside pieces that are there once.

    0 where not even one slot fits.
    """
    for slots in range(limit, 0, -1):
        deep = [Piece(p.name, p.size_bytes, p.alignment_bytes, slots) for p in ring]
        padded = bump([*deep, *once])
        if evaluate(padded.total_bytes) <= budget_bytes:
            return slots
    return 0


@frozen
class SharedRequest:
    """What one block asks for: dynamic bytes at launch, static bytes in its code."""

    dynamic_bytes: int
    static_bytes: int = 0

    def fits(self, block_bytes: int) -> Cond:
        """Whether both come out of what the device grants a block."""
        return all_of(const(self.dynamic_bytes) + self.static_bytes <= block_bytes)

    @property
    def opts_in(self) -> bool:
        """Whether the launch must raise the kernel's limit first: static bytes count too."""
        return self.dynamic_bytes + self.static_bytes > OPT_IN_BYTES

    def check(self, block_bytes: int) -> None:
        """MemoryPlanError with the three numbers where it does not fit."""
        available = block_bytes - self.static_bytes
        if self.dynamic_bytes > available:
            refuse(
                "smem-capacity",
                f"dynamic {self.dynamic_bytes} B + static {self.static_bytes} B > {block_bytes} "
                f"B a block; at most {available} B of dynamic memory are available",
            )
