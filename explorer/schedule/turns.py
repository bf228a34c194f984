"""Whose iteration it is, where roles take turns (alternating sides).

Invariant: the one reading of `Side.over`; the rules and the passes both use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from explorer.schedule.extensions import Side, SideMode


def alternating(sides: Iterable[Side]) -> tuple[Side, ...]:
    """The sides on which roles take turns."""
    return tuple(side for side in sides if side.mode == SideMode.ALTERNATING)


def handed_out(side: Side, scopes: Mapping[str, str]) -> str | None:
    """The scope whose iterations a side hands out; `scopes` gives that of every pipeline."""
    return side.over or scopes.get(side.pipeline)


def turns(sides: Iterable[Side], scopes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Per scope with turns, its roles in order; the first side speaks where several differ."""
    found: dict[str, tuple[str, ...]] = {}
    for side in alternating(sides):
        scope = handed_out(side, scopes)
        if scope is not None:
            found.setdefault(scope, side.roles)
    return found
