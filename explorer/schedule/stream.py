"""How the blocks of a streamed launch share the last tiles: equal ranges of their iterations.

    tiles   0 .. whole       whole .. tiles
    units   a tile each      of every block, the pieces of up to three tiles that its range touches

Whole waves are worked on tile by tile, all but one; the wave that is left and the partial one
behind it are a line of iterations, of which each block takes a range of equal length. Such a range
is no shorter than a tile. So a tile is cut at most once, the blocks on both sides of the cut are
all that have sums of it, and a block leaves at most two tiles unfinished.

A unit's ordinal is that of its block, counted on by the number of blocks: the first wave has the
ordinals 0 .. blocks - 1. What stands here counts clusters where the launch has them: their blocks
do the same on neighbouring tiles.

Invariant: the pieces of all units cover every iteration of every tile once.
"""

from __future__ import annotations

from attrs import frozen

from explorer.expr import Cond, Expr, Var, ceildiv, maximum, minimum, select

# A range of less than two tiles begins in one, fills another and ends in a third.
UNITS_A_RANGE = 3


@frozen
class StreamedLoop:
    """The loop that is shared: its variable, and the iterations that a tile has of it."""

    var: str
    iterations: Expr

    @property
    def first(self) -> Var:
        """The scalar that holds the iteration of the tile which a unit begins with."""
        return Var(f"{self.var}_first")

    @property
    def extent(self) -> Var:
        """The scalar that holds how many iterations a unit has."""
        return Var(f"{self.var}_extent")

    @property
    def part(self) -> Var:
        """The scalar that holds which part of a tile a unit has: 0, or 1 behind a cut."""
        return Var(f"{self.var}_part")

    @property
    def cut(self) -> Cond:
        """Whether a unit has part of a tile only."""
        return self.extent < self.iterations


@frozen
class Stream:
    """`blocks` blocks on `tiles` tiles, at least as many, of `iterations` each."""

    tiles: Expr
    iterations: Expr
    blocks: Expr

    @property
    def whole(self) -> Expr:
        """Tiles that one block works on alone, before the others."""
        return (self.tiles // self.blocks - 1) * self.blocks

    @property
    def streamed(self) -> Expr:
        """Tiles whose iterations the blocks share."""
        return self.tiles - self.whole

    @property
    def quota(self) -> Expr:
        """Iterations of a block's range; the last ranges may be shorter or empty."""
        return ceildiv(self.streamed * self.iterations, self.blocks)

    @property
    def units(self) -> Expr:
        """Units of all blocks, those without iterations included."""
        return self.whole + UNITS_A_RANGE * self.blocks

    @property
    def cuts(self) -> Expr:
        """Places where ranges meet."""
        return self.blocks - 1

    def tile(self, unit: Expr) -> Expr:
        """The tile of a unit."""
        wave = unit // self.blocks - (self.tiles // self.blocks - 1)
        streamed = self._start(unit) // self.iterations + maximum(wave, 0)
        return select(unit < self.whole, unit, self.whole + streamed)

    def first(self, unit: Expr, tile: Expr) -> Expr:
        """The iteration of its tile which a unit begins with."""
        return select(unit < self.whole, 0, maximum(self._start(unit) - self._line(tile), 0))

    def extent(self, unit: Expr, tile: Expr, first: Expr) -> Expr:
        """The iterations of a unit, from the first on; a unit of none ends its block's work."""
        stop = minimum(self._start(unit) + self.quota, self.streamed * self.iterations)
        there = minimum(stop - self._line(tile), self.iterations)
        return select(unit < self.whole, self.iterations, maximum(there - first, 0))

    def cut(self, unit: Expr, part: Expr) -> Expr:
        """The place where a unit's tile is cut: behind its block's range, or before it."""
        return unit % self.blocks - part

    def _start(self, unit: Expr) -> Expr:
        """Where on the line of iterations the range of a unit's block starts."""
        return unit % self.blocks * self.quota

    def _line(self, tile: Expr) -> Expr:
        """Where on the line of iterations a tile starts."""
        return (tile - self.whole) * self.iterations


__all__ = ["Stream", "StreamedLoop"]
