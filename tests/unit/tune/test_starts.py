"""Recorded winners as starts: validated anew for every problem, skipped with a reason."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from explorer.constraints import FeasibleModel
from explorer.errors import RecordError
from explorer.machine import CPU
from explorer.records import load
from explorer.space import Hint, SearchSpace, space_of
from explorer.tune import recorded
from explorer.tune.run import Silent
from explorer.tune.starts import Starts, found_runs, refusal, starts, winner_of
from tests.support.fakes import FakeDevice, fake_session, small_workload, tune_fake

DEVICE = FakeDevice.device


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results that is the only one looked at."""
    monkeypatch.setattr(sys.modules["explorer.tune.starts"], "FOLDERS", (tmp_path,))
    return tmp_path


def toy_space(**sizes: int) -> SearchSpace:
    workload = small_workload()
    return space_of(workload, workload.problem(sizes), CPU)


def looked_at(device: str = DEVICE, kind: str = "float32", **sizes: int) -> Starts:
    workload = small_workload()
    problem = workload.problem(sizes, kind)
    space = space_of(workload, problem, CPU)
    return starts(workload, problem, space, FeasibleModel(space), device)


class Listening(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def phase(self, text: str) -> None:
        self.lines.append(text)


def test_a_second_run_tries_the_recorded_winner_first(results: Path) -> None:
    first = tune_fake(results / "first", trials=12, seconds=60.0)
    watcher = Listening()
    second = tune_fake(results / "second", trials=2, watcher=watcher)
    winner = next(each for each in first.trials if each.number == first.best.trial)
    assert second.trials[0].assignment == winner.assignment
    assert f"starting from {results / 'first'}" in watcher.lines


def test_a_cold_run_does_not_look(results: Path) -> None:
    tune_fake(results / "first", trials=12)
    watcher = Listening()
    tune_fake(results / "second", trials=1, recorded=False, watcher=watcher)
    assert not [line for line in watcher.lines if "first" in line]


def test_another_shape_is_a_hint_where_it_is_legal(results: Path) -> None:
    """C34: a stored winner is validated against the new problem."""
    tune_fake(results / "first", trials=12)
    found = looked_at(M=512, N=256, K=256)
    assert len(found.hints) == 1
    space = toy_space(M=512, N=256, K=256)
    assert refusal(found.hints[0], space, FeasibleModel(space)) == ""


def test_what_is_not_legal_any_more_is_skipped_with_its_reason(results: Path) -> None:
    """C34: an invalid record is skipped, the run goes on."""
    tune_fake(results / "first", trials=12)
    hint = winner_of(load(results / "first"))
    space = toy_space()
    model = FeasibleModel(space)
    assert refusal(hint, space, model) == ""
    assert "no skeleton 'roles nobody'" in refusal(
        evolve(hint, skeleton="roles nobody"), space, model
    )
    odd = evolve(hint, values={**hint.values, "block_M": 48})
    assert refusal(odd, space, model) == "the space has no block_M of 48"
    assert (
        refusal(evolve(hint, values={"colour": 1}), space, model) == "the space has no colour of 1"
    )
    huge = Hint(
        next(s.title for s in space.skeletons if "A_B" in str(s.plan.pipelines)),
        {"block_M": 128, "block_N": 128, "block_K": 128, "depth_A_B": 8, "mma_m": 8, "mma_n": 16},
    )
    tight = evolve(
        space.machine, memories=(evolve(space.machine.memories[0], capacity_bytes=4096),)
    )
    small = evolve(space, machine=tight)
    assert "smem-capacity" in refusal(huge, small, FeasibleModel(small))


@pytest.mark.parametrize("changed", [{"device": "another device"}, {"kind": "bfloat16"}])
def test_another_device_or_type_gives_nothing(results: Path, changed: dict[str, Any]) -> None:
    tune_fake(results / "first", trials=4)
    assert looked_at(**changed) == Starts((), ())


def test_a_damaged_record_is_skipped_with_its_reason(results: Path) -> None:
    tune_fake(results / "first", trials=4)
    (results / "first" / "best.json").write_text("{")
    found = looked_at()
    assert found.hints == ()
    assert "not JSON" in found.notes[0]


@pytest.mark.parametrize("text", ["{", '{"value": []}', '{"value": {"workload": "toy"}}'])
def test_a_folder_that_says_nothing_of_its_problem_is_no_run(results: Path, text: str) -> None:
    tune_fake(results / "first", trials=4)
    (results / "first" / "run.json").write_text(text)
    assert looked_at() == Starts((), ())


def test_the_same_sizes_go_first_then_the_nearest(results: Path) -> None:
    workload = small_workload()
    for name, size in (("far", 4096), ("near", 512), ("same", 256)):
        tune_fake(results / name, trials=2, sizes={"M": size})
    problem = workload.problem({"M": 256}, "float32")
    found = found_runs("toy", problem, "cpu", DEVICE)
    assert [path.name for path in found] == ["same", "near", "far"]


def test_a_recorded_run_is_found_by_its_problem(results: Path) -> None:
    from explorer.runtime import load_workload  # noqa: PLC0415

    workload = load_workload("gemm")
    tune_fake(results / "r", workload, trials=2, sizes={"M": 128}, session=fake_session())
    run = recorded("gemm", sizes={"M": 128}, dtype="float32", machine="cpu")
    assert run == load(results / "r")
    with pytest.raises(RecordError, match="no recorded run of gemm M=256"):
        recorded("gemm", sizes={"M": 256}, machine="cpu")
