"""A suite on a fake device: it stops and goes on, prints one table, takes features away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from explorer.constraints import check
from explorer.data import loads
from explorer.errors import ExplorerError, InputError, Interrupted, RecordError
from explorer.machine import CPU, H200
from explorer.records import Crashed, Measured, Outcome, Trial, load
from explorer.schedule.bound import Schedule
from explorer.space import Case, Suite, Workload, space_of
from explorer.tune.ablation import FEATURES, ablate, candidates
from explorer.tune.bench import BenchRequest, SilentBench, SuiteBench, bench_on, is_done
from explorer.tune.run import Silent
from explorer.tune.table import Figures, Table, geometric_mean
from tests.support.cuda_candidates import GOOD, STAGED, gemm_space
from tests.support.fakes import FakeDevice, fake_session, small_workload

SUITE = Suite(
    name="toys",
    machine="cpu",
    size_names=("M", "N", "K"),
    layouts={"toy": "A[M,K] B[K,N]", "yot": "A[K,M] B[K,N]"},
    dtypes=("float32", "bfloat16"),
    cases=(
        Case("toy", (256, 256, 256), "float32"),
        Case("toy", (128, 256, 512), "float32"),
        Case("yot", (256, 256, 256), "bfloat16"),
    ),
)
TRIALS = 6


def toys(name: str) -> Workload:
    return small_workload(name=name, dtypes=("float32", "bfloat16"))


def run(
    out: Path,
    session: Callable[..., FakeDevice] | None = None,
    watcher: Any = None,
    **options: Any,
) -> Table:
    request = BenchRequest("toys", out=out, trials=TRIALS, **options)
    return bench_on(request, SUITE, session or fake_session(), watcher or SilentBench(), toys)


class Stopping(SilentBench):
    """Interrupts one case after some trials."""

    def __init__(self, number: int, after: int) -> None:
        self.number, self.after = number, after
        self.cases: list[str] = []

    def case(self, case: Case, number: int, count: int) -> Silent:
        self.cases.append(case.name)
        watcher, after = Silent(), self.after

        def trial(trial: Trial, done: int, best_us: float | None) -> None:
            if done == after:
                raise KeyboardInterrupt

        if number == self.number:
            watcher.trial = trial  # type: ignore[method-assign]
        return watcher


def test_every_case_is_tuned_and_the_table_is_one_run(tmp_path: Path) -> None:
    opened: list[FakeDevice] = []
    table = run(tmp_path, fake_session(opened=opened))
    assert [row.case for row in table.rows] == list(SUITE.cases)
    assert all(row.figures is not None for row in table.rows)
    # One session a case to tune, then one a case for the table, all open at once.
    assert len(opened) == 2 * len(SUITE.cases)
    for device in opened[len(SUITE.cases) :]:
        assert device.races == [(1, 7, True)] * 5
        assert device.measured == 1
    assert loads((tmp_path / "table.json").read_text(), Table) == table
    text = (tmp_path / "table.md").read_text()
    assert "| 128x256x512 | A[M,K] B[K,N] | float32  |" in text
    assert f"all: {table.mean:.3f}, geometric mean of peer/ours over 3 cases" in text


def test_run_folders_are_small_and_readable(tmp_path: Path) -> None:
    run(tmp_path)
    folder = tmp_path / SUITE.cases[0].name
    assert sorted(each.name for each in folder.iterdir()) == [
        "best.json",
        "environment.json",
        "run.json",
        "source.c",
        "trials.parquet",
    ]
    recorded = load(folder)
    assert len(recorded.trials) == TRIALS
    assert recorded.best is not None


def test_a_suite_stops_and_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match=r"stopped in toy-128x256x512-float32: --resume goes on"):
        run(tmp_path, watcher=Stopping(2, after=3))
    done = [is_done(tmp_path / case.name) for case in SUITE.cases]
    assert done == [True, False, False]
    before = load(tmp_path / SUITE.cases[0].name).info
    watcher = Stopping(0, after=0)
    table = run(tmp_path, watcher=watcher, resume=True)
    assert watcher.cases == [case.name for case in SUITE.cases[1:]]
    assert load(tmp_path / SUITE.cases[0].name).info == before
    assert [len(load(tmp_path / case.name).trials) for case in SUITE.cases] == [TRIALS] * 3
    assert len(table.ratios) == 3


def test_runs_in_the_way_are_not_touched(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(RecordError, match="holds a run: --resume goes on, --table-only"):
        run(tmp_path)


def test_the_table_alone_tunes_nothing(tmp_path: Path) -> None:
    run(tmp_path)
    opened: list[FakeDevice] = []
    table = run(tmp_path, fake_session(opened=opened), table_only=True)
    assert len(opened) == len(SUITE.cases)
    assert all(row.figures is not None for row in table.rows)
    with pytest.raises(RecordError, match="no case has a winner to measure: no run folder at"):
        run(tmp_path / "none", table_only=True)
    assert not (tmp_path / "none").exists()


def test_a_table_of_fewer_cases_is_not_put_in_the_place_of_one(tmp_path: Path) -> None:
    run(tmp_path)
    before = (tmp_path / "table.json").read_text()
    phases: list[str] = []
    watcher = SilentBench()
    watcher.phase = phases.append  # type: ignore[method-assign]
    table = run(tmp_path, watcher=watcher, table_only=True, shapes=((256, 256, 256),))
    assert len(table.rows) == 1
    assert "has more cases, and is left as it is" in phases[-1]
    assert (tmp_path / "table.json").read_text() == before


def test_runs_of_another_machine_are_not_measured_again(tmp_path: Path) -> None:
    run(tmp_path)
    for options in ({"table_only": True}, {"resume": True}, {}):
        with pytest.raises(InputError, match="holds a run on cpu, this bench is on h200: --out"):
            run(tmp_path, machine="h200", **options)


def test_a_case_that_fails_is_a_row_that_says_why(tmp_path: Path) -> None:
    def workload_of(name: str) -> Workload:
        broken = dict.fromkeys(("block_M", "block_N", "block_K"), (1 << 14,))
        return toys(name) if name == "toy" else small_workload(name=name, tiles={"cpu": broken})

    request = BenchRequest("toys", out=tmp_path, trials=TRIALS)
    table = bench_on(request, SUITE, fake_session(), SilentBench(), workload_of)
    assert [row.figures is None for row in table.rows] == [False, False, True]
    assert "no legal candidate among" in table.rows[2].failure
    assert "failed" in (tmp_path / "table.md").read_text()


def test_a_winner_that_is_wrong_now_is_not_in_the_mean(tmp_path: Path) -> None:
    run(tmp_path)
    wrong = fake_session(lambda schedule: Crashed("gone"))
    table = run(tmp_path, wrong, table_only=True)
    assert [row.failure for row in table.rows] == ["gone"] * 3
    assert table.ratios == {}
    assert not table.measured


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 61.0}, "at most 60 s"),
        ({"seconds": 0.0}, "more than 0"),
        ({"layouts": ("gemm_zz",), "shapes": ((1, 1, 1),)}, "unknown layout 'gemm_zz'"),
        ({"dtypes": ("tf32",), "shapes": ((1, 1, 1),)}, "unknown dtype 'tf32'"),
        ({"shapes": ((1, 1),)}, "shape 1x1 of toys must be MxNxK"),
        ({"dtypes": ("float16",)}, "suite toys has no case of float16"),
    ],
)
def test_bad_requests(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path, **options)


def test_shapes_layouts_and_types_choose_cases() -> None:
    assert SUITE.chosen((), (), ()) == SUITE.cases
    assert SUITE.chosen((), ("yot",), ()) == SUITE.cases[2:]
    assert SUITE.chosen(((1, 2, 3),), (), ()) == (Case("toy", (1, 2, 3), "float32"),)
    crossed = SUITE.chosen(((1, 2, 3),), ("toy", "yot"), ("bfloat16",))
    assert [case.name for case in crossed] == ["toy-1x2x3-bfloat16", "yot-1x2x3-bfloat16"]
    with pytest.raises(InputError, match="has a case twice"):
        evolve(SUITE, cases=SUITE.cases[:1] * 2)


def test_ratios_are_taken_round_by_round() -> None:
    figures = Figures.of(
        ours=[10.0, 20.0, 40.0],
        peers=[11.0, 22.0, 44.0],
        peer="library",
        operations=2e9,
        error=0.0,
        trials=1,
        tuned_s=1.0,
    )
    assert figures.ratio == pytest.approx(1.1)
    assert figures.ratio_low == pytest.approx(1.1)
    assert figures.tflops == pytest.approx(100.0)
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


# ---------------------------------------------------------------- ablation


def test_each_feature_is_away_alone_and_legal() -> None:
    space = gemm_space("gemm_nt", (4096, 4096, 4096))
    values = {choice.name: choice.domain[0] for choice in space.choices} | GOOD
    titles = [skeleton.title for skeleton in space.skeletons]
    winner = space.canonical(values | {"skeleton": titles.index(STAGED)})
    found = {each.feature: each for each in candidates(space, winner)}
    assert set(found) >= {
        "gemms in flight",
        "slots beyond two",
        "staged epilogue",
        "persistent blocks",
        "raster order",
        "second consumer",
    }
    assert "split reduction" not in found, "the winner has none"
    expected = {
        "gemms in flight": {"lag_gemm_C_local": 0},
        "slots beyond two": {"depth_A_B": 2},
        "persistent blocks": {"blocks": 0},
        "raster order": {"raster": 0, "group": 1},
    }
    for name, step in found.items():
        assert step.assignment is not None, step
        assert check(space.kernel, space.candidate(step.assignment), H200).ok
        assert step.assignment != winner
        for choice, value in expected.get(name, {}).items():
            assert step.assignment[choice] == value
    assert "direct" in titles[found["staged epilogue"].assignment["skeleton"]]  # type: ignore[index]


def test_without_pieces_the_ring_gives_a_slot_back() -> None:
    space = gemm_space("gemm_nt", (4096, 4096, 4096))
    values = {choice.name: choice.domain[0] for choice in space.choices} | GOOD
    titles = [skeleton.title for skeleton in space.skeletons]
    in_pieces = titles.index(STAGED.replace("staged", "staged in 2"))
    winner = space.canonical(values | {"skeleton": in_pieces, "depth_A_B": 4})
    steps = {each.feature: each for each in candidates(space, winner)}
    assert ("depth_A_B", 4, 3) in steps["staging in pieces"].moved
    direct = steps["staged epilogue"].assignment
    assert direct is not None and "direct" in titles[direct["skeleton"]]


def test_without_the_swap_rows_are_those_of_the_instruction() -> None:
    space = gemm_space("gemm_nt", (16, 4096, 16384))
    values = {choice.name: choice.domain[0] for choice in space.choices} | GOOD
    titles = [skeleton.title for skeleton in space.skeletons]
    title = "roles producer+consumer; rings A_shared+B_shared; {} epilogue"
    swapped = titles.index(title.format("swapped direct"))
    winner = space.canonical(values | {"skeleton": swapped, "block_M": 16, "block_N": 128})
    steps = {each.feature: each for each in candidates(space, winner)}
    step = steps["swapped operands"].assignment
    assert step is not None
    assert titles[step["skeleton"]] == title.format("direct")
    assert step["block_M"] == 64
    assert ("block_M", 16, 64) in steps["swapped operands"].moved


def test_a_ladder_is_measured_in_one_race(tmp_path: Path) -> None:
    run(tmp_path)
    opened: list[FakeDevice] = []
    request = BenchRequest("toys", out=tmp_path, trials=TRIALS)
    bench = SuiteBench(request, SUITE, fake_session(opened=opened), SilentBench(), toys)
    ladder = ablate(bench, bench.winner(SUITE.cases[0]))
    (device,) = opened
    ((entries, _, with_peer),) = device.races
    measured = [step for step in ladder.steps if step.time_us is not None]
    assert entries == 1 + len(measured) >= 2
    assert with_peer
    assert ladder.peer_us is not None
    assert {step.feature for step in ladder.steps} <= {feature.name for feature in FEATURES}
    for step in measured:
        assert step.marginal_tflops == pytest.approx(ladder.tflops - (step.tflops or 0.0))
    path = tmp_path / f"ablation-{SUITE.cases[0].name}.json"
    assert json.loads(path.read_text())["format"] == "Ladder"


def test_a_step_that_fails_says_so(tmp_path: Path) -> None:
    run(tmp_path)
    best = load(tmp_path / SUITE.cases[0].name).best
    assert best is not None

    def fail(schedule: Schedule) -> Outcome | None:
        return None if schedule.digest == best.schedule.digest else Crashed("boom")

    bench = SuiteBench(
        BenchRequest("toys", out=tmp_path, trials=TRIALS),
        SUITE,
        fake_session(fail),
        SilentBench(),
        toys,
    )
    ladder = ablate(bench, bench.winner(SUITE.cases[0]))
    assert ladder.steps
    assert all(step.time_us is None and step.failure for step in ladder.steps)
    assert Measured.__name__ not in str(ladder.steps)
    with pytest.raises(ExplorerError, match="no run folder at"):
        bench.winner(Case("toy", (1, 1, 1), "float32"))


def test_machines_of_the_shipped_suite() -> None:
    from explorer.runtime import load_suite, load_workload  # noqa: PLC0415

    suite = load_suite("gemm")
    assert suite.machine == H200.name
    assert len(suite.cases) >= 19
    for case in suite.cases:
        workload = load_workload(case.workload)
        assert workload.problem(suite.named_sizes(case), case.dtype, H200.name)
    with pytest.raises(InputError, match="unknown suite 'nope': known are gemm"):
        load_suite("nope")
    assert space_of(toys("toy"), toys("toy").problem({}, "float32"), CPU).size > 1
