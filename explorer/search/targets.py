"""Targets that need no model: an even spread of the space, and one step from a known point.

The spread is the additive recurrence of Roberts (quasi-random sequence R_d): every coordinate
moves by a fixed irrational step, so that any run of points fills the space evenly. Skeletons
take turns.

Invariant: targets are a pure function of their arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.search.domains import LABELS
from explorer.space.space import SKELETON, Assignment, Choice


def spread(choices: Sequence[Choice], seed: int, index: int) -> Assignment:
    """The `index`-th target of the spread; not necessarily legal."""
    steps = _steps(len(choices))
    offsets = np.random.default_rng((seed, len(choices))).random(len(choices))
    result = {}
    for axis, choice in enumerate(choices):
        if choice.name == SKELETON:
            result[choice.name] = choice.domain[index % len(choice.domain)]
            continue
        place = (offsets[axis] + (index + 1) * steps[axis]) % 1.0
        result[choice.name] = choice.domain[int(place * len(choice.domain))]
    return result


def neighbour(choices: Sequence[Choice], here: Assignment, seed: int) -> Assignment:
    """`here` with one choice moved one place along its domain; a label moves anywhere."""
    rng = np.random.default_rng(seed)
    free = [choice for choice in choices if len(choice.domain) > 1]
    choice = free[int(rng.integers(len(free)))]
    place = choice.domain.index(here[choice.name])
    if choice.name in LABELS:
        places = [each for each in range(len(choice.domain)) if each != place]
    else:
        places = [each for each in (place - 1, place + 1) if 0 <= each < len(choice.domain)]
    return {**here, choice.name: choice.domain[places[int(rng.integers(len(places)))]]}


def _steps(dimensions: int) -> list[float]:
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    return [root ** -(axis + 1) % 1.0 for axis in range(dimensions)]
