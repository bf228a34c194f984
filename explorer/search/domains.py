"""Choices as the study sees them: static distributions, and values moved onto a domain.

Ordered numbers become integer distributions, logarithmic where the domain spans more than a factor
of eight; skeletons and other labels become categories. A model may thus propose a number that lies
between two values of a domain: `snap` moves it to the nearest one.

Invariant: distributions depend on the space alone, never on what has been seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    IntDistribution,
)

from explorer.space.space import SKELETON, Assignment, Choice

LABELS = frozenset({SKELETON, "raster"})
WIDE = 8


def distribution(choice: Choice) -> BaseDistribution:
    """The static distribution of a choice."""
    low, high = min(choice.domain), max(choice.domain)
    if choice.name in LABELS or len(choice.domain) < 3:
        return CategoricalDistribution(choice.domain)
    return IntDistribution(low, high, log=low > 0 and high >= WIDE * low)


def distributions(choices: Iterable[Choice]) -> dict[str, BaseDistribution]:
    """The distributions of all choices that have more than one value."""
    return {choice.name: distribution(choice) for choice in choices if len(choice.domain) > 1}


def snap(choice: Choice, value: float) -> int:
    """The value of the domain that is nearest, by ratio where the domain is wide."""
    if choice.name in LABELS:
        return int(value) if value in choice.domain else choice.domain[0]
    low = min(choice.domain)
    wide = low > 0 and max(choice.domain) >= WIDE * low and value > 0

    def distance(member: int) -> float:
        return abs(math.log(member / value)) if wide else abs(member - value)

    return min(choice.domain, key=lambda member: (distance(member), member))


def complete(choices: Sequence[Choice], values: Mapping[str, float]) -> Assignment:
    """A value of its domain for every choice; those not given get their first value."""
    return {
        choice.name: snap(choice, values[choice.name])
        if choice.name in values
        else choice.domain[0]
        for choice in choices
    }
