"""`kill -9` at any moment: the finished trials are there, and the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from explorer.records.folder import read_trials
from tests.support.fakes import tune_fake

CHILD = """
import sys, time
from pathlib import Path
from tests.support.fakes import FakeDevice, tune_fake
measure = FakeDevice.measure
def slow(self, built, repeats):
    time.sleep(0.01)
    return measure(self, built, repeats)
FakeDevice.measure = slow
tune_fake(Path(sys.argv[1]), trials=200, resume=Path(sys.argv[1], "run.json").exists())
"""
ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_killed_process_loses_no_finished_trial(tmp_path: Path) -> None:
    out, kept = tmp_path / "r", 0
    for wait in (0.1, 0.33, 0.5, 0.71):
        process = subprocess.Popen([sys.executable, "-c", CHILD, str(out)], cwd=ROOT)
        while not (out / "trials.jsonl").exists() or len(read_trials(out)) <= kept:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        now = len(read_trials(out))
        assert now > kept
        kept = now
    before = read_trials(out)
    result = tune_fake(out, trials=kept + 10, resume=True)
    assert result.trials[:kept] == before
    assert len(result.trials) == kept + 10
    assert len({each.assignment for each in result.trials}) == kept + 10


@pytest.mark.slow
def test_a_killed_command_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "r"
    sizes = ["--size", "M=256", "--size", "N=256", "--size", "K=256"]
    command = [sys.executable, "-m", "explorer", "tune", "gemm", *sizes, "--out", str(out)]
    environment = os.environ | {"EXPLORER_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(
        [*command, "--trials", "40"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
    )
    while not (out / "trials.jsonl").exists() or len(read_trials(out)) < 5:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    before = read_trials(out)
    budget = str(len(before) + 8)
    again = subprocess.run(
        [*command, "--trials", budget, "--resume"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    after = read_trials(out)
    assert after[: len(before)] == before
    assert len({trial.number for trial in after}) == len(after) == len(before) + 8
