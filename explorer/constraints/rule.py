"""What a rule is.

A rule turns a Plan into requirements: conditions over its numbers. The checker evaluates them
under the numbers of a schedule, the solver takes them as they are. Structure (who synchronizes
where) is known in both cases, so a structural requirement is simply a condition that folds to true
or false.

Invariant: a rule is a pure function of plan and machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from attrs import field, frozen

from explorer.expr import FALSE, Cond, CondLike, Expr, IntLike, const, evaluate, truth
from explorer.machine import Machine
from explorer.schedule.plan import Plan

Kind = Literal["form", "safety"]


@frozen
class Requirement:
    """A condition that must hold, and how to say that it does not.

    `message` is a format string over `values`, e.g. "{total} B > {limit} B".
    """

    holds: Cond = field(converter=truth)
    message: str
    values: tuple[tuple[str, Expr], ...] = ()

    def text(self, env: Mapping[str, int]) -> str:
        """The message with its values filled in."""
        return self.message.format(**self.numbers(env))

    def numbers(self, env: Mapping[str, int]) -> dict[str, int]:
        """The values under `env`."""
        return {name: evaluate(value, env) for name, value in self.values}


def require(holds: CondLike, message: str, **values: IntLike) -> Requirement:
    """A requirement whose message is formatted with `values`."""
    return Requirement(
        holds, message, tuple((name, const(value)) for name, value in values.items())
    )


def broken(message: str) -> Requirement:
    """A requirement that does not hold, whatever the numbers."""
    return Requirement(FALSE, literal(message))


def literal(text: str) -> str:
    """A text as part of a requirement's message, which is a format."""
    return text.replace("{", "{{").replace("}", "}}")


@frozen
class Finding:
    """A requirement that does not hold under some numbers, and what was found out about it."""

    requirement: Requirement
    note: str = ""


@frozen
class Rule:
    """One named rule.

    `kind`: *form* is a shape that the passes need; breaking a *safety* rule hangs, races or
    corrupts. `sentence` says what must hold, `source` where that is written, `remedy` what to do.
    `decide`, where given, says the same as `requirements` for numbers, faster or more exactly.
    """

    id: str
    kind: Kind
    sentence: str
    source: str
    remedy: str
    requirements: Callable[[Plan, Machine], Iterator[Requirement]] = field(eq=False)
    decide: Callable[[Plan, Mapping[str, int], Machine], Iterator[Finding]] | None = field(
        default=None, eq=False
    )
