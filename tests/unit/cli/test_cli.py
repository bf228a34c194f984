"""The command line: what it prints where, and the exit code of every failure."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import explorer.runtime
from explorer.cli import run
from explorer.cli.progress import BenchProgress
from explorer.data import dumps
from explorer.errors import EnvironmentFault, InputError
from explorer.ir.dtypes import DType
from explorer.machine import Machine
from explorer.records import CompileFailed
from explorer.space import Case, Suite, Workload
from tests.support.fakes import fake_session, small_workload, tune_fake

Shell = Callable[..., tuple[int, str, str]]


def load_workload(ref: str) -> Workload:
    if ref != "toy":
        raise InputError(f"unknown space {ref!r}: known are toy")
    return small_workload()


def machine_here(machine: Machine, element: DType) -> Machine:
    if machine.name != "cpu":
        raise EnvironmentFault(f"{machine.name}: no NVIDIA driver on this host")
    return machine


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    parts: dict[str, Any] = {
        "Session": fake_session(),
        "load_workload": load_workload,
        "machine_here": machine_here,
        "compiler_version": lambda: "fake cc 1.0",
        "device_name": lambda name: "fake device",
    }
    for name, part in parts.items():
        monkeypatch.setattr(explorer.runtime, name, part, raising=False)
    return monkeypatch


@pytest.fixture
def shell(
    runtime: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Shell:
    runtime.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_json_is_alone_on_stdout(shell: Shell) -> None:
    code, out, err = shell("tune", "toy", "--trials", "8", "--json", "--out", "r")
    assert code == 0
    assert out.count("\n") == 1
    answer = json.loads(out)
    assert (answer["space"], answer["measured"], answer["out"]) == ("toy", 8, "r")
    assert "best" in err


def test_the_table_names_best_worst_and_baseline(shell: Shell) -> None:
    code, out, _ = shell("tune", "toy", "--trials", "16", "--size", "M=128", "--size", "N=64")
    assert code == 0
    for text in (
        "... 6 more",
        "M=128 N=64 K=256",
        "rejected 0",
        "numpy",
        "GFLOP/s",
        "results/toy",
    ):
        assert text in out
    assert len(list(Path("results").glob("toy-cpu-*/best.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["tune", "nothing"], 2, "unknown space 'nothing': known are toy"),
        (["tune", "toy", "--machine", "abacus"], 2, "unknown machine 'abacus'"),
        (["tune", "toy", "--machine", "h200"], 3, "h200: no NVIDIA driver on this host"),
        (["tune", "toy", "--size", "Q=3"], 2, "unknown size 'Q': toy has M, N, K"),
        (["tune", "toy", "--size", "M=0"], 2, "size M=0 must be a positive integer"),
        (["tune", "toy", "--size", "M=-5"], 2, "size M=-5 must be a positive integer"),
        (["tune", "toy", "--size", "M=big"], 2, "size M='big' must be a positive integer"),
        (["tune", "toy", "--size", "M"], 2, "--size 'M' is not NAME=N"),
        (["tune", "toy", "--dtype", "float12"], 2, "unknown dtype 'float12'"),
        (["tune", "toy", "--trials", "0"], 2, "trials must be positive, got 0"),
        (["tune", "toy", "--trials", "many"], 2, "--trials"),
        (["tune", "toy", "--seconds", "nan"], 2, "seconds must be positive"),
        (["tune", "toy", "--seconds", "inf"], 2, "seconds must be finite"),
        (["tune", "toy", "--seed", "1.5"], 2, "--seed"),
        (["tune", "toy", "--size", "M=1_000"], 2, "size M='1_000' must be a positive integer"),
        (["tune", "toy", "--size", "M=\u0663"], 2, "must be a positive integer"),
        (["tune", "toy", "--size", "M=8", "--size", "M=9"], 2, "--size M is given twice: 8 and 9"),
        (["tune", "toy", "--dtype", ""], 2, "unknown dtype ''"),
        (["tune", "toy", "--resume"], 2, "--out is missing"),
        (["tune", "toy", "--resume", "--out", "absent"], 2, "no run folder at absent"),
        (["tune", "toy", "--out", "/proc/none"], 2, "cannot write /proc/none"),
        (["tune"], 2, "SPACE"),
        (["tune", "toy", "--colour", "red"], 2, "--colour"),
        (["fly"], 2, "fly"),
        ([], 2, "command"),
        (["show", "absent"], 2, "no run folder at absent"),
        (["replay", "absent"], 2, "no run folder at absent"),
        (["report", "absent"], 2, "no run folder at absent"),
        (["export", "absent"], 2, "unknown space 'absent'"),
        (
            ["export", "absent", "--format", "cobol"],
            2,
            "unknown format 'cobol': known are tilelang",
        ),
        (["check", "toy", "--schedule", "absent.json"], 2, "absent.json is missing"),
    ],
)
def test_a_failure_is_one_line_and_a_code(
    shell: Shell, arguments: list[str], code: int, message: str
) -> None:
    found, out, err = shell(*arguments)
    assert (found, out) == (code, "")
    *phases, failure = err.splitlines()
    assert set(phases) <= {"starting the device"}
    assert failure.startswith("explorer: ")
    assert message in failure


def test_no_legal_candidate_is_a_no(shell: Shell, runtime: pytest.MonkeyPatch) -> None:
    sizes = {"block_M": (4096,), "block_N": (4096,), "block_K": (4096,)}
    huge = small_workload(tiles={"cpu": sizes})
    runtime.setattr(explorer.runtime, "load_workload", lambda _: huge)
    for command in ("tune", "check"):
        code, _, err = shell(command, "toy")
        assert code == 1
        assert "no legal candidate among" in err
        assert "capacity" in err


def test_when_everything_fails_the_code_says_no(shell: Shell, runtime: pytest.MonkeyPatch) -> None:
    session = fake_session(lambda _: CompileFailed("cc: error"))
    runtime.setattr(explorer.runtime, "Session", session)
    code, out, err = shell("tune", "toy", "--trials", "4", "--out", "r")
    assert (code, out) == (1, "")
    assert "none of 4 candidates could be measured: CompileFailed 4" in err
    code, _, err = shell("show", "r")
    assert code == 1
    assert "has no best schedule" in err


def test_show_prints_what_tune_printed(shell: Shell) -> None:
    _, tuned, _ = shell("tune", "toy", "--trials", "8", "--json", "--out", "r")
    code, shown, _ = shell("show", "r", "--json")
    assert code == 0
    assert json.loads(shown) == json.loads(tuned)
    code, text, _ = shell("show", "r")
    assert code == 0
    for part in ("numpy", "fake cc 1.0", "processor", "block"):
        assert part in text


@pytest.mark.parametrize("columns", [100, 140])
def test_show_prints_what_every_role_does(
    shell: Shell, runtime: pytest.MonkeyPatch, columns: int
) -> None:
    """Of a run, of a schedule in a file, and of a space: programs, then slots and parities."""
    runtime.setenv("COLUMNS", str(columns))
    shell("tune", "toy", "--trials", "4", "--out", "r")
    _, of_run, _ = shell("show", "r")
    code, of_file, _ = shell("show", "toy", "--schedule", "r/best.json", "--size", "M=256")
    assert code == 0
    assert of_run.endswith(of_file[of_file.index("program gemm") :])
    code, text, _ = shell("show", "toy", "--lines", "8", "--block", "1")
    assert code == 0
    roles = text[text.index("program gemm") :]
    assert max(map(len, roles.splitlines())) <= columns
    for part in (
        "  barriers ",
        ": full count ",
        " | ",
        "block 1, step by step",
        ".full[0] parity 0 cycle 0 ko=0",
        ".empty[0] parity 1 cycle 0 ko=0",
    ):
        assert part in roles, part
    code, document, _ = shell("show", "toy", "--json")
    assert code == 0
    Path("found.json").write_text(document)
    _, again, _ = shell("show", "toy", "--schedule", "found.json", "--lines", "8", "--block", "1")
    assert again == text


def test_show_of_a_schedule_says_what_is_wrong(shell: Shell) -> None:
    Path("broken.json").write_text("{")
    for arguments, message in (
        (("toy", "--schedule", "absent.json"), "no schedule in"),
        (("toy", "--schedule", "broken.json"), "broken.json"),
        (("absent.py:SPACE",), "unknown space 'absent.py:SPACE'"),
        (("toy", "--size", "Q=1"), "Q"),
    ):
        code, out, err = shell("show", *arguments)
        assert (code, out) == (2, "")
        assert message in err and err.count("\n") == 1


def test_show_of_an_illegal_schedule_says_which_rules_it_breaks(shell: Shell) -> None:
    document = json.loads(shell("show", "toy", "--json")[1])

    def shown(change: Callable[[Any], Any], *options: str) -> tuple[int, str, str]:
        changed = json.loads(json.dumps(document))
        change(changed["value"]["ws"])
        Path("changed.json").write_text(json.dumps(changed))
        return shell("show", "toy", "--schedule", "changed.json", *options)

    def few_warps(ws: Any) -> None:
        ws["num_warps"] -= 1

    code, out, _ = shown(few_warps)
    assert code == 1, out
    assert out.startswith("warp-ranges: ")
    assert "warps" in out.splitlines()[0] and "\nmemory\n" in out
    code, out, _ = shown(lambda ws: ws["scopes"][0]["bodies"][0][1].clear())
    assert code == 1 and out.startswith("scope-entry: role producer has a body in ko but never"), (
        out
    )
    assert "\nno role programs: " in out
    code, out, err = shown(few_warps, "--json")
    assert code == 1
    assert json.loads(out) == json.loads(Path("changed.json").read_text())
    assert err.startswith("warp-ranges: ")


def test_phases_are_told_without_a_terminal(shell: Shell) -> None:
    _, _, err = shell("tune", "toy", "--trials", "4", "--out", "r")
    assert err.splitlines()[:2] == ["starting the device", "searching"]


def test_an_internal_error_is_one_line(shell: Shell, runtime: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> Workload:
        raise RuntimeError("two\nlines")

    runtime.setattr(explorer.runtime, "load_workload", broken)
    assert shell("tune", "toy") == (
        3,
        "",
        "explorer: internal error: RuntimeError: two lines; EXPLORER_TRACEBACK=1 shows where\n",
    )


def test_replay_report_and_doctor(shell: Shell) -> None:
    shell("tune", "toy", "--trials", "8", "--out", "r")
    assert shell("replay", "r")[:2] == (0, "8 trials: every proposal is the same again\n")
    assert shell("report", "r")[:2] == (0, "r/report.html\n")
    assert Path("r/report.html").stat().st_size > 10_000
    code, out, _ = shell("doctor")
    assert code == 0
    assert "fake cc 1.0" in out


def test_doctor_without_a_compiler(shell: Shell, runtime: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise EnvironmentFault("no C compiler: cc not found; install one or set CC")

    runtime.setattr(explorer.runtime, "compiler_version", missing)
    code, out, _ = shell("doctor")
    assert code == 3
    for line in ("compiler  missing: no C compiler", "device    fake", "driver ", "cupy ", "gpu "):
        assert f"\n{line}" in out


def test_check_names_the_rules(shell: Shell, tmp_path: Path) -> None:
    best = tune_fake(tmp_path / "r", trials=4).best.schedule
    Path("good.json").write_text(dumps(best))
    assert shell("check", "toy", "--schedule", "good.json")[:2] == (0, "legal on cpu\n")
    assert shell("check", "toy", "r/best.json")[:2] == (0, "legal on cpu\n")
    code, _, err = shell("check", "toy", "good.json", "--schedule", "r/best.json")
    assert code == 2 and "two schedules are given" in err
    broken = json.loads(dumps(best))
    broken["value"]["extensions"]["launch"]["blocks"] = 99
    broken["value"]["binding"]["params"] = [
        [name, 4096] for name in ("block_M", "block_N", "block_K")
    ]
    Path("bad.json").write_text(json.dumps(broken))
    code, out, _ = shell("check", "toy", "--schedule", "bad.json")
    assert code == 1
    assert "capacity" in out
    for field, value, message in (
        ("launch", {"raster": "nosuch"}, "unknown Raster 'nosuch'"),
        ("matrix", [{"op": "gemm_C_local", "m": 0, "n": 16}], "MatrixTile.m must be at least 1"),
    ):
        wrong = json.loads(dumps(best))
        wrong["value"]["extensions"][field] = value
        Path("wrong.json").write_text(json.dumps(wrong))
        code, _, err = shell("check", "toy", "--schedule", "wrong.json")
        assert code == 2
        assert message in err
    other = {**broken["value"]["binding"], "kernel": "softmax"}
    Path("other.json").write_text(
        json.dumps({**broken, "value": {**broken["value"], "binding": other}})
    )
    code, _, err = shell("check", "toy", "--schedule", "other.json")
    assert code == 2
    assert "bound to another kernel" in err


def test_export_prints_annotations(shell: Shell) -> None:
    code, out, _ = shell("export", "toy", "--size", "M=512", "--dtype", "bfloat16")
    assert code == 0
    assert "T.WSSchedule(" in out
    assert "T.WSPipeline(" in out
    shell("tune", "toy", "--trials", "4", "--out", "r")
    code, _, err = shell("export", "r")
    assert code == 2
    assert "tune for a GPU machine" in err


def test_an_interrupt_is_not_a_traceback(shell: Shell, runtime: pytest.MonkeyPatch) -> None:
    def interrupt(_: str) -> Workload:
        raise KeyboardInterrupt

    runtime.setattr(explorer.runtime, "load_workload", interrupt)
    code, _, err = shell("tune", "toy")
    assert (code, err) == (130, "explorer: interrupted\n")


def test_bench_prints_one_table_and_goes_on(shell: Shell, runtime: pytest.MonkeyPatch) -> None:
    layouts = {"toy": "A[M,K] B[K,N]"}
    case = Case("toy", (128, 128, 128), "float32")
    suite = Suite("toys", "cpu", ("M", "N", "K"), layouts, ("float32",), (case,))
    runtime.setattr(explorer.runtime, "load_suite", lambda name: suite, raising=False)
    runtime.setattr(explorer.runtime, "Host", lambda machine: nullcontext(), raising=False)
    code, out, err = shell("bench", "toys", "--seconds", "1", "--out", "b")
    assert code == 0
    assert "128x128x128" in out
    assert "all: " in out
    assert "[1/1] toy-128x128x128-float32: " in err
    assert Path("b/table.md").is_file()
    code, _, err = shell("bench", "toys", "--out", "b")
    assert (code, "--resume goes on" in err) == (2, True)
    code, out, _ = shell("bench", "toys", "--out", "b", "--resume", "--json")
    assert code == 0
    assert json.loads(out)["rows"][0]["case"]["workload"] == "toy"
    code, out, _ = shell("bench", "toys", "--out", "b", "--ablate", "128x128x128")
    assert code == 0
    assert "(winner)" in out
    ablate = ("bench", "toys", "--out", "b", "--ablate", "128x128x128")
    assert "names its own shape" in shell(*ablate, "--shape", "256x256x256")[2]
    assert shell("bench", "toys", "--shape", "12by3")[0] == 2
    code, _, err = shell("bench", "toys", "--machine", "ascend950")
    assert (code, err) == (2, "explorer: toy: no tile sizes for ascend950, only for cpu, h200\n")
    too_large = {"cpu": dict.fromkeys(("block_M", "block_N", "block_K"), (1 << 14,))}
    runtime.setattr(explorer.runtime, "load_workload", lambda _: small_workload(tiles=too_large))
    code, out, _ = shell("bench", "toys", "--out", "c", "--seconds", "1")
    assert (code, "failed" in out) == (1, True)


def test_paths_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    BenchProgress().phase("skipping results/[bold]x[/bold]: damaged")
    assert "results/[bold]x[/bold]" in capsys.readouterr().err


def test_why_says_no_with_numbers_and_yes_with_values(shell: Shell) -> None:
    code, out, _ = shell("why", "toy", "block_M=64")
    assert code == 0
    assert out.startswith("legal  roles ")
    assert "block_M=64" in out
    code, out, _ = shell("why", "toy", "raster=0", "group=4")
    assert code == 1
    assert out.startswith("forbidden  roles ")
    assert "launch: a raster group of 4 without a grouped raster" in out
    code, _, err = shell("why", "toy", "colour=1")
    assert code == 2
    assert "the space has no choice 'colour'" in err
    assert shell("why", "toy", "block_M")[0] == 2


def test_commands_import_what_they_use_when_they_run() -> None:
    heavy = {"optuna", "z3", "pandas", "matplotlib", "numpy", "explorer.tune", "explorer.runtime"}
    folder = Path(explorer.__file__).parent / "cli"
    for name in ("app", "options", "tune_command", "bench_command", "inspect_commands"):
        tree = ast.parse((folder / f"{name}.py").read_text())
        top = {each.module for each in tree.body if isinstance(each, ast.ImportFrom)}
        assert not top & heavy
