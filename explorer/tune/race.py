"""From measured trials to a winner: the contenders race, then the finalists with the peer.

Invariant: the peer and the finalists run interleaved, in the same rounds, on the same inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from attrs import frozen

from explorer.records import Baseline, BestSchedule, Trial
from explorer.schedule.bound import Schedule
from explorer.search import Standing, contenders, standings, winner
from explorer.tune.device import Device

CONTENDERS, FINALISTS = 8, 4
ROUNDS, FINAL_ROUNDS, LEAST_ROUNDS = 5, 21, 5
# A sample of a short kernel is several runs, and one more warms up.
_SAMPLE_S, _RUNS_A_SAMPLE = 1e-3, 2.0


@frozen
class Verdict:
    """The table of the final, and the peer's samples where it has some."""

    table: tuple[Standing, ...]
    peer_us: tuple[float, ...]


def race(
    device: Device,
    trials: Sequence[Trial],
    artifact: Callable[[Trial], Any],
    deadline: float,
) -> Verdict:
    """Race the trials within the noise of the best; an empty table where none came through."""
    entrants = contenders(trials, CONTENDERS)
    if len(entrants) > 1:
        rounds = _rounds(entrants, ROUNDS, deadline, share=0.4)
        table, _ = _run(device, entrants, artifact, rounds, with_peer=False)
        kept = {each.trial for each in [row for row in table if row.tied][:FINALISTS]}
        entrants = [trial for trial in entrants if trial.number in kept] or entrants[:FINALISTS]
    rounds = _rounds(entrants, FINAL_ROUNDS, deadline, share=0.8)
    table, peer_us = _run(device, entrants, artifact, rounds, with_peer=True)
    return Verdict(tuple(table), peer_us)


def race_s(best_us: float) -> float:
    """Seconds that a whole race takes, loading included, where the best takes `best_us`."""
    samples = CONTENDERS * ROUNDS + (FINALISTS + 1) * FINAL_ROUNDS
    return 1.0 + samples * max(_SAMPLE_S, _RUNS_A_SAMPLE * best_us * 1e-6)


def _run(
    device: Device,
    entrants: Sequence[Trial],
    artifact: Callable[[Trial], Any],
    rounds: int,
    with_peer: bool,
) -> tuple[list[Standing], tuple[float, ...]]:
    builts = [artifact(trial) for trial in entrants]
    results = device.race(builts, rounds, with_peer)
    finished = [
        (trial.number, samples)
        for trial, samples in zip(entrants, results, strict=False)
        if samples
    ]
    peer = results[len(entrants)] if with_peer and len(results) > len(entrants) else None
    return standings(finished), tuple(peer or ())


def _rounds(entrants: Sequence[Trial], most: int, deadline: float, share: float) -> int:
    """As many rounds as the time left allows, one more entrant counted for the peer."""
    round_s = 2.0 * sum(trial.time_us or 0.0 for trial in entrants) * 1e-6
    left = max(0.0, deadline - time.monotonic()) * share
    return max(LEAST_ROUNDS, min(most, int(left / round_s) if round_s > 0 else most))


def best_of(
    verdict: Verdict,
    candidate: Callable[[int], Schedule],
    work: float,
    unit: str,
    peer: str | None,
) -> BestSchedule:
    """The winner with its figures; `work` operations a run give the throughput in 1e9 a second."""
    first = winner(verdict.table)
    baseline = None
    if peer and verdict.peer_us:
        peer_us = median(verdict.peer_us)
        baseline = Baseline(peer, peer_us, peer_us / first.time_us)
    return BestSchedule(
        schedule=candidate(first.trial),
        trial=first.trial,
        time_us=first.time_us,
        low_us=first.low_us,
        high_us=first.high_us,
        samples_us=first.samples_us,
        throughput=work / first.time_us * 1e-3,
        unit=unit,
        ties=tuple(sorted(each.trial for each in verdict.table if each.tied)),
        baseline=baseline,
    )
