"""A whole run on a fake device: the answer, the folder, and every way to end early."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer.errors import ExplorerError, InputError, Interrupted, NoLegalCandidate, RecordError
from explorer.machine import CPU, H200
from explorer.records import (
    CompileFailed,
    Crashed,
    Measured,
    Outcome,
    TimedOut,
    Trial,
    WrongResult,
    default_folder,
    load,
)
from explorer.runtime import load_workload
from explorer.schedule.bound import Schedule
from explorer.tune import replay_run
from explorer.tune.device import plausible
from explorer.tune.identity import source_digest
from explorer.tune.peak import fastest_us, limit_s
from explorer.tune.run import Silent
from tests.support.fakes import FakeDevice, fake_session, small_workload, tune_fake


def test_the_answer_and_its_json(tmp_path: Path) -> None:
    opened: list[FakeDevice] = []
    result = tune_fake(tmp_path / "r", trials=40, session=fake_session(opened=opened))
    answer = json.loads(result.json_text())
    assert list(answer) == [
        "space",
        "machine",
        "problem",
        "trials",
        "measured",
        "rejected",
        "solver_ms_median",
        "seconds",
        "best",
        "baseline",
        "outcomes",
        "out",
    ]
    assert answer["problem"] == {"M": 256, "N": 256, "K": 256, "dtype": "float32"}
    assert (answer["trials"], answer["measured"], answer["rejected"]) == (40, 40, 0)
    assert 0.0 < answer["solver_ms_median"] <= 20.0
    assert answer["outcomes"] == {
        "Measured": 40,
        "Infeasible": 0,
        "CompileFailed": 0,
        "WrongResult": 0,
        "TimedOut": 0,
        "Crashed": 0,
    }
    best, baseline = answer["best"], answer["baseline"]
    assert set(best) == {"time_us", "throughput", "unit", "schedule"}
    assert best["throughput"] == pytest.approx(2.0 * 256**3 / best["time_us"] / 1e3)
    assert best["unit"] == "GFLOP/s"
    assert baseline["ratio"] == pytest.approx(baseline["time_us"] / best["time_us"])
    assert answer["out"] == str(tmp_path / "r")
    assert opened[0].races[-1][2], "the final is run with the peer"


def test_the_best_is_the_fastest_as_far_as_it_can_be_told(tmp_path: Path) -> None:
    result = tune_fake(tmp_path / "r")
    fastest = min(each.time_us or 0.0 for each in result.trials)
    assert result.best.low_us <= fastest * 1.02
    assert result.best.trial == min(result.best.ties)


def test_a_recorded_run_replays_and_two_seeds_differ(tmp_path: Path) -> None:
    first = tune_fake(tmp_path / "a", trials=24)
    again = tune_fake(tmp_path / "b", trials=24)
    other = tune_fake(tmp_path / "c", trials=24, seed=1)
    points = [[each.assignment for each in result.trials] for result in (first, again, other)]
    assert points[0] == points[1] != points[2]
    assert replay_run(load(tmp_path / "a"), small_workload()) is None


def test_a_replay_over_another_space_is_refused(tmp_path: Path) -> None:
    tune_fake(tmp_path / "r", trials=4)
    other = small_workload(tiles={"cpu": {"block_M": (32,), "block_N": (32,), "block_K": (64,)}})
    with pytest.raises(InputError, match="was made over space"):
        replay_run(load(tmp_path / "r"), other)


def test_failures_are_outcomes_and_the_best_is_the_fastest_good(tmp_path: Path) -> None:
    def fail(schedule: Schedule) -> Outcome | None:
        table: dict[int, Outcome] = {32: TimedOut(10.0), 64: WrongResult(0.5, 1e-5)}
        if schedule.params["block_K"] == 128:
            return CompileFailed("no registers")
        return table.get(schedule.params["block_M"])

    result = tune_fake(tmp_path / "r", trials=40, session=fake_session(fail))
    assert sum(result.outcomes.values()) == 40
    assert all(result.outcomes[kind] for kind in ("TimedOut", "WrongResult", "CompileFailed"))
    assert result.best.schedule.params["block_M"] == 128
    assert [each.number for each in result.trials] == list(range(40))


def test_when_everything_fails_the_reasons_are_counted(tmp_path: Path) -> None:
    def fail(schedule: Schedule) -> Outcome:
        return CompileFailed("cc: no space") if schedule.params["block_M"] == 64 else Crashed("11")

    with pytest.raises(ExplorerError, match="none of 12 candidates could be measured") as caught:
        tune_fake(tmp_path / "r", trials=12, session=fake_session(fail))
    text = str(caught.value)
    assert caught.value.exit_code == 1
    assert "Crashed" in text
    assert "CompileFailed" in text
    assert "cc: no space" in text
    run = load(tmp_path / "r")
    assert (run.info.state, run.best, len(run.trials)) == ("failed", None, 12)


def test_an_empty_space_names_its_rules_and_leaves_nothing(tmp_path: Path) -> None:
    huge = small_workload(
        tiles={"cpu": {"block_M": (4096,), "block_N": (4096,), "block_K": (4096,)}}
    )
    with pytest.raises(NoLegalCandidate, match=r"no legal candidate among \d+ on cpu: .*capacity"):
        tune_fake(tmp_path / "r", workload=huge)
    assert not (tmp_path / "r").exists()


def test_no_tiles_for_the_machine_is_the_users_fault(tmp_path: Path) -> None:
    workload = small_workload(tiles={"h200": {}})
    with pytest.raises(InputError, match="toy has no tile sizes for cpu: it has them for h200"):
        tune_fake(tmp_path / "r", workload=workload)


class Stopping(Silent):
    """Interrupts after some trials."""

    def __init__(self, after: int) -> None:
        self.after = after

    def trial(self, trial: Trial, done: int, best_us: float | None) -> None:
        if done == self.after:
            raise KeyboardInterrupt


def test_an_interrupt_saves_and_a_resume_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "r"
    first = tune_fake(out, trials=20, watcher=Stopping(7))
    assert (first.info.state, len(first.trials)) == ("interrupted", 7)
    assert load(out).best == first.best
    second = tune_fake(out, trials=20, resume=True)
    assert second.info.state == "done"
    assert second.trials[:7] == first.trials
    assert len(second.trials) == 20
    assert second.info.elapsed_s > first.info.elapsed_s
    assert replay_run(load(out), small_workload()) is None


def test_an_interrupt_before_the_first_trial_is_said(tmp_path: Path) -> None:
    class AtOnce(Silent):
        def phase(self, text: str) -> None:
            if text == "searching":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_fake(tmp_path / "r", watcher=AtOnce())
    assert tune_fake(tmp_path / "r", trials=4, resume=True).info.state == "done"


def test_a_finished_run_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    tune_fake(tmp_path / "r", trials=8)
    again = tune_fake(tmp_path / "r", trials=8, resume=True)
    assert len(again.trials) == 8
    assert len(tune_fake(tmp_path / "r", trials=12, resume=True).trials) == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workload": small_workload(tolerance={"float32": 1e-3})}, "tolerance=0.001"),
        ({"sizes": {"M": 128}}, "is a run of another study: space"),
        ({"seed": 3}, "was started with --seed 0, not 3"),
    ],
)
def test_a_run_of_another_study_is_not_continued(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    tune_fake(tmp_path / "r", trials=4)
    with pytest.raises(InputError, match=message):
        tune_fake(tmp_path / "r", trials=8, resume=True, **changes)
    assert len(load(tmp_path / "r").trials) == 4


def test_a_run_goes_on_with_its_own_problem(tmp_path: Path) -> None:
    tune_fake(tmp_path / "r", trials=4, sizes={"M": 128})
    again = tune_fake(tmp_path / "r", trials=6, resume=True)
    assert dict(again.info.sizes)["M"] == 128
    assert len(again.trials) == 6


def test_a_folder_in_the_way_is_not_touched(tmp_path: Path) -> None:
    tune_fake(tmp_path / "r", trials=4)
    before = {each: each.read_bytes() for each in (tmp_path / "r").iterdir()}
    with pytest.raises(RecordError, match="is not empty"):
        tune_fake(tmp_path / "r", trials=4)
    assert {each: each.read_bytes() for each in (tmp_path / "r").iterdir()} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials must be positive, got 0"),
        ({"trials": -3}, "trials must be positive"),
        ({"trials": 2.5}, "trials must be a whole number"),
        ({"seconds": float("nan")}, "seconds must be positive, got nan"),
        ({"seconds": float("inf")}, "seconds must be finite, got inf"),
        ({"trials": 10**400}, "trials must be finite"),
        ({"seed": "x"}, "seed must be a whole number from 0, got 'x'"),
        ({"seed": 1.5}, "seed must be a whole number from 0, got 1.5"),
        ({"seed": -1}, "seed must be a whole number from 0, got -1"),
        ({"sizes": 5}, "sizes gives problem sizes by name, got 5"),
        ({"out": 5}, "out must be the path of a folder, got 5"),
        ({"dtype": ""}, "unknown dtype ''"),
        ({"resume": True, "out": None}, "--out is missing"),
        ({"sizes": {"Q": 4}}, "unknown size 'Q': toy has M, N, K"),
        ({"sizes": {"M": 0}}, "size M=0 must be a positive integer"),
        ({"dtype": "float12"}, "unknown dtype 'float12'"),
        ({"dtype": "int8"}, "toy does not run on int8"),
    ],
)
def test_bad_requests(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tune_fake(**{"out": tmp_path / "r", **options})
    assert not (tmp_path / "r").exists()


def test_a_workload_is_named_not_passed() -> None:
    with pytest.raises(InputError, match="worker processes load it from its file"):
        explorer.tune(small_workload())  # type: ignore[arg-type]


def test_an_interrupt_without_an_answer_has_its_own_code(tmp_path: Path) -> None:
    def interrupted(_: Schedule) -> Outcome:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="interrupted before the first one ended") as caught:
        tune_fake(tmp_path / "r", session=fake_session(interrupted))
    assert caught.value.exit_code == 130


def test_unknown_options_are_named() -> None:
    with pytest.raises(InputError, match="unknown option 'budget'"):
        explorer.tune("toy", budget=3)


@pytest.mark.parametrize(
    ("samples", "good"), [((5.0, 6.0), True), ((0.0, 6.0), False), ((-1.0,), False)]
)
def test_times_that_cannot_be_true_are_no_measurement(
    samples: tuple[float, ...], good: bool
) -> None:
    outcome = Measured(max(samples), samples, 0.0)
    assert isinstance(plausible(outcome, 0.0), Measured) == good


def test_a_time_above_the_peak_is_no_measurement() -> None:
    problem = small_workload().problem({"M": 1024, "N": 1024, "K": 1024})
    bound = fastest_us(2.0 * 1024**3, "FLOP", problem.dtype, CPU)
    assert 100.0 < bound < 10_000.0
    assert isinstance(plausible(Measured(bound * 0.9, (bound * 0.9,), 0.0), bound), Crashed)
    assert isinstance(plausible(Measured(bound, (bound,), 0.0), bound), Measured)
    # 2 x 8192 x 8192 x 256 operations at 386 TFLOP/s are 89 us, and possible.
    work = 2.0 * 8192 * 8192 * 256
    assert (
        fastest_us(work, "FLOP", problem.dtype, H200)
        < work / 386e12 * 1e6
        == pytest.approx(89.0, abs=0.1)
    )


def test_two_problems_are_two_studies(tmp_path: Path) -> None:
    keys = {
        tune_fake(tmp_path / str(size), trials=2, sizes={"M": size}).info.key.digest
        for size in (128, 256)
    }
    assert len(keys) == 2


def test_the_limit_of_a_run_grows_with_its_work() -> None:
    assert limit_s(2.0 * 64**3, CPU) == 5.0
    assert 5.0 < limit_s(2.0 * 1024**3, CPU) < 10.0
    assert limit_s(2.0 * 8192**3, CPU) > 300.0


def test_what_draws_and_computes_is_known_by_its_files(tmp_path: Path) -> None:
    path = tmp_path / "space.py"

    def digest_of(text: str, name: str = "toy") -> str | None:
        path.write_text(text)
        members: dict[str, Any] = {}
        exec(compile(text, str(path), "exec"), members)
        return source_digest(members["made"], name)

    text = "SCALE = 1\ndef make(flag):\n    return lambda: (flag, SCALE)\nmade = make(True)\n"
    first = digest_of(text)
    assert first is not None
    assert digest_of(text) == first
    others = [text.replace("SCALE = 1", "SCALE = 2"), text.replace("True", "False")]
    assert len({first, *map(digest_of, others), digest_of(text, "other")}) == 4
    members: dict[str, Any] = {}
    exec("made = lambda: 1", members)
    assert source_digest(members["made"], "toy") is None
    for name in ("gemm", "gemm_tt"):
        shipped = load_workload(name)
        assert source_digest(shipped.inputs, name)
        assert source_digest(shipped.reference, name)


def test_runs_of_one_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _: "now")
    paths = [default_folder("toy", "cpu") for _ in range(3)]
    assert [path.name for path in paths] == ["toy-cpu-now", "toy-cpu-now-2", "toy-cpu-now-3"]
    assert all(path.is_dir() for path in paths)


def test_a_run_goes_on_without_its_study(tmp_path: Path) -> None:
    first = tune_fake(tmp_path / "r", trials=10)
    (tmp_path / "r" / "study.journal").unlink()
    again = tune_fake(tmp_path / "r", trials=16, resume=True)
    assert again.trials[:10] == first.trials
    assert [trial.number for trial in again.trials] == list(range(16))
    assert replay_run(load(tmp_path / "r"), small_workload()) is None


def test_a_run_of_a_shipped_space_goes_on(tmp_path: Path) -> None:
    shipped = load_workload("gemm")
    sizes = {"M": 128, "N": 128, "K": 128}
    first = tune_fake(tmp_path / "r", workload=shipped, trials=3, sizes=sizes)
    again = tune_fake(tmp_path / "r", workload=shipped, trials=5, resume=True)
    assert again.trials[:3] == first.trials
    assert len(again.trials) == 5


def test_a_changed_file_beside_the_space_is_another_study(tmp_path: Path) -> None:
    path, beside = tmp_path / "space.py", tmp_path / "beside_this_space.py"
    path.write_text(
        "from attrs import evolve\nfrom beside_this_space import make\n"
        "from explorer.runtime import load_workload\n"
        "mine = evolve(load_workload('gemm'), inputs=lambda problem, rng: make())\n"
    )
    beside.write_text("def make(): return 1\n")
    inputs = load_workload(f"{path}:mine").inputs
    first = source_digest(inputs, "toy")
    assert first is not None
    beside.write_text("def make(): return 2\n")
    assert source_digest(inputs, "toy") not in (None, first)
    sys.modules.pop("beside_this_space")
