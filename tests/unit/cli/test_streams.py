"""What reaches which descriptor, with users' files that print and callers that close them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import explorer
from explorer.cli.streams import answer_alone

ROOT = Path(explorer.__file__).parents[1]
NOISY = """
import atexit, os, sys
from tests.support.fakes import small_workload, trace
def kernel(problem):
    print("noise")
    os.write(1, b"noise")
    return trace(problem)
atexit.register(lambda: os.write(1, b"noise"))
print("noise")
os.system("echo noise")
W = small_workload(kernel=kernel)
"""


def explore(
    arguments: str, folder: Path, redirections: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command through a shell, in a process of its own."""
    command = f"{sys.executable} -m explorer {arguments} {redirections}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_json_is_one_object_whatever_a_file_prints(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    found = explore("tune noisy.py:W --trials 1 --seconds 20 --json --out r", tmp_path)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["measured"] == 1
    assert "noise" in found.stderr


def test_stdout_comes_back(capfd: pytest.CaptureFixture[str]) -> None:
    with answer_alone(True):
        print("in")
        os.write(1, b"low\n")
    print("out")
    assert capfd.readouterr().out == "out\n"


@pytest.mark.parametrize(
    ("redirections", "code"),
    [
        ("| head -c 1", 0),
        ("| true", 0),
        ("> /dev/full", 3),
        (">&-", 0),
        ("<&-", 0),
        ("2>&-", 0),
        ("<&- >&- 2>&-", 0),
    ],
)
def test_a_caller_that_does_not_listen(tmp_path: Path, redirections: str, code: int) -> None:
    found = explore("--help", tmp_path, redirections)
    assert found.returncode == code
    assert found.stderr == ("explorer: No space left on device\n" if code else "")


def test_version_and_module(tmp_path: Path) -> None:
    found = explore("--version", tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("explorer")
