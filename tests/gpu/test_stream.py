"""Streamed tiles on the card: right in every layout, for every length of the ranges, batched and
with epilogues, and the same bits at every launch."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.data import dumps
from explorer.machine import H200
from explorer.records import Measured
from explorer.runtime import Built, Session, load_workload
from explorer.runtime.cuda.arrays import device_bits
from explorer.runtime.cuda.build import plan_path, write_whole
from explorer.runtime.cuda.compile import compile_source
from explorer.runtime.cuda.loaded import Loaded
from explorer.schedule.bound import Schedule
from explorer.space import SearchSpace, space_of
from tests.gpu.support import all_are_right, built, session
from tests.support.cpu_candidates import draw
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    LAYOUTS,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    TWO_RINGS,
    WORKER,
    candidate,
    gemm_space,
    source_of,
)

pytestmark = pytest.mark.gpu
ODD = SMALL | {"nreg_consumer": 208, "depth_A_B": 3, "depth_A": 2, "depth_B": 3, "stream": 1}
PIPELINED = "roles producer+consumer_0+consumer_1; rings A_shared+B_shared"


def streamed(space: SearchSpace, count: int, seed: int) -> Iterator[tuple[str, Schedule]]:
    """(title, a legal schedule that streams), of so many skeletons."""
    able = [index for index in range(len(space.skeletons)) if "stream" in space.active(index)]
    skeletons = random.Random(seed).sample(able, min(count, len(able)))
    narrowed = space.restricted(stream=(1,), split=(1,), blocks=(132, 264))
    return draw(narrowed, 1, seed, skeletons)


@pytest.mark.parametrize("sizes", [(3072, 3072, 4096), (2500, 4100, 777)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_legal_schedules(layout: str, sizes: tuple[int, int, int]) -> None:
    found = streamed(gemm_space(layout, sizes), 4, sum(sizes) + LAYOUTS.index(layout))
    with session(layout, sizes) as opened:
        all_are_right(opened, found)


@pytest.mark.parametrize("trips", [2, 3, 5, 9])
def test_ranges_of_every_length(trips: int) -> None:
    """Forty tiles on few blocks: ranges that end in every iteration, and empty ones."""
    sizes = (1000, 600, 64 * trips - 8)
    space = gemm_space("gemm_nt", sizes)
    with session("gemm_nt", sizes) as opened:
        for blocks in (3, 24, 39):
            for title in (STAGED, DIRECT, TWO_RINGS, WORKER):
                lag = {"lag_gemm_C_local": 0 if title == WORKER else 1}
                schedule = candidate(space, title, **ODD | lag | {"blocks": blocks})
                outcome = opened.measure(built(opened, schedule), repeats=1)
                assert isinstance(outcome, Measured), f"{title} {blocks}: {outcome}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_sizes(layout: str) -> None:
    """Rows of 777 elements are no multiple of 16 B; those of 776 travel by the copy engine."""
    for sizes in ((1000, 1500, 777), (1000, 1504, 776)):
        space = gemm_space(layout, sizes)
        with session(layout, sizes) as opened:
            for title, blocks in ((STAGED, 13), (ONE_CONSUMER, 77), (DIRECT, 95)):
                schedule = candidate(space, title, **ODD | {"blocks": blocks})
                outcome = opened.measure(built(opened, schedule), repeats=1)
                assert isinstance(outcome, Measured), f"{sizes} {title}: {outcome}"


@pytest.mark.parametrize("axis", [0, 1])
def test_clusters_stream_side_by_side(axis: int) -> None:
    """Seven by nine tiles: either axis has a cluster that is not whole."""
    sizes = (7 * 128, 9 * 128, 1000)
    space = gemm_space("gemm_nt", sizes)
    pair = ODD | {"cluster": 2, "cluster_axis": axis, "lag_gemm_C_local": 1}
    with session("gemm_nt", sizes) as opened:
        for title in (STAGED, DIRECT, TWO_RINGS):
            for blocks in (4, 10, 46):
                schedule = candidate(space, title, **pair | {"blocks": blocks})
                outcome = opened.measure(built(opened, schedule), repeats=1)
                assert isinstance(outcome, Measured), f"{title} {blocks}: {outcome}"


@pytest.mark.parametrize(
    "name", ["gemm_batched", "gemm_bias", "gemm_gelu", "gemm_residual", "gemm_alpha_beta"]
)
def test_epilogues_run_once_a_tile(name: str) -> None:
    workload = load_workload(name)
    sizes = {"M": 2000, "N": 2056, "K": 1000} | ({"Z": 3} if "Z" in workload.sizes else {})
    problem = workload.problem(sizes, "bfloat16", H200.name)
    space = space_of(workload, problem, H200)
    depths = {c.name: 1 for c in space.choices if c.name.startswith("depth")}
    choices = GOOD | depths | {"block_N": 128, "depth_A_B": 2, "stream": 1}
    bound = workload.bound(H200.name, problem.dtype)
    with Session(name, problem, H200, bound, 4.0, math.inf) as opened:
        for epilogue in ("direct", "staged"):
            title = next(
                s.title
                for s in space.skeletons
                if s.title.startswith(PIPELINED) and s.title.endswith(f"; {epilogue} epilogue")
            )
            found = opened.build(candidate(space, title, **choices))
            assert isinstance(found, Built), f"{title}: {found}"
            outcome = opened.measure(found, repeats=1)
            assert isinstance(outcome, Measured), f"{title}: {outcome}"


@pytest.mark.parametrize("title", [STAGED, DIRECT])
def test_every_launch_gives_the_same_bits(title: str, tmp_path: Path) -> None:
    """Whoever comes last: 288 tiles of which 131 are cut, again and again."""
    import cupy  # noqa: PLC0415

    workload = load_workload("gemm_nt")
    problem = workload.problem({"M": 3072, "N": 3072, "K": 4096}, "bfloat16")
    space = space_of(workload, problem, H200)
    kernel = source_of(space, candidate(space, title, **GOOD, stream=1))
    cubin = tmp_path / "0.cubin"
    write_whole(plan_path(cubin), dumps(kernel.plan).encode())
    write_whole(cubin, compile_source(kernel.source, kernel.plan.arch).cubin)
    given = workload.inputs(problem, np.random.default_rng(7))
    tensors: dict[str, Any] = {
        tensor.name: device_bits(given[tensor.name], tensor.dtype)
        for tensor in space.kernel.tensors
        if tensor.name in given
    }
    tensors["C"] = cupy.empty((3072, 3072), np.uint16)
    launch = Loaded(cubin).bind(tensors)
    results = []
    for _ in range(20):
        tensors["C"].fill(0xFFFF)
        launch()
        results.append(cupy.asnumpy(tensors["C"]))
    assert all(np.array_equal(result, results[0]) for result in results)
