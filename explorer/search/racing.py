"""The race: which of the fastest candidates is the fastest, as far as a measurement can tell.

Every candidate was timed a few times. Those within the noise of the best run again, interleaved,
so that a drift of the machine meets all of them; the finalists run a second time together with the
peer. A candidate ties with the leader unless its median ratio to the leader, round by round, lies
above 1 with 95 % confidence (percentile bootstrap, fixed seed). Of those that tie within 2 % the
earliest trial wins, so that the choice does not hang on a difference that is worth nothing.

Invariant: the same samples give the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
from attrs import frozen

from explorer.records import Measured, Trial

RESAMPLES = 2000
NOISE_FLOOR = 0.05
CONFIDENCE = 0.95
INDIFFERENT = 0.02


@frozen
class Standing:
    """A finalist: its median with the confidence interval, and whether it ties with the leader."""

    trial: int
    time_us: float
    low_us: float
    high_us: float
    samples_us: tuple[float, ...]
    tied: bool


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """The bootstrap confidence interval of the median."""
    values = np.asarray(samples, dtype=np.float64)
    draws = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    medians = np.median(values[draws], axis=1)
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(medians, [tail, 100.0 - tail])
    return float(low), float(high)


def noise(trials: Sequence[Trial]) -> float:
    """The relative noise of one timing: the median over trials of the half-spread of samples."""
    spreads = [
        (max(trial.outcome.samples_us) - min(trial.outcome.samples_us))
        / (2.0 * trial.outcome.time_us)
        for trial in trials
        if isinstance(trial.outcome, Measured) and len(trial.outcome.samples_us) > 1
    ]
    return max(NOISE_FLOOR, median(spreads)) if spreads else NOISE_FLOOR


def contenders(trials: Sequence[Trial], limit: int) -> list[Trial]:
    """The measured trials within twice the noise of the best, fastest first, at most `limit`."""
    measured = sorted(
        (trial for trial in trials if trial.time_us is not None),
        key=lambda trial: (trial.time_us or 0.0, trial.number),
    )
    if not measured:
        return []
    bound = (measured[0].time_us or 0.0) * (1.0 + 2.0 * noise(measured))
    return [trial for trial in measured if (trial.time_us or 0.0) <= bound][:limit]


def standings(entrants: Sequence[tuple[int, Sequence[float]]]) -> list[Standing]:
    """The entrants (trial, samples by round) in order of their medians."""
    order = sorted(entrants, key=lambda entrant: (median(entrant[1]), entrant[0]))
    if not order:
        return []
    lead = order[0][1]
    return [_standing(trial, samples, lead) for trial, samples in order]


def winner(table: Sequence[Standing]) -> Standing:
    """The earliest trial of the tie set whose median is next to the leader's."""
    bound = table[0].time_us * (1.0 + INDIFFERENT)
    return min(
        (each for each in table if each.tied and each.time_us <= bound),
        key=lambda each: each.trial,
    )


def _standing(trial: int, samples: Sequence[float], lead: Sequence[float]) -> Standing:
    low, high = interval(samples)
    ratios = [one / other for one, other in zip(samples, lead, strict=False)]
    tied = interval(ratios)[0] <= 1.0
    return Standing(trial, median(samples), low, high, tuple(samples), tied)
