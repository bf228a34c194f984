"""What the simulator finds out about a program: a union of frozen results."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt
from attrs import field, frozen

Array: TypeAlias = "npt.NDArray[Any]"


def _same_arrays(outputs: tuple[tuple[str, Array], ...]) -> object:
    return tuple((name, array.shape, array.tobytes()) for name, array in outputs)


@frozen
class Finished:
    """Every role ran to its end. `outputs` are the tensors after the run, by name."""

    outputs: tuple[tuple[str, Array], ...] = field(default=(), eq=_same_arrays)

    def output(self, name: str) -> Array:
        """One tensor after the run; KeyError if the program does not write it."""
        return dict(self.outputs)[name]

    def __str__(self) -> str:
        return "finished"


@frozen
class Blocked:
    """A role that waits for ever: for which barrier's slot and parity, at which of its cycles."""

    block: int
    role: str
    pipeline: str
    full: bool
    slot: int
    parity: int
    cycle: int

    def __str__(self) -> str:
        side = "full" if self.full else "empty"
        return (
            f"block {self.block} role {self.role} waits at {self.pipeline}.{side}[{self.slot}] "
            f"parity {self.parity} cycle {self.cycle}"
        )


@frozen
class Hang:
    """No role can go on."""

    blocked: tuple[Blocked, ...]

    def __str__(self) -> str:
        return f"hang: {'; '.join(map(str, self.blocked))}"


@frozen
class Race:
    """An access that nothing orders against another one to the same elements.

    `kind`: "use before full", "overwrite before empty", or "unordered". `version` is the slot of
    each ring level, `cycle` the cycles of this access and `other_cycle` those of the other.
    """

    kind: str
    block: int
    role: str
    op: str
    other_role: str
    other_op: str
    buffer: str
    version: tuple[int, ...]
    cycle: tuple[int, ...]
    other_cycle: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.kind}: block {self.block} role {self.role} op '{self.op}' cycle {self.cycle} "
            f"against role {self.other_role or 'nobody'} op '{self.other_op}' "
            f"cycle {self.other_cycle} on {self.buffer}{list(self.version)}"
        )


@frozen
class BadCount:
    """Arrivals that a barrier does not expect: too many of them, or in another phase."""

    block: int
    role: str
    pipeline: str
    full: bool
    slot: int
    cycle: int
    arrivals: int
    pending: int
    count: int
    phase: int

    def __str__(self) -> str:
        side = "full" if self.full else "empty"
        return (
            f"bad count: block {self.block} role {self.role} makes {self.arrivals} arrivals for "
            f"cycle {self.cycle} at {self.pipeline}.{side}[{self.slot}], which is in phase "
            f"{self.phase} with {self.pending} of {self.count} pending"
        )


@frozen
class Unbalanced:
    """A role signals a cycle that it has not opened, or uses a cycle without having one open."""

    block: int
    role: str
    pipeline: str
    step: str

    def __str__(self) -> str:
        return (
            f"unbalanced: block {self.block} role {self.role} has no open cycle of "
            f"{self.pipeline} at {self.step}"
        )


@frozen
class OpenTickets:
    """A tile whose parts have not all drawn a number: nobody was the last, and the next launch
    would go on from there. `share` is that of the roles that draw."""

    slot: int
    share: int
    drawn: int
    parts: int

    def __str__(self) -> str:
        return (
            f"open tickets: {self.drawn} of {self.parts} parts drew a number of tile {self.slot}, "
            f"share {self.share}"
        )


Fault: TypeAlias = Hang | Race | BadCount | Unbalanced | OpenTickets
Verdict: TypeAlias = Finished | Fault


class FaultFound(Exception):
    """Carries a fault out of the running simulation."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault
