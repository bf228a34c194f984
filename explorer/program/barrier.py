"""A memory barrier as the hardware keeps it: a phase, pending arrivals, pending bytes.

A phase completes when no arrival and no byte is pending; the phase bit flips and the arrivals are
pending again. A wait passes a parity and goes through when the phase of that parity is over, which
the hardware can only tell by its bit (PTX ISA, mbarrier). Each phase carries the clocks of those
who arrived to those who wait.

Invariant: nothing here knows a pipeline, a ring or a rule.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import Factory, define

Clock: TypeAlias = dict[str, int]


def join(clock: Clock, other: Clock) -> None:
    """Learn all that `other` knows."""
    for actor, tick in other.items():
        if clock.get(actor, 0) < tick:
            clock[actor] = tick


@define
class Barrier:
    """One barrier in shared memory; `count` arrivals complete a phase."""

    count: int
    phase: int = 0
    pending: int = 0
    pending_bytes: int = 0
    known: Clock = Factory(dict)
    arriving: Clock = Factory(dict)
    waiting: list[int] = Factory(list)

    def __attrs_post_init__(self) -> None:
        self.pending = self.count

    def passes(self, parity: int) -> bool:
        """Whether a wait for the phase of that parity goes through now."""
        return (self.phase & 1) != parity

    def expect(self, count: int) -> None:
        """More bytes will arrive in this phase."""
        self.pending_bytes += count

    def arrive(self, arrivals: int, arrived_bytes: int, clock: Clock) -> bool:
        """Arrivals and bytes come in; whether they complete the phase."""
        join(self.arriving, clock)
        self.pending -= arrivals
        self.pending_bytes -= arrived_bytes
        if self.pending or self.pending_bytes:
            return False
        join(self.known, self.arriving)
        self.arriving = {}
        self.phase += 1
        self.pending = self.count
        return True
