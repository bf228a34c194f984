"""What became of a candidate: the outcomes a trial can have.

A candidate that fails to compile, is wrong, hangs or crashes is an outcome, never the end of a
search. Only `Measured` carries times, and only after its result agreed with the reference.

Invariant: `Outcome` is closed: every stored outcome is one of these classes, tagged by its name.
"""

from __future__ import annotations

import math

from attrs import field, frozen

from explorer.data import register_union


def _finite(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _samples(values: object) -> tuple[float, ...]:
    return tuple(values)  # type: ignore[arg-type]


@frozen
class Infeasible:
    """Refused before compiling; `rules` names the rules it breaks."""

    rules: tuple[str, ...]
    message: str


@frozen
class CompileFailed:
    """The compiler refused the source, or changed what the schedule asks for."""

    message: str


@frozen
class WrongResult:
    """||out - ref|| / ||ref|| exceeds the tolerance; a NaN in the output counts as infinite.

    `detail` says how many elements were never written, or which one is the first that is off.
    """

    error: float = field(converter=_finite)
    tolerance: float
    detail: str = ""


@frozen
class TimedOut:
    """It did not end within `seconds`; `report` says who waited for what, where that is known."""

    seconds: float
    report: str = ""


@frozen
class Crashed:
    """It took its worker down, or its timing cannot be true."""

    message: str


@frozen
class Measured:
    """Right, and timed on the device: the median, every sample, and the error of the result."""

    time_us: float
    samples_us: tuple[float, ...] = field(converter=_samples)
    error: float


Outcome = Infeasible | CompileFailed | WrongResult | TimedOut | Crashed | Measured
OUTCOMES: tuple[type, ...] = (
    Measured,
    Infeasible,
    CompileFailed,
    WrongResult,
    TimedOut,
    Crashed,
)
register_union(Outcome)


def kind_of(outcome: Outcome) -> str:
    """The name of an outcome's class, as it is stored and counted."""
    return type(outcome).__name__


def reason_of(outcome: Outcome) -> str:
    """Why a candidate was not measured, in one line; empty for a measured one."""
    match outcome:
        case Measured():
            return ""
        case WrongResult(error=error, tolerance=tolerance, detail=detail):
            return f"error {error:.3g} > tolerance {tolerance:.3g}" + (detail and f": {detail}")
        case TimedOut(seconds=seconds, report=report):
            return f"no answer within {seconds:g} s" + (f": {report}" if report else "")
        case _:
            return " ".join(outcome.message.split()) or kind_of(outcome)
