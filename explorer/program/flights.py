"""Asynchronous work under way: copies by the copy engine, cp.async copies, matrix ops.

Invariant: work leaves in any order that the hardware allows: matrix ops of one role in the order
of their issue, deferred arrivals after the copies they stand for, bulk copies in any order.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import Factory, define, field


@define(eq=False)
class Flight:
    """One piece of work; `finish` makes it happen. It leaves after all of `after`."""

    finish: Callable[[], None]
    after: tuple[Flight, ...] = ()
    landed: bool = field(default=False, init=False)


@define
class Flights:
    """All work under way."""

    flying: list[Flight] = Factory(list)

    def add(self, finish: Callable[[], None], after: tuple[Flight, ...] = ()) -> Flight:
        """Send work off."""
        flight = Flight(finish, tuple(each for each in after if not each.landed))
        self.flying.append(flight)
        return flight

    def completable(self) -> list[Flight]:
        """The work that could complete now."""
        return [f for f in self.flying if all(each.landed for each in f.after)]

    def complete(self, flight: Flight) -> None:
        """Let it happen."""
        self.flying.remove(flight)
        flight.landed = True
        flight.finish()
