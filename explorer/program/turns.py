"""Roles that take turns over the tiles of a persistent block: their own tiles, and the others'.

A program has one branch a tile, whose other side passes over the cycles of other roles' tiles.
Where these are known numbers, an emitter can print a loop over a role's own tiles that passes over
the cycles of all others at once, so that slots and parities move by constants.

Invariant: body and skips of all tiles in order are the steps of the branch.
"""

from __future__ import annotations

from attrs import evolve, frozen

from explorer.expr import Binary, Compare, Cond, Const, equal, negate
from explorer.program.launch import TILE
from explorer.program.nodes import Skip, Step, When


@frozen
class Turns:
    """A role's place among `count` roles, what it runs of a tile and what for another's tile."""

    index: int
    count: int
    body: tuple[Step, ...]
    passed: tuple[Skip, ...]

    def skips(self, tiles: int) -> tuple[Skip, ...]:
        """What passes over so many tiles of other roles."""
        return tuple(evolve(skip, cycles=skip.cycles * tiles) for skip in self.passed if tiles)


def turns_of(body: tuple[Step, ...], blocks: int) -> Turns | None:
    """The turns of a role's body; None where it takes none, or passes over unknown numbers."""
    owned, passed = body[:1], body[1:]
    if not blocks or not owned or not isinstance(owned[0], When):
        return None
    turn = _turn(owned[0].cond, blocks)
    if turn is None:
        return None
    skips: tuple[Step, ...] = ()
    if passed:
        last = passed[0]
        if len(passed) > 1 or not isinstance(last, When) or last.cond != negate(owned[0].cond):
            return None
        skips = last.body
    counted = tuple(s for s in skips if isinstance(s, Skip) and isinstance(s.cycles, Const))
    return Turns(*turn, owned[0].body, counted) if len(counted) == len(skips) else None


def _turn(owner: Cond, blocks: int) -> tuple[int, int] | None:
    """(i, n) of the condition that the block's k-th tile has k % n == i."""
    match owner:
        case Compare("==", Binary("%", _, Const(count)), Const(index)):
            return (index, count) if owner == equal(TILE // blocks % count, index) else None
    return None
