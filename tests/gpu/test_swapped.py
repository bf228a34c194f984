"""Gemms computed transposed, on the card: right in every layout, type and epilogue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from explorer.machine import H200
from explorer.records import Measured
from explorer.runtime import Built, Host, Session, load_workload
from explorer.schedule.bound import Schedule
from explorer.space import SearchSpace, space_of
from tests.gpu.support import is_spilled
from tests.support.cpu_candidates import draw
from tests.support.cuda_candidates import LAYOUTS, ONE_CONSUMER, candidate

pytestmark = pytest.mark.gpu

SWAPPED = "roles producer+consumer; rings A_shared+B_shared; swapped {} epilogue"
FAST = {
    "block_M": 16,
    "block_N": 128,
    "block_K": 64,
    "blocks": 132,
    "depth_A_B": 6,
    "lag_gemm_C_local": 1,
    "nreg_producer": 88,
    "nreg_consumer": 208,
    "warps_producer": 1,
    "warps_consumer": 4,
}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(H200) as opened:
        yield opened


def all_right(
    host: Host, name: str, sizes: dict[str, int], kind: str, drawn: list[tuple[str, Schedule]]
) -> None:
    """Every schedule that the compiler has registers for computes what it should."""
    workload = load_workload(name)
    problem = workload.problem(sizes, kind)
    bound = workload.bound(H200.name, problem.dtype)
    with Session(name, problem, H200, bound, 4.0, math.inf, host) as opened:
        with ThreadPoolExecutor(len(drawn)) as pool:
            builts = list(pool.map(opened.build, [schedule for _, schedule in drawn]))
        spilled = sum(map(is_spilled, builts))
        assert 2 * spilled < len(builts)
        for built, (title, schedule) in zip(builts, drawn, strict=True):
            if is_spilled(built):
                continue
            assert isinstance(built, Built), f"{title}: {built}\n{schedule}"
            outcome = opened.measure(built, repeats=1)
            assert isinstance(outcome, Measured), f"{title}: {outcome}\n{schedule}"


def space_for(name: str, sizes: dict[str, int], kind: str) -> SearchSpace:
    workload = load_workload(name)
    return space_of(workload, workload.problem(sizes, kind), H200)


def swapped_skeletons(space: SearchSpace) -> list[int]:
    return [n for n, each in enumerate(space.skeletons) if "swapped" in each.title]


@pytest.mark.parametrize("epilogue", ["direct", "staged"])
@pytest.mark.parametrize(
    ("rows", "columns", "warps"), [(16, 128, 4), (16, 64, 4), (32, 128, 8), (64, 256, 8)]
)
def test_tiles_of_few_rows(host: Host, rows: int, columns: int, warps: int, epilogue: str) -> None:
    """16 x 4096 x 4096 and its neighbours, in one part of the reduction and in several."""
    sizes = {"M": rows, "N": 4096, "K": 4096}
    space = space_for("gemm_nt", sizes, "bfloat16")
    tile = {"block_M": rows, "block_N": columns, "warps_consumer": warps, "depth_A_B": 4}
    drawn = [
        (
            f"{split} parts, {blocks} blocks",
            candidate(
                space,
                SWAPPED.format(epilogue),
                **(FAST | tile | {"split": split, "blocks": blocks}),
            ),
        )
        for split in (1, 2, 4)
        for blocks in (0, 132)
    ]
    all_right(host, "gemm_nt", sizes, "bfloat16", drawn)


@pytest.mark.parametrize("sizes", [(7, 1000, 520), (1, 4096, 1000), (33, 513, 257)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_legal_schedules(host: Host, layout: str, sizes: tuple[int, int, int]) -> None:
    named = dict(zip("MNK", sizes, strict=True))
    space = space_for(layout, named, "bfloat16")
    drawn = list(draw(space, 4, seed=sum(sizes), skeletons=swapped_skeletons(space)))
    all_right(host, layout, named, "bfloat16", drawn)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gemm_nt", "float8_e4m3"),
        ("gemm_nt", "float32"),
        ("gemm_nt", "float16"),
        ("gemm_promoted", "float8_e4m3"),
        ("gemm_bias", "bfloat16"),
        ("gemm_gelu", "bfloat16"),
        ("gemm_silu", "float16"),
        ("gemm_residual", "bfloat16"),
        ("gemm_alpha_beta", "float32"),
        ("gemm_batched", "bfloat16"),
        ("gemm_strided", "bfloat16"),
    ],
)
def test_types_and_epilogues(host: Host, name: str, kind: str) -> None:
    sizes = {"M": 24, "N": 1000, "K": 1040}
    sizes |= {"Z": 3} if "Z" in load_workload(name).sizes else {}
    space = space_for(name, sizes, kind)
    drawn = list(draw(space, 3, seed=len(name), skeletons=swapped_skeletons(space)))
    all_right(host, name, sizes, kind, drawn)


@pytest.mark.parametrize("layout", ["gemm", "gemm_nt"])
def test_few_columns_in_narrow_tiles(host: Host, layout: str) -> None:
    sizes = {"M": 4096, "N": 16, "K": 1024}
    space = space_for(layout, sizes, "bfloat16")
    drawn = [
        (
            f"{block_N} columns, {split} parts",
            candidate(
                space,
                ONE_CONSUMER,
                **(FAST | {"block_M": 128, "block_N": block_N}),
                split=split,
            ),
        )
        for block_N in (16, 32)
        for split in (1, 4)
    ]
    all_right(host, layout, sizes, "bfloat16", drawn)
