"""The study and its loop: order, recording, interruptions, retries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from explorer.errors import RecordError
from explorer.records import CompileFailed, Crashed, Measured, Outcome, TimedOut, Trial
from explorer.records.files import drop_torn_line
from explorer.search import (
    Budget,
    FeasibleSampler,
    Prepared,
    SearchLoop,
    StudyLog,
    file_storage,
    replay,
)
from explorer.search.study import STUDY
from tests.support.fakes import CHOICES, FakeEvaluator, FakeModel


class Killed(BaseException):
    """Stands for a kill in the middle of a measurement."""


class Mortal(FakeEvaluator):
    """Dies while it measures trial number `lives`."""

    def __init__(self, lives: int) -> None:
        super().__init__()
        self.lives = lives

    def measure(self, prepared: Prepared) -> Outcome:
        if len(self.measured) == self.lives:
            raise Killed
        return super().measure(prepared)


def sampler(lag: int = 0) -> FeasibleSampler:
    return FeasibleSampler(FakeModel(), CHOICES, seed=5, batch=4, lag=lag)


def run(
    path: Path, trials: list[Trial], evaluator: Any, budget: int = 20, lag: int = 0
) -> StudyLog:
    picks = sampler(lag)
    log = StudyLog(picks, CHOICES, file_storage(path))
    trials.extend(log.reconcile(trials))
    loop = SearchLoop(log, picks, evaluator, trials.append, lag)
    loop.run(Budget(budget, time.monotonic() + 60.0), done=len(trials))
    return log


def states(path: Path) -> list[TrialState]:
    study = optuna.load_study(study_name=STUDY, storage=file_storage(path))
    return [trial.state for trial in study.trials]


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("lives", [0, 1, 5, 8, 11])
def test_a_killed_search_goes_on_with_nothing_lost(tmp_path: Path, lives: int, lag: int) -> None:
    path, trials = tmp_path / "study", list[Trial]()
    with pytest.raises(Killed):
        run(path, trials, Mortal(lives), lag=lag)
    assert len(trials) == lives
    interrupted = states(path).count(TrialState.RUNNING)
    assert interrupted > 0
    before = list(trials)
    run(path, trials, FakeEvaluator(), lag=lag)
    assert trials[:lives] == before
    assert len(trials) == 20
    assert TrialState.RUNNING not in states(path)
    retried = [each for each in trials if each.origin == "retry"]
    assert len(retried) == interrupted
    assert len({each.assignment for each in trials}) == 20
    assert replay(sampler(lag), CHOICES, trials) is None


def test_a_trial_interrupted_twice_is_given_up(tmp_path: Path) -> None:
    path, trials = tmp_path / "study", list[Trial]()
    for _ in range(2):
        with pytest.raises(Killed):
            run(path, trials, Mortal(0))
    run(path, trials, FakeEvaluator())
    given_up = [each for each in trials if each.outcome == Crashed("interrupted twice")]
    assert len(given_up) == 4
    assert len({each.assignment for each in trials}) == len(trials) == 20


def test_an_outcome_recorded_but_not_told_is_told(tmp_path: Path) -> None:
    path, trials = tmp_path / "study", list[Trial]()

    def record(trial: Trial) -> None:
        trials.append(trial)
        if trial.number == 2:
            raise Killed

    picks = sampler()
    log = StudyLog(picks, CHOICES, file_storage(path))
    with pytest.raises(Killed):
        SearchLoop(log, picks, FakeEvaluator(), record).run(Budget(20, time.monotonic() + 60))
    assert states(path)[2] == TrialState.RUNNING
    run(path, trials, FakeEvaluator())
    assert states(path)[:4] == [TrialState.COMPLETE] * 3 + [TrialState.FAIL]
    assert [each.number for each in trials if each.origin == "retry"] == [4]


def test_a_study_cut_at_any_byte_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "study"
    run(path, [], FakeEvaluator(), budget=4)
    whole = path.read_bytes()
    for cut in range(1, 200, 13):
        path.write_bytes(whole[:-cut])
        drop_torn_line(path)
        trials: list[Trial] = []
        run(path, trials, FakeEvaluator(), budget=6)
        assert TrialState.RUNNING not in states(path)


def test_a_stale_lock_does_not_hold_up(tmp_path: Path) -> None:
    path = tmp_path / "study"
    run(path, [], FakeEvaluator(), budget=2)
    (tmp_path / "study.lock").symlink_to("study")
    started = time.monotonic()
    run(path, [], FakeEvaluator(), budget=4)
    assert time.monotonic() - started < 5.0


def test_failures_are_outcomes_and_never_tried_again() -> None:
    def fail(point: dict[str, int]) -> Outcome | None:
        table: dict[int, Outcome] = {
            16: CompileFailed("no"),
            32: TimedOut(2.0),
            256: Crashed("11"),
        }
        return table.get(point["block_M"])

    trials: list[Trial] = []
    picks = sampler()
    log = StudyLog(picks, CHOICES)
    evaluator = FakeEvaluator(fail)
    SearchLoop(log, picks, evaluator, trials.append).run(Budget(60, time.monotonic() + 60))
    assert [each.number for each in trials] == list(range(60))
    assert len({each.assignment for each in trials}) == 60
    kinds = {type(each.outcome) for each in trials}
    assert kinds == {Measured, CompileFailed, TimedOut, Crashed}
    for each in trials:
        expected = fail(each.choices)
        assert each.outcome == expected if expected else isinstance(each.outcome, Measured)


@pytest.mark.parametrize(("lag", "overlaps"), [(0, False), (1, True)])
def test_building_overlaps_measuring_only_with_a_lag(lag: int, overlaps: bool) -> None:
    building, seen = set[str](), set[bool]()

    class Watched(FakeEvaluator):
        def prepare(self, assignment: dict[str, int]) -> Prepared:
            name = str(assignment)
            building.add(name)
            time.sleep(0.02)
            building.discard(name)
            return super().prepare(assignment)

        def measure(self, prepared: Prepared) -> Outcome:
            seen.add(bool(building))
            return super().measure(prepared)

    picks = sampler(lag)
    log = StudyLog(picks, CHOICES)
    SearchLoop(log, picks, Watched(), [].append, lag).run(Budget(16, time.monotonic() + 60))
    assert (True in seen) == overlaps


def test_the_deadline_ends_the_search_and_the_rest_is_tried_later(tmp_path: Path) -> None:
    class Slow(FakeEvaluator):
        def measure(self, prepared: Prepared) -> Outcome:
            time.sleep(0.05)
            return super().measure(prepared)

    path, trials = tmp_path / "study", list[Trial]()
    picks = sampler()
    log = StudyLog(picks, CHOICES, file_storage(path))
    SearchLoop(log, picks, Slow(), trials.append).run(Budget(1000, time.monotonic() + 0.3))
    assert 1 <= len(trials) <= 8
    assert TrialState.RUNNING not in states(path)
    left = states(path).count(TrialState.FAIL)
    run(path, trials, FakeEvaluator())
    assert len([each for each in trials if each.origin == "retry"]) == left
    assert len({each.assignment for each in trials}) == len(trials) == 20
    assert replay(sampler(), CHOICES, trials) is None


@pytest.mark.parametrize("cut", ["all", "half", "params"])
@pytest.mark.parametrize("lag", [0, 1])
def test_a_study_that_lacks_trials_is_made_anew(tmp_path: Path, cut: str, lag: int) -> None:
    path, trials = tmp_path / "study", list[Trial]()
    with pytest.raises(Killed):
        run(path, trials, Mortal(6), lag=lag)
    run(path, trials, FakeEvaluator(), budget=12, lag=lag)
    lines = path.read_text().splitlines(keepends=True)
    if cut == "all":
        path.unlink()
    elif cut == "half":
        path.write_text("".join(lines[: len(lines) // 2]))
    else:
        last = max(at for at, line in enumerate(lines) if '"params"' in line or "param" in line)
        path.write_text("".join(lines[:last]))
    before = list(trials)
    run(path, trials, FakeEvaluator(), lag=lag)
    assert trials[:12] == before
    assert len({each.number for each in trials}) == len(trials) == 20
    assert len({each.assignment for each in trials}) == 20
    assert replay(sampler(lag), CHOICES, trials) is None


@pytest.mark.parametrize("line", ['{"op_code": 77}', '{"hello": 1}', "[]", '{"op_code": 4}'])
def test_a_journal_of_garbage_is_one_clear_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "study"
    run(path, [], FakeEvaluator(), budget=4)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(RecordError, match="is not a readable study") as caught:
        StudyLog(sampler(), CHOICES, file_storage(path))
    assert "\n" not in str(caught.value)
