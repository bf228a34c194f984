"""How the simulator's scheduler chooses: fair, lopsided or adversarial, by seed.

Invariant: a policy is a pure function of its seed and of what it was asked before.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Actor(Protocol):
    """A role with a name of its own in the run."""

    actor: str


A = TypeVar("A", bound=Actor)

STYLES = ("fair", "late", "eager", "lopsided")


class Policy:
    """One way to choose; the seed modulo 4 gives the style, the seed itself the random choices.

    "fair" picks at random. "late" completes asynchronous work when nothing else can go on, "eager"
    as soon as possible. "lopsided" runs the first ready role of a random priority.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.style = STYLES[seed % len(STYLES)]
        self.priority: dict[str, float] = {}

    def completes(self, ready: int) -> bool:
        """Whether asynchronous work completes now although roles could go on."""
        if self.style == "late":
            return False
        if self.style == "eager":
            return True
        return self.random.random() < 1 / (ready + 1)

    def pick(self, choices: Sequence[T]) -> T:
        """One of the completions that are possible."""
        return choices[self.random.randrange(len(choices))]

    def actor(self, ready: Sequence[A]) -> A:
        """The role that moves next."""
        if self.style in ("fair", "eager") or len(ready) == 1:
            return ready[self.random.randrange(len(ready))]
        return min(ready, key=lambda each: self.rank(each.actor))

    def rank(self, actor: str) -> float:
        """A role's random but fixed priority."""
        return self.priority.setdefault(actor, self.random.random())
