"""The commands for a pipe machine: what they print, and that nothing is called measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from explorer.cli import run

Shell = Callable[..., tuple[int, str, str]]
ASCEND = ("--machine", "ascend950")


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_table_says_predicted(shell: Shell) -> None:
    code, out, _ = shell("tune", "ascend_scale", *ASCEND)
    assert code == 0
    assert out.splitlines()[0].split()[:3] == ["predicted", "predicted", "predicted"]
    assert "cycles predicted; rows=8 num_stages=2" in out
    assert "predicted, not measured" in out
    assert out.lower().count("measured") == 1
    assert "flag mte2 -> vector" in out
    assert "buffer a: 2 version(s), by iteration of wave" in out


def test_json_is_alone_on_stdout(shell: Shell) -> None:
    code, out, _ = shell("tune", "ascend_matmul", *ASCEND, "--trials", "4", "--json")
    assert code == 0
    answer = json.loads(out)
    assert (answer["predicted"], answer["skipped"]) == (4, 50)
    best = answer["best"]
    assert best.items() >= answer["predicted_order"][0].items()
    assert {flag["from"] for flag in best["flag_list"]} >= {"mte1", "mte2", "cube"}
    assert [loop["loop"] for loop in best["loops"]] == ["", "wave", "k"]
    assert max(task["stage"] for task in best["loops"][2]["tasks"]) > 0
    assert not any("time_us" in key or "measured" in key for key in best)


def test_a_folder_is_shown_exported_and_checked(shell: Shell) -> None:
    assert shell("tune", "ascend_scale", *ASCEND, "--out", "r")[0] == 0
    code, out, _ = shell("show", "r")
    assert code == 0 and "predicted, not measured" in out
    code, out, _ = shell("show", "r", "--json")
    assert json.loads(out)["best"]["versions"]["a"] == {"count": 2, "mode": "iteration"}
    code, out, _ = shell("export", "r")
    assert code == 0 and out == Path("r/kernel.py").read_text()
    code, out, _ = shell("check", "ascend_scale", *ASCEND, "--schedule", "r/schedule.json")
    assert (code, out) == (0, "legal on ascend950; its times are predicted\n")
    stored = json.loads(Path("r/schedule.json").read_text())
    stored["value"]["flags"].pop()
    Path("broken.json").write_text(json.dumps(stored))
    code, out, _ = shell("check", "ascend_scale", *ASCEND, "--schedule", "broken.json")
    assert code == 1 and out.startswith("pipe-flags: no flag from")
    told = out
    code, out, _ = shell("show", "ascend_scale", *ASCEND, "--schedule", "broken.json")
    assert code == 1 and out.startswith(told) and len(out) > len(told)
    code, out, err = shell("show", "ascend_scale", *ASCEND, "--schedule", "broken.json", "--json")
    assert (code, err) == (1, told) and json.loads(out)["value"]


def test_spaces_are_shown(shell: Shell) -> None:
    code, out, _ = shell("show", "ascend_scale", *ASCEND)
    assert code == 0 and "predicted, not measured" in out
    assert shell("tune", "ascend_scale", *ASCEND, "--out", "r")[0] == 0
    code, out, _ = shell("show", "ascend_scale", *ASCEND, "--schedule", "r/schedule.json")
    assert code == 0 and out.startswith("pipe schedule ")
    code, out, _ = shell("why", "ascend_scale", *ASCEND)
    assert code == 2


def test_spaces_are_checked_and_exported(shell: Shell) -> None:
    code, out, _ = shell("check", "ascend_scale", *ASCEND)
    assert (code, out.split(",")[0]) == (0, "16 candidates have a schedule")
    code, out, _ = shell("export", "ascend_scale", *ASCEND, "--size", "M=256")
    assert code == 0 and "in T.Persistent([32], 32, core, num_stages=" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune", "gemm", *ASCEND), "gemm has no tile sizes for ascend950"),
        (("check", "gemm", *ASCEND), "gemm has no tile sizes for ascend950"),
        (("export", "gemm", *ASCEND), "gemm has no tile sizes for ascend950"),
        (("tune", "ascend_scale"), "ascend_scale has no tile sizes for cpu"),
        (("tune", "ascend_scale", *ASCEND, "--resume", "--out", "r"), "leave out --resume"),
        (("tune", "ascend_scale", *ASCEND, "--compile-only"), "ascend950 has none"),
        (("check", "ascend_scale", *ASCEND, "--schedule", "none.json"), "none.json is missing"),
        (("show", "ascend_scale", *ASCEND, "--figure", "m.png"), "placed by its compiler"),
        (("show", ".", "--figure", "m.png"), "leave out --schedule, --size"),
        (("export", ".", *ASCEND), "holds no predictions"),
    ],
)
def test_one_line_and_exit_2(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = shell(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
