"""Run folders: what is on the disk at any moment, and which folders are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from attrs import evolve

import explorer
from explorer.data import dumps, loads
from explorer.errors import RecordError, ScheduleError
from explorer.machine import CPU
from explorer.records import (
    CompileFailed,
    Contract,
    Crashed,
    Environment,
    Infeasible,
    Measured,
    Outcome,
    RunFolder,
    RunInfo,
    StudyKey,
    TimedOut,
    Trial,
    WrongResult,
    first_difference,
    load,
    pack,
    read_schedule,
    reason_of,
)
from tests.support.fakes import tune_fake

CONTRACT = Contract(1e-5, ("C",), "inputs", "reference", 3, 10.0, "numpy")
KEY = StudyKey("space", "kernel", "rules", "M=4 float32", "device", "cc 1", CONTRACT)
ENVIRONMENT = Environment("3.11", "Linux", "cpu", 2, "cc 1", "device", (("numpy", "2"),))
OUTCOMES: tuple[Outcome, ...] = (
    Measured(10.0, (9.0, 10.0, 12.0), 1e-7),
    Infeasible(("capacity",), "too big"),
    CompileFailed("no\nsuch header"),
    WrongResult(float("nan"), 1e-5),
    TimedOut(10.0, "consumer waits for A full"),
    Crashed("signal 11"),
)


def info(**changes: object) -> RunInfo:
    return evolve(
        RunInfo(
            key=KEY,
            space="toy",
            workload="toy",
            sizes=(("M", 4),),
            dtype="float32",
            machine=CPU,
            seed=0,
            trials=8,
            seconds=10.0,
            batch=4,
            lag=0,
            prior=((("depth", 2),),),
        ),
        **changes,
    )


def trial(number: int, outcome: Outcome = OUTCOMES[0]) -> Trial:
    return Trial(number, {"depth": number, "skeleton": 0}, "abc", outcome, "fill", 1.5, 0.2, 0.1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("runs") / "run"
    tune_fake(out, trials=6)
    return out


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: type(each).__name__)
def test_outcomes_survive_a_round_trip(outcome: Outcome) -> None:
    assert loads(dumps(trial(1, outcome)), Trial) == trial(1, outcome)
    assert "\n" not in reason_of(outcome)


def test_a_finished_trial_is_on_the_disk_at_once(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", info(), ENVIRONMENT) as folder:
        for number, outcome in enumerate(OUTCOMES):
            folder.append(trial(number, outcome))
            lines = (tmp_path / "r" / "trials.jsonl").read_text().splitlines()
            assert len(lines) == number + 1


def test_a_torn_line_is_dropped_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RunFolder.create(path, info(), ENVIRONMENT) as folder:
        folder.append(trial(0))
        folder.append(trial(1))
    whole = (path / "trials.jsonl").read_bytes()
    for cut in (1, 40, len(whole) // 2 - 1):
        (path / "trials.jsonl").write_bytes(whole[:-cut])
        with RunFolder.resume(path, KEY) as folder:
            assert [each.number for each in folder.trials] == [0]
            folder.append(trial(1))
        assert (path / "trials.jsonl").read_bytes() == whole


def test_a_damaged_line_inside_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RunFolder.create(path, info(), ENVIRONMENT) as folder:
        folder.append(trial(0))
    log = path / "trials.jsonl"
    log.write_text("{}\n" + log.read_text())
    with pytest.raises(RecordError, match=r"trials\.jsonl line 1: not a Trial document"):
        RunFolder.resume(path, KEY)


def test_one_process_owns_a_folder(tmp_path: Path) -> None:
    owner = RunFolder.create(tmp_path / "r", info(), ENVIRONMENT)
    with pytest.raises(RecordError, match="in use by another run"):
        RunFolder.resume(tmp_path / "r", KEY)
    owner.close()
    RunFolder.resume(tmp_path / "r", KEY).close()


def test_a_folder_with_content_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(RecordError, match="is not empty: --resume"):
        RunFolder.create(tmp_path, info(), ENVIRONMENT)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_a_path_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"cannot write .*: Not a directory"):
        RunFolder.create(tmp_path / "file" / "r", info(), ENVIRONMENT)


CHANGES: dict[str, StudyKey] = {
    "space": evolve(KEY, space="other"),
    "kernel": evolve(KEY, kernel="other"),
    "rules": evolve(KEY, rules="other"),
    "problem": evolve(KEY, problem="M=8 float32"),
    "device": evolve(KEY, device="other"),
    "toolchain": evolve(KEY, toolchain="cc 2"),
    "tolerance": evolve(KEY, contract=evolve(CONTRACT, tolerance=1e-3)),
    "outputs": evolve(KEY, contract=evolve(CONTRACT, outputs=("C", "D"))),
    "inputs": evolve(KEY, contract=evolve(CONTRACT, inputs="other")),
    "reference": evolve(KEY, contract=evolve(CONTRACT, reference="other")),
    "peer": evolve(KEY, contract=evolve(CONTRACT, peer="")),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_whatever_changes_a_result_changes_the_key(changed: str, tmp_path: Path) -> None:
    other = CHANGES[changed]
    assert other.digest != KEY.digest
    assert other.trial("abc") != KEY.trial("abc")
    assert changed in (first_difference(KEY, other) or "")
    RunFolder.create(tmp_path / "r", info(), ENVIRONMENT).close()
    with pytest.raises(RecordError, match="a run of another study: "):
        RunFolder.resume(tmp_path / "r", other)


def test_a_study_without_stable_functions_is_not_continued(tmp_path: Path) -> None:
    key = evolve(KEY, contract=evolve(CONTRACT, inputs=None))
    RunFolder.create(tmp_path / "r", info(key=key), ENVIRONMENT).close()
    with pytest.raises(RecordError, match="are in no readable file"):
        RunFolder.resume(tmp_path / "r", key)


def test_a_run_is_read_back_as_it_was(finished: Path) -> None:
    run = load(finished)
    assert run.info.state == "done"
    assert len(run.trials) == 6
    assert run.best is not None
    assert run.best.trial in {each.number for each in run.measured}
    assert run.source == f"/* {run.best.schedule.digest} */\n"
    assert explorer.load(finished) == run
    assert read_schedule(finished / "best.json") == run.best.schedule


def test_the_table_holds_what_the_log_holds(finished: Path) -> None:
    frame = pd.read_parquet(finished / "trials.parquet")
    run = load(finished)
    assert list(frame["time_us"]) == [each.time_us for each in run.trials]
    assert list(frame["choice.block_M"]) == [each.choices["block_M"] for each in run.trials]


def test_a_packed_run_is_read_from_its_table_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RunFolder.create(path, info(), ENVIRONMENT) as folder:
        for number, outcome in enumerate(OUTCOMES):
            folder.append(trial(number, outcome))
        folder.finish(info(state="failed"), None, ("", ""))
    before, log = load(path).trials, (path / "trials.jsonl").read_bytes()
    pack(path)
    assert sorted(each.name for each in path.iterdir()) == [
        "environment.json",
        "run.json",
        "trials.parquet",
    ]
    assert load(path).trials == before
    with RunFolder.resume(path, KEY) as folder:
        assert tuple(folder.trials) == before
    assert (path / "trials.jsonl").read_bytes() == log


def test_a_table_that_lacks_a_trial_is_not_packed(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", info(), ENVIRONMENT) as folder:
        folder.append(trial(0))
        folder.finish(info(state="failed"), None, ("", ""))
        folder.append(trial(1))
    with pytest.raises(RecordError, match=r"trials\.parquet does not hold what trials\.jsonl"):
        pack(tmp_path / "r")
    (tmp_path / "r" / "trials.jsonl").unlink()
    (tmp_path / "r" / "trials.parquet").write_bytes(b"PAR1")
    with pytest.raises(RecordError, match=r"trials\.parquet: not a trial table"):
        load(tmp_path / "r")


def edit(name: str, change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        document = json.loads((path / name).read_text())
        change(document)
        (path / name).write_text(json.dumps(document))

    return apply


def remove(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def truncate(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_text((path / name).read_text()[:-30])


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no run.json": (remove("run.json"), "is not a run folder: run.json is missing"),
    "no best": (remove("best.json"), "is half-written: best.json is missing"),
    "no source": (remove("source.c"), "is half-written: the source of the best schedule"),
    "no environment": (remove("environment.json"), "half-written: environment.json is missing"),
    "cut run": (truncate("run.json"), "run.json: not JSON"),
    "cut best": (truncate("best.json"), "best.json: not JSON"),
    "future": (edit("run.json", lambda d: d.update(version=9)), "format version 9"),
    "foreign": (edit("run.json", lambda d: d.update(format="Other")), "got 'Other'"),
    "unknown field": (edit("best.json", lambda d: d["value"].update(colour="red")), "colour"),
    "wrong type": (edit("best.json", lambda d: d["value"].update(time_us="fast")), "time_us"),
    "unfinished": (
        edit("run.json", lambda d: d["value"].update(state="running")),
        "is unfinished after 6 trials: `explorer tune toy --out .* --resume` goes on",
    ),
    "not text": (lambda path: (path / "run.json").write_bytes(b"\xff\xfe"), "cannot read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_folder_is_refused_in_one_line(case: str, tmp_path: Path, finished: Path) -> None:
    path = tmp_path / "copy"
    path.mkdir()
    for each in finished.iterdir():
        (path / each.name).write_bytes(each.read_bytes())
    spoil, message = BROKEN[case]
    spoil(path)
    with pytest.raises(RecordError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no run folder at"):
        load(tmp_path / "absent")


def test_names_in_a_schedule_file_are_identifiers(tmp_path: Path, finished: Path) -> None:
    text = (finished / "best.json").read_text()
    bad = tmp_path / "bad.json"
    bad.write_text(text.replace('"worker"', '"x; system(1)"').replace('"consumer"', '"a b"'))
    with pytest.raises((RecordError, ScheduleError), match="identifier"):
        read_schedule(bad)
