"""What tuning needs of a device session, and the candidates that are built for one.

Invariant: a candidate that reaches a device has passed the concrete checker; one that the solver
proposed and the checker refuses is `Infeasible`, and counted as refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from explorer.constraints import check
from explorer.records import CompileFailed, Crashed, Infeasible, Measured, Outcome
from explorer.schedule.bound import Schedule
from explorer.search import Prepared
from explorer.space import Assignment, SearchSpace


class Device(Protocol):
    """A session with one device; `runtime.Session` is one."""

    @property
    def peer_name(self) -> str | None: ...
    @property
    def device(self) -> str: ...
    @property
    def toolchain(self) -> str: ...
    def build(self, schedule: Schedule) -> Any: ...
    def measure(self, built: Any, repeats: int) -> Outcome: ...
    def race(
        self, builts: Sequence[Any], rounds: int, with_peer: bool
    ) -> Sequence[Sequence[float] | None]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class DeviceEvaluator:
    """Builds candidates of a space and measures them on a device."""

    def __init__(
        self, space: SearchSpace, device: Device, repeats: int, fastest_us: float
    ) -> None:
        self._space, self._device = space, device
        self._repeats, self._fastest_us = repeats, fastest_us

    def prepare(self, assignment: Assignment) -> Prepared:
        """The candidate of an assignment, checked and compiled."""
        return prepare(self._space, assignment, self._device.build)

    def measure(self, prepared: Prepared) -> Outcome:
        """The outcome on the device; a time that cannot be true is no measurement."""
        return plausible(self._device.measure(prepared.artifact, self._repeats), self._fastest_us)


def prepare(
    space: SearchSpace, assignment: Assignment, build: Callable[[Schedule], Any]
) -> Prepared:
    """The candidate of an assignment, checked and compiled, or the outcome that it ends with."""
    schedule = space.candidate(assignment)
    report = check(space.kernel, schedule, space.machine)
    if not report.ok:
        rules = tuple(dict.fromkeys(each.rule for each in report.violations))
        refusal = Infeasible(rules, "; ".join(map(str, report.violations)))
        return Prepared(schedule.digest, None, refusal)
    built = build(schedule)
    failure = built if isinstance(built, CompileFailed) else None
    return Prepared(schedule.digest, built, failure)


def plausible(outcome: Outcome, fastest_us: float) -> Outcome:
    """The outcome, or a failure where a time is not positive or above the device's peak."""
    if not isinstance(outcome, Measured):
        return outcome
    shortest = min((outcome.time_us, *outcome.samples_us))
    if shortest > 0.0 and shortest >= fastest_us:
        return outcome
    return Crashed(
        f"time-plausible: {shortest:.4g} us is below {fastest_us:.4g} us, "
        "what the device's peak allows; the timer or the launch is broken"
    )


SessionFactory = Callable[..., Device]
