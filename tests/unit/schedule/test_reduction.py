"""Which loops can be split, and what each part gets of them."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import ScheduleError
from explorer.expr import TRUE, Var, const, evaluate
from explorer.ir.nodes import Copy, Fill, Gemm, Kernel, Literal, Loop, Stmt, While, whole
from explorer.schedule.reduction import alike_tiles, part_name, reduction_of, share_of
from tests.kernels.attention import attention
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.grouped import grouped_gemm
from tests.kernels.rmsnorm import rmsnorm
from tests.support.programs import gemm_kernel, region

KERNEL = gemm_kernel(9, 9, 9)


def parts_of(kernel: Kernel) -> tuple[Fill, Loop, Copy]:
    clear, loop, store = kernel.body
    assert isinstance(clear, Fill)
    assert isinstance(loop, Loop)
    assert isinstance(store, Copy)
    return clear, loop, store


CLEAR, LOOP, STORE = parts_of(KERNEL)
ACC, TENSOR = CLEAR.dst.buffer, STORE.dst.buffer


def in_loop(*more: Stmt) -> Kernel:
    return evolve(KERNEL, body=(CLEAR, evolve(LOOP, body=(*LOOP.body, *more)), STORE))


def with_gemm(gemm: Gemm) -> Kernel:
    body = (*LOOP.body[:2], gemm)
    return evolve(KERNEL, body=(CLEAR, evolve(LOOP, body=body), STORE))


def test_the_loop_of_a_gemm_is_a_reduction() -> None:
    found = reduction_of(KERNEL)
    assert (found.loop.id, found.sums, found.behind) == ("loop_k", (ACC,), ("store",))
    assert part_name(found.loop) == "ko_part"
    fused = reduction_of(gemm_epilogue(64, 64, 64, "gelu"))
    assert len(fused.behind) > 1


GEMM = LOOP.body[2]
assert isinstance(GEMM, Gemm)
OUT = Copy("out", whole(ACC), region(TENSOR, (0, 4), (0, 4)))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (evolve(KERNEL, body=(LOOP, STORE)), "C_local is not cleared right before it"),
        (
            evolve(KERNEL, body=(evolve(CLEAR, value=Literal(1.0)), LOOP, STORE)),
            "C_local is not cleared right before it",
        ),
        (evolve(KERNEL, body=(CLEAR, OUT, LOOP, STORE)), "C_local is not cleared right before"),
        (
            evolve(KERNEL, body=(evolve(OUT, src=whole(LOOP.body[0].dst.buffer)), *KERNEL.body)),
            "out before it writes C in global memory",
        ),
        (with_gemm(evolve(GEMM, clear_accum=TRUE)), "mma adds to part of C_local, or clears it"),
        (in_loop(OUT), "out touches sums before all iterations have added to them"),
        (in_loop(evolve(OUT, src=GEMM.a)), "it writes C in global memory"),
        (
            evolve(KERNEL, body=(*KERNEL.body, evolve(OUT, src=GEMM.a))),
            "what follows it reads A_shared",
        ),
        (
            evolve(KERNEL, body=(CLEAR, evolve(LOOP, body=LOOP.body[::-1]), STORE)),
            "mma does not write B_shared anew in every iteration",
        ),
        (
            evolve(KERNEL, body=(CLEAR, While("loop_k", Var("n") < 1, LOOP.body), STORE)),
            "no one counted loop of its root that holds all gemms",
        ),
        (evolve(KERNEL, body=(*KERNEL.body, evolve(LOOP, id="again"))), "no one counted loop"),
        (rmsnorm(64, 64), "no one counted loop"),
        (attention(1, 1, 1, 64, 64, 64), "cannot be split"),
        (grouped_gemm(64, 2, 64, 64), "fill_C_local touches sums before all iterations"),
    ],
)
def test_other_loops_are_refused_with_a_reason(kernel: Kernel, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        reduction_of(kernel)


def test_tiles_are_alike_where_all_have_the_same_known_iterations() -> None:
    assert alike_tiles(KERNEL, LOOP)
    assert not alike_tiles(KERNEL, evolve(LOOP, extent=Var("bx") + 1))
    (first, _), second = KERNEL.grid
    unknown = evolve(KERNEL, grid=((first, Var("rows")), second))
    assert not alike_tiles(unknown, LOOP)


@given(st.integers(0, 40), st.integers(1, 12))
def test_the_parts_of_a_loop_hold_each_iteration_once(extent: int, parts: int) -> None:
    loop = evolve(LOOP, extent=const(extent))
    found = []
    for part in range(parts):
        share = share_of(loop, Var("part"), parts)
        env = {"part": part}
        first, count = evaluate(share.offset, env), evaluate(share.extent, env)
        assert 0 <= count <= -(-extent // parts)
        found += range(first, first + count)
    assert found == list(range(extent))


@pytest.mark.parametrize("name", ["ko_part", "ko_last", "ko_first", "ko_extent"])
def test_a_name_that_sharing_needs_is_taken(name: str) -> None:
    loop = parts_of(KERNEL)[1]
    grid = (*KERNEL.grid[:1], (name.replace("ko", loop.var), KERNEL.grid[1][1]))
    with pytest.raises(ScheduleError, match=r"_\w+' is taken; rename it"):
        reduction_of(evolve(KERNEL, grid=grid))
