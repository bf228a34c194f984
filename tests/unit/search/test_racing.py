"""The race: ties are ties, and the same samples give the same winner."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.records import Crashed, Measured, Trial
from explorer.search import contenders, interval, standings, winner


def noisy(centre: float, seed: int, spread: float = 0.02, rounds: int = 21) -> list[float]:
    rng = np.random.default_rng(seed)
    return list(centre * (1.0 + spread * rng.standard_normal(rounds)))


def trial(number: int, time_us: float, spread: float = 0.0) -> Trial:
    samples = (time_us * (1 - spread), time_us, time_us * (1 + spread))
    return Trial(number, {}, "", Measured(time_us, samples, 0.0), "fill")


def test_the_interval_holds_the_median_and_repeats() -> None:
    samples = noisy(100.0, 1)
    low, high = interval(samples)
    assert low <= float(np.median(samples)) <= high
    assert interval(samples) == (low, high)
    assert interval([5.0]) == (5.0, 5.0)


def test_differences_below_the_noise_are_a_tie_and_the_earliest_wins() -> None:
    table = standings([(9, noisy(100.0, 1)), (4, noisy(100.1, 2)), (7, noisy(120.0, 3))])
    assert [each.trial for each in table if each.tied] in ([9, 4], [4, 9])
    assert winner(table).trial == 4


def test_a_clear_difference_is_none() -> None:
    table = standings([(4, noisy(110.0, 2)), (9, noisy(100.0, 1))])
    assert [each.trial for each in table] == [9, 4]
    assert [each.tied for each in table] == [True, False]
    assert winner(table).trial == 9


def test_a_drift_that_meets_all_does_not_hide_a_difference() -> None:
    drift = np.linspace(1.0, 2.0, 21)
    rounds = [(1, list(105.0 * drift)), (2, list(100.0 * drift))]
    assert [each.tied for each in standings(rounds)] == [True, False]


@pytest.mark.parametrize(("spread", "expected"), [(0.0, [0, 1]), (0.2, [0, 1, 2])])
def test_contenders_are_within_the_noise(spread: float, expected: list[int]) -> None:
    times = [100.0, 104.0, 130.0, 200.0]
    trials = [trial(number, each, spread) for number, each in enumerate(times)]
    failed = Trial(9, {}, "", Crashed("11"), "fill")
    assert [each.number for each in contenders([failed, *trials], 8)] == expected
    assert [each.number for each in contenders(trials, 1)] == [0]
    assert contenders([failed], 8) == []
