"""Streamed tiles as source: what is passed and printed, and that it compiles as asked."""

from __future__ import annotations

import re

import pytest

from explorer.codegen.cuda import CudaKernel
from explorer.machine import H200
from explorer.runtime import load_workload
from explorer.runtime.cuda.compile import compile_source
from explorer.runtime.cuda.model import changed_schedule, compare
from explorer.space import SearchSpace, space_of
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    LAYOUTS,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    WORKER,
    candidate,
    gemm_space,
    source_of,
)

SPACE = gemm_space("gemm_nt", (3072, 3072, 4096))
ODD = SMALL | {"nreg_producer": 88, "nreg_consumer": 208, "depth_A_B": 3, "stream": 1}


def kernel(**choices: int) -> CudaKernel:
    return source_of(SPACE, candidate(SPACE, STAGED, **(GOOD | {"stream": 1} | choices)))


def body(source: str) -> str:
    return source[source.index("__global__") :]


def test_without_a_stream_nothing_is_passed() -> None:
    plain = kernel(stream=0)
    assert not plain.plan.workspace
    assert plain.plan.tickets == 0
    assert "ticket" not in plain.source
    assert "unit" not in body(plain.source)


def test_a_place_and_tickets_for_every_cut() -> None:
    plan = kernel().plan
    (space,) = plan.workspace
    assert (space.name, space.dtype, space.shape) == (
        "C_local_parts",
        "float32",
        (131, 2, 128, 256),
    )
    assert plan.tickets == 131 * 2
    assert plan.grid_blocks == 132
    assert plan.outputs == ("C",)


def test_a_role_walks_units_and_leaves_at_the_first_empty_one() -> None:
    text = body(kernel().source)
    head = "for (int v_unit = (int)blockIdx.x; v_unit < 528; v_unit += (int)gridDim.x)"
    assert text.count(head) == 3
    assert text.count("if (v_ko_extent == 0) break;") == 3
    # The last tile is looked up only behind that: a unit without iterations has none.
    assert text.index("v_ko_extent == 0") < text.index("const int v_bx")
    assert text.count("for (int v_ko = 1; v_ko < v_ko_extent; ++v_ko)") == 2
    # No unit is empty, so that the first gemm clears the sums.
    assert "f_C_local_0[x] = (float)" not in text


def test_whole_tiles_draw_no_ticket() -> None:
    text = body(kernel().source)
    slot = r"tickets \+ \(\(v_unit % 132\) - v_ko_part\) \* 2 \+ (\d), 2u, (\d)u, 128u, thread"
    drawn = rf"const int v_ko_last = \(v_ko_extent < 64\) \? draw_ticket\({slot}\) : 1;"
    assert re.findall(drawn, text) == [("0", "1"), ("1", "2")]
    assert text.count("if (((v_ko_last == 1) && (v_ko_extent < 64)))") == 2
    assert len(re.findall(r"sum_parts<2, 128, 10, 1>\(.*, 32768, v_ko_part, thread\)", text)) == 2
    assert text.count("if ((v_ko_last == 1))") == 2


def assert_compiles(space: SearchSpace, title: str, **choices: int) -> None:
    found = source_of(space, candidate(space, title, **choices))
    assert "draw_ticket" in body(found.source)
    compiled = compile_source(found.source, found.plan.arch)
    compare(found.plan, compiled.resources)
    assert changed_schedule(compiled.resources) == ""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("title", "sizes", "choices"),
    [
        (STAGED, (512, 520, 1000), {"blocks": 13}),
        (ONE_CONSUMER, (1000, 1500, 777), {"blocks": 132, "block_M": 64}),
        (WORKER, (130, 72, 512), {"blocks": 2, "block_M": 64, "block_N": 96}),
    ],
)
def test_streams_compile_without_spills(
    layout: str, title: str, sizes: tuple[int, int, int], choices: dict[str, int]
) -> None:
    pytest.importorskip("cuda.bindings")
    assert_compiles(gemm_space(layout, sizes), title, **(ODD | choices))


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [1, 2])
def test_the_largest_tile_compiles_without_spills(cluster: int) -> None:
    pytest.importorskip("cuda.bindings")
    pair = {"cluster": cluster, "cluster_axis": cluster - 1}
    assert_compiles(SPACE, STAGED, **(GOOD | {"stream": 1} | pair))
    assert_compiles(SPACE, DIRECT, **(GOOD | {"stream": 1, "depth_A_B": 4} | pair))


@pytest.mark.slow
@pytest.mark.parametrize("epilogue", ["direct", "staged"])
@pytest.mark.parametrize("name", ["gemm_batched", "gemm_gelu", "gemm_residual"])
def test_epilogues_run_behind_the_last_part(name: str, epilogue: str) -> None:
    pytest.importorskip("cuda.bindings")
    workload = load_workload(name)
    sizes = {"M": 2048, "N": 2048, "K": 1024} | ({"Z": 3} if name == "gemm_batched" else {})
    space = space_of(workload, workload.problem(sizes, "bfloat16"), H200)
    title = next(
        skeleton.title
        for skeleton in space.skeletons
        if skeleton.title.startswith(
            "roles producer+consumer_0+consumer_1; rings A_shared+B_shared"
        )
        and skeleton.title.endswith(f"; {epilogue} epilogue")
    )
    depths = {c.name: 1 for c in space.choices if c.name.startswith("depth")}
    choices = GOOD | depths | {"block_N": 128, "stream": 1, "depth_A_B": 2}
    assert_compiles(space, title, **choices)
