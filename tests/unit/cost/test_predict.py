"""Predictions: their order against committed measurements, and what each formula says."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from attrs import evolve

import explorer
from explorer.cost import FIGURES, NoPrediction, predict
from explorer.cost.ops import Cost
from explorer.cost.residency import blocks_a_unit, residency
from explorer.cost.traffic import memory_bytes
from explorer.cost.walk import Cycle, ring_period_us
from explorer.machine import CPU, H200
from explorer.passes import materialize
from explorer.program.nodes import Program
from explorer.runtime import load_workload
from explorer.space import space_of
from explorer.tune import problem_of
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    ONE_CONSUMER,
    STAGED,
    TURNS_STAGED,
    WORKER,
    candidate,
    gemm_space,
    program_of,
)

ONE_STAGED = ONE_CONSUMER.replace("direct", "staged")
RESULTS = Path(__file__).parents[3] / "results" / "h200"
SPACE = gemm_space("gemm", (4096, 4096, 4096))
FIRST = FIGURES["h200"]


def program(title: str = STAGED, **choices: int) -> Program:
    return program_of(SPACE, candidate(SPACE, title, **{**GOOD, **choices}))


def predicted_us(title: str = STAGED, **choices: int) -> float:
    return predict(program(title, **choices), H200).predicted_us


# 0.85 and 0.96; the runs were recorded after the figures had been set.
@pytest.mark.parametrize(
    ("run", "least"), [("gemm-8192-bfloat16", 0.8), ("gemm-4096-bfloat16", 0.85)]
)
def test_predictions_sort_measured_trials(run: str, least: float) -> None:
    recorded = explorer.load(RESULTS / run)
    workload = load_workload(recorded.info.space)
    space = space_of(workload, problem_of(recorded.info, workload), recorded.info.machine)
    # A choice that a record does not know of has its first value.
    first = {choice.name: choice.domain[0] for choice in space.choices}
    measured, predicted = [], []
    for trial in recorded.trials:
        if trial.time_us is not None:
            schedule = space.candidate(first | trial.choices)
            found = materialize(space.kernel, schedule, space.machine)
            measured.append(trial.time_us)
            predicted.append(predict(found, space.machine).predicted_us)
    assert len(measured) >= 100
    ranks = pandas.DataFrame({"measured": measured, "predicted": predicted}).rank()
    assert ranks["measured"].corr(ranks["predicted"]) >= least


def test_what_a_prediction_is_made_of() -> None:
    found = predict(program(), H200)
    # 512 tiles on 132 blocks, one a unit: four waves of 64 x 0.7 us of matrix work.
    assert (found.resident_blocks, found.waves) == (1, 4)
    flop_us = 2 * 128 * 256 * 4096 / (FIRST.matrix_flop_per_us / 132)
    assert found.matrix_us == pytest.approx(4 * flop_us)
    assert found.matrix_us < found.tiles_us < found.predicted_us


@pytest.mark.parametrize(("kind", "factor"), [("float8_e4m3", 0.5), ("float32", 2.0)])
def test_matrix_work_goes_by_the_bytes_of_the_operands(kind: str, factor: float) -> None:
    times = []
    for each in ("bfloat16", kind):
        space = gemm_space("gemm_nt", (4096, 4096, 4096), each)
        small = {"block_M": 128, "block_N": 128, "block_K": 32, "depth_A_B": 3}
        schedule = candidate(space, DIRECT, **GOOD | small)
        times.append(predict(program_of(space, schedule), H200).matrix_us)
    assert times[1] == pytest.approx(factor * times[0])


def test_deeper_rings_and_several_roles_are_predicted_faster() -> None:
    one, two, three = (predicted_us(depth_A_B=depth, lag_gemm_C_local=0) for depth in (1, 2, 3))
    assert one > 1.4 * two > 1.4 * three
    assert predicted_us(WORKER, warps_worker=8) > 2 * one


def test_a_ring_turns_as_fast_as_fill_and_hold_allow() -> None:
    fill = Cycle("p", full=False, cost=Cost(copy_us=0.3), bulk=True, lag=0)
    hold = Cycle("p", full=True, cost=Cost(matrix_us=0.6), bulk=False, lag=0)
    latency = FIRST.copy_latency_us
    assert ring_period_us([fill, hold], 1, FIRST) == pytest.approx(latency + 0.9)
    assert ring_period_us([fill, hold], 2, FIRST) == pytest.approx((latency + 0.9) / 2)
    assert ring_period_us([fill, hold], 4, FIRST) == pytest.approx(0.6)
    late = evolve(hold, lag=1)
    assert ring_period_us([fill, late], 2, FIRST) == pytest.approx(latency + 0.3)


def test_a_raster_decides_what_device_memory_delivers() -> None:
    moved = {
        (raster, group): memory_bytes(program(raster=raster, group=group), 132, {"bx": 0, "by": 0})
        for raster, group in ((0, 1), (2, 2), (2, 16))
    }
    # 132 tiles in rows of 16 read 9 row panels and 16 column panels, the wider ones; in strips of
    # 2 it is 10 and 16, in strips of 16 it is 16 and 9.
    assert moved[2, 16] < moved[0, 1] < moved[2, 2]
    per_tile = (16 * 128 + 9 * 256) * 4096 * 2 / 132 + 128 * 256 * 2
    assert moved[2, 16] == pytest.approx(512 * per_tile)


def test_residency_follows_shared_memory_and_registers() -> None:
    small = program(WORKER, block_M=64, block_N=64, block_K=32, warps_worker=4, blocks=0)
    assert blocks_a_unit(small, H200) == 2
    assert residency(small, H200).waves == 4096 // 264 + 1
    assert blocks_a_unit(program(), H200) == 1


def test_two_blocks_a_unit_count_where_the_launch_counts_on_them() -> None:
    small = {"block_N": 128, "depth_A_B": 3, "nreg_consumer": 208}
    two = program(ONE_CONSUMER, blocks=264, **small)
    assert residency(two, H200).blocks == 2
    assert residency(two, H200).waves == 1024 // 264 + 1
    assert residency(program(ONE_CONSUMER, **small), H200).blocks == 1


def test_turns_hide_the_epilogue() -> None:
    """Of the same tiles, two consumers in turn are faster than one that stores before it goes on,
    and no faster than the matrix unit."""
    tiles = {"block_N": 128, "depth_A_B": 6}
    turns = predict(program(TURNS_STAGED, **tiles), H200)
    one = predict(program(ONE_STAGED, **tiles), H200)
    assert turns.matrix_us == pytest.approx(one.matrix_us)
    assert turns.matrix_us <= turns.tiles_us < one.tiles_us


def test_no_figures_no_prediction() -> None:
    with pytest.raises(NoPrediction, match="no prediction for cpu: figures are known of h200"):
        predict(program(), CPU)
    with pytest.raises(NoPrediction, match="known at run time only"):
        predict(evolve(program(), scalars=("n",)), H200)


def test_clusters_copy_less_and_fetch_the_same() -> None:
    alone = predict(program(), H200)
    along_n, along_m = (predict(program(cluster=2, cluster_axis=axis), H200) for axis in (0, 1))
    # Of 128 + 256 rows a step each block copies half of the 128 rows of A, or of the 256 of B.
    assert along_n.copy_us == pytest.approx(alone.copy_us * (384 - 64) / 384)
    assert along_m.copy_us == pytest.approx(alone.copy_us * (384 - 128) / 384)
    one = memory_bytes(program(cluster=2, cluster_axis=1), 2, {"bx": 0, "by": 0})
    # Two tiles of one column: the panel of B once, a row panel of A each.
    assert one == pytest.approx(512 * ((128 + 256 / 2) * 4096 * 2 + 128 * 256 * 2))


def test_rows_that_cut_sectors_are_copied_slowly() -> None:
    space = gemm_space("gemm_nt", (4104, 4104, 4104))
    whole = gemm_space("gemm_nt", (4112, 4112, 4112))
    odd, even = (
        predict(program_of(each, candidate(each, STAGED, **GOOD)), H200) for each in (space, whole)
    )
    assert odd.copy_us / even.copy_us == pytest.approx(FIRST.off_sector)
    pairs = predict(program_of(space, candidate(space, STAGED, **GOOD, cluster=2)), H200)
    assert pairs.copy_us < odd.copy_us


def test_parts_pay_where_tiles_are_few() -> None:
    space = gemm_space("gemm_nt", (1024, 1024, 16384))
    tile = GOOD | {"block_N": 128, "depth_A_B": 5}
    found = {
        split: predict(program_of(space, candidate(space, STAGED, **tile, split=split)), H200)
        for split in (1, 2, 4)
    }
    # 64 tiles: two parts fill the units once, four take two waves.
    assert found[2].waves == found[1].waves == 1
    assert found[4].waves == 2
    assert found[2].predicted_us < 0.7 * found[1].predicted_us
    assert found[2].predicted_us < found[4].predicted_us
    assert found[2].memory_us == pytest.approx(found[1].memory_us, rel=0.1)


@pytest.mark.parametrize(
    ("sizes", "gain"),
    [
        # 2.2 waves, 3.9, and 15.5 of which the last is half empty.
        ((3072, 3072, 4096), (0.7, 0.9)),
        ((4096, 4096, 4096), (1.0, 1.1)),
        ((8192, 8192, 8192), (0.95, 1.0)),
    ],
)
def test_streaming_pays_where_the_last_wave_is_far_from_full(
    sizes: tuple[int, int, int], gain: tuple[float, float]
) -> None:
    space = gemm_space("gemm_nt", sizes)
    plain, streamed = (
        predict(program_of(space, candidate(space, STAGED, **GOOD, stream=stream)), H200)
        for stream in (0, 1)
    )
    assert gain[0] < streamed.predicted_us / plain.predicted_us < gain[1]
    assert streamed.memory_us == pytest.approx(plain.memory_us)
    # Nobody works on more iterations than an equal share of all.
    tiles = sizes[0] // 128 * (sizes[1] // 256)
    even = tiles / 132 / plain.waves
    assert streamed.matrix_us == pytest.approx(even * plain.matrix_us, rel=0.02)
