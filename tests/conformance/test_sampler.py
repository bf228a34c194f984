"""What every sampler of schedules must hold, on an enumerated model and on the solver's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from attrs import frozen
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from explorer.constraints import FeasibleModel
from explorer.machine import CPU
from explorer.records import Crashed, Measured, Trial
from explorer.search import (
    Budget,
    Exhausted,
    Feasible,
    FeasibleSampler,
    SearchEnd,
    SearchLoop,
    StudyLog,
    replay,
)
from explorer.space import Choice, space_of
from tests.support.fakes import CHOICES, FakeEvaluator, FakeModel, small_workload

FEW = (Choice("skeleton", (0, 1, 2)), Choice("block_M", (16, 32, 64, 128)), Choice("depth", (1,)))


@frozen
class Case:
    """A space with its model; `legal` is the number of its legal points, where it is known."""

    choices: tuple[Choice, ...]
    model: Callable[[], Feasible]
    canonical: Callable[[dict[str, int]], dict[str, int]] = dict


SPACE = space_of(small_workload(), small_workload().problem(), CPU)
CASES = {
    "enumerated": Case(CHOICES, FakeModel),
    "solver": Case(SPACE.choices, lambda: FeasibleModel(SPACE), SPACE.canonical),
}
HORIZONS = [(1, 0), (4, 0), (4, 1), (3, 2)]


def sampler_of(case: Case, batch: int = 4, lag: int = 0, seed: int = 3) -> FeasibleSampler:
    return FeasibleSampler(
        case.model(), case.choices, seed=seed, batch=batch, lag=lag, canonical=case.canonical
    )


def evaluator_of(case: Case) -> Any:
    if case is CASES["enumerated"]:
        return FakeEvaluator()

    class Evaluator(FakeEvaluator):
        def measure(self, prepared: Any) -> Measured:
            point = prepared.artifact
            time_us = 1.0 + abs(point["block_M"] - 64) + 7.0 * point["blocks"]
            return Measured(time_us, (time_us,), 0.0)

    return Evaluator()


def search(
    case: Case, trials: int, batch: int = 4, lag: int = 0, evaluator: Any = None, seed: int = 3
) -> tuple[list[Trial], SearchEnd]:
    sampler = sampler_of(case, batch, lag, seed)
    log = StudyLog(sampler, case.choices)
    found: list[Trial] = []
    loop = SearchLoop(log, sampler, evaluator or evaluator_of(case), found.append, lag)
    return found, loop.run(Budget(trials, time.monotonic() + 60.0))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("batch", "lag"), HORIZONS)
def test_same_seed_and_outcomes_give_the_same_proposals(name: str, batch: int, lag: int) -> None:
    first, _ = search(CASES[name], 30, batch, lag)
    again, _ = search(CASES[name], 30, batch, lag)
    assert [each.assignment for each in first] == [each.assignment for each in again]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("batch", "lag"), HORIZONS)
def test_a_recorded_run_replays(name: str, batch: int, lag: int) -> None:
    case = CASES[name]
    trials, _ = search(case, 30, batch, lag)
    assert replay(sampler_of(case, batch, lag), case.choices, trials) is None


@pytest.mark.parametrize("name", CASES)
def test_a_replay_notices_other_outcomes(name: str) -> None:
    case = CASES[name]
    trials, _ = search(case, 40)
    assert replay(sampler_of(case, seed=4), case.choices, trials) is not None


@pytest.mark.parametrize("name", CASES)
def test_every_proposal_is_new_and_of_the_domains(name: str) -> None:
    case = CASES[name]
    trials, _ = search(case, 40)
    assert len({each.assignment for each in trials}) == 40
    domains = {choice.name: choice.domain for choice in case.choices}
    for each in trials:
        assert each.choices.keys() == domains.keys()
        assert all(value in domains[key] for key, value in each.choices.items())


@pytest.mark.parametrize("name", CASES)
def test_outcomes_beyond_the_horizon_do_not_matter(name: str) -> None:
    case = CASES[name]
    trials, _ = search(case, 32, batch=4, lag=1)
    changed = [
        each if each.number < 24 else Trial(each.number, each.assignment, "", Crashed(""), "")
        for each in trials
    ]
    sampler = sampler_of(case, 4, 1)
    assert sampler.horizon(31) == 24
    assert replay(sampler, case.choices, changed) is None


def suggest(trial: optuna.Trial, name: str, each: BaseDistribution) -> int:
    if isinstance(each, CategoricalDistribution):
        return int(str(trial.suggest_categorical(name, each.choices)))
    assert isinstance(each, IntDistribution)
    return trial.suggest_int(name, each.low, each.high, log=each.log)


@pytest.mark.parametrize("name", CASES)
def test_optuna_can_drive_it(name: str) -> None:
    case = CASES[name]
    sampler = sampler_of(case, batch=1)
    study = optuna.create_study(sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        return float(sum(suggest(trial, *item) for item in sampler.space.items()))

    study.optimize(objective, n_trials=24)
    points = {tuple(sorted(each.params.items())) for each in study.trials}
    assert len(points) == 24


def legal_five(point: dict[str, int]) -> bool:
    return (point["skeleton"], point["block_M"]) in {(0, 16), (0, 64), (1, 32), (2, 16), (2, 128)}


@pytest.mark.parametrize("lag", [0, 1])
def test_a_space_of_five_ends_after_five(lag: int) -> None:
    case = Case(FEW, lambda: FakeModel(FEW, legal_five))
    evaluator = FakeEvaluator()
    evaluator.measure = lambda _: Measured(1.0, (1.0,), 0.0)  # type: ignore[method-assign]
    trials, end = search(case, 20, lag=lag, evaluator=evaluator)
    assert end.reason == "exhausted"
    assert len(trials) == 5
    assert len({each.assignment for each in trials}) == 5
    assert all(legal_five(each.choices) for each in trials)


def test_an_exhausted_sampler_says_so() -> None:
    sampler = FeasibleSampler(FakeModel(FEW, lambda _: False), FEW, seed=0)
    with pytest.raises(Exhausted) as caught:
        sampler.propose(optuna.create_study(), 0)
    assert caught.value.proved


def test_unknown_is_not_exhausted() -> None:
    class Unsure(FakeModel):
        def project(self, target: Any) -> Any:
            return type(super().project(target))("unknown")

    trials, end = search(Case(FEW, lambda: Unsure(FEW, legal_five)), 20)
    assert (end.reason, trials) == ("unknown", [])


def test_given_candidates_come_first_moved_to_legal_ones() -> None:
    prior = [{"skeleton": 2, "block_M": 128, "depth": 1}, {"skeleton": 1, "block_M": 128}]
    sampler = FeasibleSampler(FakeModel(FEW, legal_five), FEW, seed=0, prior=prior)
    log = StudyLog(sampler, FEW)
    first, second = log.next()[1], log.next()[1]
    assert (first.origin, first.assignment["block_M"]) == ("prior", 128)
    assert (second.origin, legal_five(second.assignment)) == ("prior", True)


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_bottom_of_a_smooth_bowl(seed: int) -> None:
    trials, _ = search(CASES["enumerated"], 64, seed=seed)
    times = sorted(each.time_us or 0.0 for each in trials)
    assert times[0] <= 120.0
