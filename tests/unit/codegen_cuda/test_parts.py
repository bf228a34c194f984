"""Split reductions as source: what is passed, printed, and that it compiles as asked."""

from __future__ import annotations

import re

import pytest

from explorer.codegen.cuda import CudaKernel, Parameter
from explorer.codegen.cuda.fold import fold
from explorer.expr import Const, Var, ceildiv, maximum, minimum
from explorer.program.nodes import For
from explorer.runtime.cuda.compile import compile_source
from explorer.runtime.cuda.model import changed_schedule, compare
from tests.support.cuda_candidates import (
    DIRECT,
    LAYOUTS,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    WORKER,
    candidate,
    gemm_space,
    source_of,
)

FAST = SMALL | {"lag_gemm_C_local": 1, "nreg_producer": 40, "nreg_consumer": 232, "depth_A_B": 4}
ODD = FAST | {"nreg_producer": 88, "nreg_consumer": 208, "depth_A_B": 3}
SPACE = gemm_space("gemm_nt", (1024, 1024, 16384))


def kernel(title: str = STAGED, **choices: int) -> CudaKernel:
    return source_of(SPACE, candidate(SPACE, title, **(FAST | choices)))


def body(source: str) -> str:
    return source[source.index("__global__") :]


def test_without_parts_nothing_is_passed() -> None:
    plain = kernel(split=1)
    assert not plain.plan.workspace
    assert plain.plan.tickets == 0
    assert "ticket" not in plain.source


def test_workspace_and_tickets_are_part_of_the_plan() -> None:
    plan = kernel(split=2).plan
    (space,) = plan.workspace
    assert (space.name, space.dtype, space.shape) == (
        "C_local_parts",
        "float32",
        (64, 2, 128, 128),
    )
    assert plan.tickets == 64 * 2
    assert plan.parameters[-2:] == (
        Parameter("workspace", "C_local_parts"),
        Parameter("tickets", "tickets"),
    )
    assert plan.grid_blocks == 128
    assert plan.outputs == ("C",)


def test_each_role_draws_for_its_share_of_the_rows() -> None:
    text = body(kernel(split=2).source)
    assert re.findall(
        r"draw_ticket\(tickets \+ \(v_tile % 64\) \* 2 \+ (\d), 2u, (\d)u", text
    ) == [
        ("0", "1"),
        ("1", "2"),
    ]
    assert text.count("if ((v_ko_last == 1))") == 2
    assert text.count("sum_parts<2, 128, 24, 1>") == 0  # of 64 registers only 16 pieces are there
    assert text.count("sum_parts<2, 128, 16, 1>") == 2


def test_even_parts_have_loops_of_a_known_length() -> None:
    text = body(kernel(split=4).source)
    assert "for (int v_ko = 1; v_ko < 64; ++v_ko)" in text
    odd = body(kernel(split=3).source)
    assert "v_ko < min(86, (256 - (v_ko_part * 86)))" in odd.replace("max(", "").replace(
        ", 0)", ""
    )
    # No part is empty, so that the first gemm clears the sums.
    assert "f_C_local_0[x] = (float)" not in odd


def test_an_empty_part_has_sums_of_zero() -> None:
    space = gemm_space("gemm_nt", (256, 256, 128))
    text = body(source_of(space, candidate(space, DIRECT, **FAST, split=8)).source)
    assert text.count("f_C_local_0[x] = (float)") == 2


def test_ranges_decide_trip_counts() -> None:
    part = Var("part")
    chunk = ceildiv(Const(8), 4)
    stop = maximum(minimum(chunk, Const(8) - part * chunk), 0)
    (loop,) = fold((For("k", Const(0), stop, ()),), {"part": (0, 3)})
    assert isinstance(loop, For)
    assert loop.stop == Const(2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("title", "sizes", "choices"),
    [
        (STAGED, (512, 520, 1000), {"split": 3, "blocks": 132}),
        (ONE_CONSUMER, (129, 257, 65), {"split": 5, "block_M": 64, "block_N": 128}),
        (WORKER, (130, 72, 512), {"split": 7, "block_M": 64, "block_N": 96}),
    ],
)
def test_parts_compile_without_spills(
    layout: str, title: str, sizes: tuple[int, int, int], choices: dict[str, int]
) -> None:
    pytest.importorskip("cuda.bindings")
    space = gemm_space(layout, sizes)
    found = source_of(space, candidate(space, title, **(ODD | choices)))
    compiled = compile_source(found.source, found.plan.arch)
    compare(found.plan, compiled.resources)
    assert changed_schedule(compiled.resources) == ""
