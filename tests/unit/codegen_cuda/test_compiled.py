"""Every generated kernel compiles for sm_90a as the rules said it would."""

from __future__ import annotations

import re

import pytest

from explorer.codegen.cuda import CudaKernel, generate
from explorer.machine import H200
from explorer.runtime.cuda.compile import Compiled, compile_source
from explorer.runtime.cuda.model import changed_schedule, compare
from explorer.schedule.extensions import CopyRoute, Raster
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    LAYOUTS,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    STORER,
    THREE_STAGED,
    TURNS,
    TURNS_STAGED,
    TWO_RINGS,
    WORKER,
    candidate,
    draw,
    gemm_space,
    one_arrival_too_many,
    program_of,
    source_of,
    with_routes,
)

pytest.importorskip("cuda.bindings")
HILBERT = tuple(Raster).index(Raster.HILBERT)


def compiled(kernel: CudaKernel) -> Compiled:
    found = compile_source(kernel.source, kernel.plan.arch)
    compare(kernel.plan, found.resources)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_known_good_schedule_compiles_as_asked(layout: str) -> None:
    space = gemm_space(layout, (8192, 8192, 8192))
    found = compiled(source_of(space, candidate(space, STAGED, **GOOD)))
    assert changed_schedule(found.resources) == ""
    assert found.resources.registers == 168
    assert found.resources.barriers == 3


@pytest.mark.parametrize(
    ("title", "tile", "depth"),
    [
        (TURNS_STAGED, (128, 192), 4),
        (TURNS_STAGED, (128, 160), 5),
        (TURNS, (128, 128), 6),
        (TURNS, (64, 256), 5),
    ],
)
def test_turns_compile_as_asked(title: str, tile: tuple[int, int], depth: int) -> None:
    """192 accumulators a thread of 240 registers: nothing spills, nothing is serialized."""
    space = gemm_space("gemm_nt", (4000, 4000, 4000))
    registers = {"nreg_producer": 24, "nreg_consumer": 240, "raster": HILBERT, "group": 1}
    choices = registers | dict(zip(("block_M", "block_N"), tile, strict=True))
    schedule = candidate(space, title, **(GOOD | choices | {"depth_A_B": depth}))
    found = compiled(source_of(space, schedule))
    assert changed_schedule(found.resources) == ""
    assert (found.resources.registers, found.resources.spill_bytes) == (168, 0)


@pytest.mark.parametrize(
    ("roles", "pieces", "tile", "depth"),
    [
        (STAGED, 2, (128, 256), 4),
        (STAGED, 2, (256, 160), 3),
        (THREE_STAGED, 2, (192, 160), 4),
        (THREE_STAGED, 2, (192, 176), 4),
        (THREE_STAGED, 3, (192, 192), 4),
        (TURNS_STAGED, 3, (128, 192), 4),
    ],
)
def test_staging_in_pieces_leaves_room_for_a_slot(
    roles: str, pieces: int, tile: tuple[int, int], depth: int
) -> None:
    space = gemm_space("gemm_nt", (4104, 4104, 4104))
    three = {"warps_consumer": 12, "nreg_consumer": 152} if roles == THREE_STAGED else {}
    turns = {"nreg_producer": 24, "nreg_consumer": 240} if roles == TURNS_STAGED else {}
    choices = dict(zip(("block_M", "block_N"), tile, strict=True)) | three | turns
    title = roles.replace("staged", f"staged in {pieces}")
    kernel = source_of(space, candidate(space, title, **(GOOD | choices | {"depth_A_B": depth})))
    # One bulk store a piece and consumer, or more where a swizzled box is narrower.
    assert kernel.source.count("store_commit();") == pieces * (2 if roles != THREE_STAGED else 1)
    found = compiled(kernel)
    assert changed_schedule(found.resources) == ""
    assert found.resources.spill_bytes == 0


def test_two_blocks_a_unit_share_its_registers() -> None:
    space = gemm_space("gemm", (4096, 4096, 4096))
    choices = {"blocks": 264, "block_N": 128, "nreg_consumer": 208, "depth_A_B": 3}
    kernel = source_of(space, candidate(space, ONE_CONSUMER, **(GOOD | choices)))
    assert "__launch_bounds__(256, 2)" in kernel.source
    found = compiled(kernel)
    assert changed_schedule(found.resources) == ""
    assert found.resources.registers == 128


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("title", [ONE_CONSUMER, TWO_RINGS, STORER, WORKER, DIRECT])
def test_every_kind_of_roles_compiles(title: str, kind: str) -> None:
    space = gemm_space("gemm", (1000, 1000, 1000), kind)
    depths = dict.fromkeys(("depth_A", "depth_B", "depth_A_B", "depth_C_staging"), 2)
    found = compiled(source_of(space, candidate(space, title, **SMALL, **depths)))
    assert changed_schedule(found.resources) == ""


@pytest.mark.parametrize("sizes", [(4000, 4000, 4000), (129, 257, 65), (1, 1, 1)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_legal_schedules_compile(layout: str, sizes: tuple[int, int, int]) -> None:
    space = gemm_space(layout, sizes)
    for title, schedule in draw(space, 1, seed=sum(sizes) + len(layout)):
        found = compiled(source_of(space, schedule))
        assert changed_schedule(found.resources) == "", f"{title}\n{schedule}"


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("trips", [1, 2, 3, 4, 6])
def test_loops_around_the_depth_compile(depth: int, trips: int) -> None:
    """C01: trips below, at and above the depth."""
    space = gemm_space("gemm", (256, 256, 64 * trips))
    lag = min(1, depth - 1)
    small = SMALL | {"lag_gemm_C_local": lag, "blocks": 132}
    compiled(source_of(space, candidate(space, DIRECT, **small, depth_A_B=depth)))


@pytest.mark.parametrize("route", [CopyRoute.ASYNC, CopyRoute.ELEMENT])
def test_stated_routes_compile(route: CopyRoute) -> None:
    space = gemm_space("gemm_nt", (250, 250, 250))
    schedule = candidate(space, ONE_CONSUMER, **SMALL, depth_A_B=2)
    stated = dict.fromkeys(("copy_A_shared", "copy_B_shared"), route)
    kernel = source_of(space, with_routes(schedule, stated))
    assert ("arrive_landed" in kernel.source) == (route == CopyRoute.ASYNC)
    compiled(kernel)


def test_without_minimal_blocks_the_log_of_an_ignored_request_is_read() -> None:
    """C25: ptxas that cannot know the registers at entry ignores requests and says C7508."""
    space = gemm_space("gemm", (1024, 1024, 1024))
    kernel = source_of(space, candidate(space, DIRECT, **SMALL, depth_A_B=2))
    assert "__launch_bounds__(384, 1)" in kernel.source
    unbounded = re.sub(r"__launch_bounds__\(384, 1\)", "", kernel.source)
    found = compile_source(unbounded, "sm_90a")
    assert "register-plan: not applied (C7508" in changed_schedule(found.resources)


def test_a_hang_report_needs_no_other_launch() -> None:
    space = gemm_space("gemm", (256, 256, 256))
    program = program_of(space, candidate(space, DIRECT, **SMALL, depth_A_B=2))
    kernel = generate(one_arrival_too_many(program), H200, bound_ns=1000)
    assert "barrier_init(base + 65536u + 8u * i, 2u)" in kernel.source
    assert kernel.plan.report_words == kernel.plan.grid_blocks * 3 * 4
    assert {site.pipeline for site in kernel.plan.sites} == {"A_B"}
    compiled(kernel)
