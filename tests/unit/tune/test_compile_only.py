"""Tuning without a device: what is compiled, in which order it is shown, what it is called."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from explorer.cli import run
from explorer.cli.predicted import predicted_table, summary
from explorer.errors import EnvironmentFault, InputError
from explorer.records import CompileFailed
from explorer.runtime.cuda import build
from explorer.settings import settings
from explorer.tune import CompileReport, Request, compile_only

SIZES = {"M": 512, "N": 512, "K": 512}
ARGUMENTS = ["tune", "gemm", "--machine", "h200", "--compile-only"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings")
    here = evolve(settings(), cache=tmp_path / "cache")
    monkeypatch.setattr(build, "settings", lambda: here)


@pytest.mark.usefixtures("cache")
def test_candidates_are_compiled_and_sorted_by_prediction() -> None:
    request = Request("gemm", machine="h200", sizes=SIZES, trials=5, seconds=120.0)
    report = compile_only(request)
    assert len(report.compiled) + len(report.failures) == 5
    assert report.rejected == 0
    times = [each.predicted_us for each in report.compiled]
    assert times == sorted(times)
    # The workload's first hint is a candidate, with what its rules predict.
    first = next(each for each in report.compiled if each.number == 0)
    assert (first.registers, first.spill_bytes, first.barriers) == (168, 0, 3)
    assert first.shared_bytes > 128 * 256 * 2
    again = compile_only(request)
    assert again.compiled == report.compiled
    _check_text(report)
    _check_json(json.loads(report.json_text()))


def _check_text(report: CompileReport) -> None:
    table = predicted_table(report).splitlines()
    assert table[0].split()[:3] == ["predicted", "spills", "shared"]
    assert table[1].split()[:6] == ["candidate", "us", "registers", "B", "B", "barriers"]
    text = "\n".join(summary(evolve(report, failures=((7, CompileFailed("no room")),))))
    assert "predicted, not measured" in text
    assert "failed    candidate 7: no room" in text


def _check_json(answer: dict[str, Any]) -> None:
    assert answer["times"] == "predicted, not measured"
    assert answer["compiled"] == len(answer["predicted_order"])
    keys = set(answer).union(*answer["predicted_order"])
    assert "predicted_us" in keys
    assert not keys & {"time_us", "ratio", "best", "measured", "baseline", "throughput"}


@pytest.mark.usefixtures("cache")
def test_the_command_prints_one_object(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = [text for name, size in SIZES.items() for text in ("--size", f"{name}={size}")]
    assert run([*ARGUMENTS, *sizes, "--trials", "1", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert json.loads(captured.out)["compiled"] == 1
    assert run([*ARGUMENTS, *sizes, "--trials", "1"]) == 0
    assert "predicted, not measured" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


def test_without_nvrtc_it_ends_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert run(ARGUMENTS) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("explorer: no NVRTC: ")
    assert captured.err.count("\n") == 1


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(InputError, match="cpu has none; use --machine h200"):
        compile_only(Request("gemm"))
    with pytest.raises(InputError, match="leave out --out"):
        compile_only(Request("gemm", machine="h200", out=Path("somewhere")))


def test_a_missing_device_points_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from explorer.runtime.cuda.loaded import device_name  # noqa: PLC0415

    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(EnvironmentFault, match=r"no CUDA device.*`tune --compile-only` needs"):
        device_name()
