"""Tuning for a pipe machine: candidates, their order, folders, and stored schedules checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import explorer
from explorer.constraints.loop_schedule import schedule_loop
from explorer.data import loads
from explorer.errors import (
    ExplorerError,
    InputError,
    KernelError,
    NoLegalCandidate,
    ScheduleError,
)
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel, Loop, walk
from explorer.machine import ASCEND950, H200
from explorer.passes import schedule_pipes as scheduling
from explorer.passes.check_pipes import check_pipes
from explorer.passes.schedule_pipes import schedule_pipes
from explorer.program.pipe_simulator import simulate_pipes
from explorer.runtime import load_workload
from explorer.schedule.loop import LoopSolution, SolveStatus
from explorer.schedule.pipe import LoopSchedule, PipeSchedule
from explorer.tune import Request, tune, tune_pipes
from explorer.tune.pipes import (
    check_schedule,
    read_report,
    schedule_candidate,
    with_stages,
)
from tests.kernels.ascend import CORPUS, add, carried, manual, matmul, scale, two_owners
from tests.kernels.pooled import pooled_gemm


def test_all_candidates_are_predicted_and_sorted() -> None:
    report = tune_pipes("ascend_scale")
    cycles = [each.predicted_cycles for each in report.candidates]
    assert cycles == sorted(cycles)
    # 2 buffers x 128 rows x 1 KiB do not fit 216 KiB, whatever num_stages is.
    assert (len(cycles), report.refused, report.skipped) == (16, 4, 0)
    assert "262144 B > 221184 B of shared" in report.reason
    assert report.best.schedule_digest == report.schedule.digest
    assert all(each.proven for each in report.candidates)
    assert report.to_json()["times"] == "predicted, not measured"


def test_more_stages_never_make_the_interval_longer() -> None:
    intervals: dict[int, list[int]] = {}
    found = tune_pipes("ascend_scale", sizes={"M": 1024}).candidates
    for each in sorted(found, key=lambda c: dict(c.choices)["num_stages"]):
        (wave,) = (cycles for _, cycles in each.intervals)
        intervals.setdefault(dict(each.choices)["rows"], []).append(wave)
    assert sorted(intervals) == [8, 16, 32, 64]
    assert all(cycles == sorted(cycles, reverse=True) for cycles in intervals.values())
    assert intervals[8][0] > intervals[8][-1]


@pytest.mark.parametrize(
    ("name", "sizes", "choices"),
    [
        ("ascend_scale", {"M": 600, "N": 16}, {"rows": 8, "num_stages": 2}),
        (
            "ascend_matmul",
            {"M": 128, "N": 192, "K": 128},
            {"block_M": 64, "block_N": 64, "block_K": 64, "num_stages": 2},
        ),
    ],
)
def test_the_search_spaces_compute_their_references(
    name: str, sizes: dict[str, int], choices: dict[str, int]
) -> None:
    workload = load_workload(name)
    problem = workload.problem(sizes, machine="ascend950")
    inputs = workload.draw(problem, np.random.default_rng(0))
    expected = workload.expected(problem, inputs)
    traced = workload.trace(problem)
    result = schedule_candidate(traced, ASCEND950, choices)
    tile = {name: value for name, value in choices.items() if name != "num_stages"}
    kernel = with_stages(traced, choices).at(**tile)
    outcome = simulate_pipes(kernel, result.schedule, dict(result.pipes), inputs, 1)
    assert outcome.problem is None
    tolerance = workload.tolerance[problem.dtype.name]
    for found in (run(kernel, inputs), outcome.outputs):
        for output, values in expected.items():
            error = np.linalg.norm(found[output] - values) / np.linalg.norm(values)
            assert error <= tolerance


def test_trials_bound_the_candidates_and_the_seed_draws_them() -> None:
    drawn = [tune_pipes("ascend_scale", trials=5, seed=seed) for seed in (0, 0, 1)]
    numbers = [{each.number for each in report.candidates} for report in drawn]
    assert numbers[0] == numbers[1] != numbers[2]
    assert all(
        len(report.candidates) + report.refused == 5 and report.skipped == 15 for report in drawn
    )


def _stages(kernel: Kernel) -> list[int]:
    return [node.num_stages for node, _ in walk(kernel.body) if isinstance(node, Loop)]


def test_only_loops_that_may_overlap_get_the_stages() -> None:
    assert _stages(matmul(2)) == [0, 2]
    assert _stages(with_stages(matmul(2), {"num_stages": 4})) == [0, 4]
    assert with_stages(matmul(2), {}) == matmul(2)


def test_what_cannot_be_tuned() -> None:
    with pytest.raises(InputError, match="gemm has no tile sizes for ascend950"):
        tune_pipes("gemm")
    with pytest.raises(InputError, match="'h200' has no pipes"):
        tune_pipes("ascend_scale", machine=H200.name)
    with pytest.raises(InputError, match=r"nothing is measured on ascend950: .*tune_pipes"):
        tune("ascend_scale", machine="ascend950")
    with pytest.raises(NoLegalCandidate, match="6400000 B > 221184 B"):
        tune_pipes("ascend_scale", sizes={"N": 100000})


def test_what_the_solver_leaves_open_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = LoopSolution(SolveStatus.UNKNOWN, reason="out of effort")
    monkeypatch.setattr(scheduling, "schedule_loop", lambda problem: unknown)
    with pytest.raises(ExplorerError, match="20 candidates could not be decided") as caught:
        tune_pipes("ascend_scale")
    assert not isinstance(caught.value, NoLegalCandidate)


def test_an_interval_without_proof_is_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        scheduling,
        "schedule_loop",
        lambda problem: evolve(schedule_loop(problem), status=SolveStatus.FEASIBLE, bound=1),
    )
    report = tune_pipes("ascend_scale", trials=2)
    assert not report.best.proven
    assert report.to_json()["best"]["interval"] == "not proven"


def test_folders(tmp_path: Path) -> None:
    report = tune_pipes("ascend_scale", out=tmp_path / "run")
    assert read_report(tmp_path / "run") == report
    text = (tmp_path / "run" / "kernel.py").read_text()
    assert 'T.annotate_buffer_versions({a: (2, "iteration"), b: (2, "iteration")})' in text
    assert f"num_stages={dict(report.best.choices)['num_stages']})" in text
    request = Request("ascend_scale", "ascend950")
    stored = loads((tmp_path / "run" / "schedule.json").read_text(), PipeSchedule)
    assert check_schedule(request, stored).ok
    with pytest.raises(ScheduleError, match="another kernel digest"):
        check_schedule(evolve(request, sizes={"M": 1024}), stored)
    with pytest.raises(InputError, match="not an empty folder"):
        tune_pipes("ascend_scale", out=tmp_path / "run")


@pytest.mark.parametrize("name", CORPUS)
def test_schedules_pass_their_own_check(name: str) -> None:
    kernel = CORPUS[name]()
    schedule = schedule_pipes(kernel, ASCEND950).schedule
    assert check_pipes(kernel, schedule, ASCEND950).ok


@pytest.mark.parametrize("kernel", [scale(2), add(4), matmul(2), two_owners(2), carried(2)])
def test_every_change_of_a_schedule_is_found(kernel: Kernel) -> None:
    schedule = schedule_pipes(kernel, ASCEND950).schedule
    for at, flag in enumerate(schedule.flags):
        dropped = evolve(schedule, flags=(*schedule.flags[:at], *schedule.flags[at + 1 :]))
        report = check_pipes(kernel, dropped, ASCEND950)
        assert {each.rule for each in report.violations} == {"pipe-flags"}, flag
    for at, loop in enumerate(schedule.loops):
        if not loop.loop or len(loop.tasks) < 2:
            continue
        short = evolve(loop, interval=loop.interval - 1)
        loops = (*schedule.loops[:at], short, *schedule.loops[at + 1 :])
        report = check_pipes(kernel, evolve(schedule, loops=loops), ASCEND950)
        assert "pipe-order" in {each.rule for each in report.violations}, loop


@pytest.mark.parametrize(
    "change",
    [
        lambda loop: evolve(loop, latency=loop.latency + 1),
        lambda loop: evolve(loop, bound=loop.bound + 1),
        lambda loop: evolve(loop, bound=loop.bound - 1),
        lambda loop: evolve(loop, tasks=(*loop.tasks, loop.tasks[0])),
        lambda loop: evolve(loop, tasks=(evolve(loop.tasks[0], stage=10**9), *loop.tasks[1:])),
        lambda loop: evolve(loop, tasks=tuple(evolve(t, start=t.start + 1) for t in loop.tasks)),
    ],
)
@pytest.mark.parametrize("at", [0, -1])
def test_figures_that_do_not_follow_from_the_starts_are_found(
    change: Callable[[LoopSchedule], LoopSchedule], at: int
) -> None:
    kernel = matmul(2)
    schedule = schedule_pipes(kernel, ASCEND950).schedule
    loops = list(schedule.loops)
    loops[at] = change(loops[at])
    report = check_pipes(kernel, evolve(schedule, loops=tuple(loops)), ASCEND950)
    assert "pipe-loops" in {each.rule for each in report.violations}


def test_the_outermost_statements_run_once_and_every_loop_stands_once() -> None:
    kernel = matmul(2)
    schedule = schedule_pipes(kernel, ASCEND950).schedule
    top = evolve(schedule.loops[0], interval=10**9, bound=10**9)
    for loops in ((top, *schedule.loops[1:]), (*schedule.loops, schedule.loops[0])):
        report = check_pipes(kernel, evolve(schedule, loops=loops), ASCEND950)
        assert {each.rule for each in report.violations} == {"pipe-loops"}


def test_fewer_versions_than_the_order_needs_are_found() -> None:
    kernel = scale(2)
    schedule = schedule_pipes(kernel, ASCEND950).schedule
    rings = tuple(evolve(ring, versions=1) for ring in schedule.rings)
    report = check_pipes(kernel, evolve(schedule, rings=rings), ASCEND950)
    assert "pipe-order" in {each.rule for each in report.violations}


def test_roles_and_pools_are_not_for_pipes() -> None:
    with pytest.raises(InputError, match="ascend950 has pipes and no roles"):
        explorer.check(scale(2), machine="ascend950")
    with pytest.raises(InputError, match="its schedules are predicted"):
        explorer.derive(scale(2), ASCEND950)
    with pytest.raises(KernelError, match="places buffers in pool 'pool'"):
        schedule_pipes(pooled_gemm(), ASCEND950)
    assert explorer.check_pipes is check_pipes


def test_another_kernels_schedule_is_refused() -> None:
    schedule = schedule_pipes(scale(2), ASCEND950).schedule
    with pytest.raises(ScheduleError, match="another kernel"):
        check_pipes(manual(2), schedule, ASCEND950)
    with pytest.raises(ScheduleError, match="another kernel digest"):
        check_pipes(scale(3), schedule, ASCEND950)
