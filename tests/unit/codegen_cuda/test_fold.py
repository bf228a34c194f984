"""The peepholes: clears through scale-d, first iterations taken out of loops."""

from __future__ import annotations

import pytest

from explorer.codegen.cuda.fold import fold
from explorer.expr import FALSE, TRUE, Const, Var, compare
from explorer.ir.nodes import Fill, Gemm
from explorer.program.events import leaves
from explorer.program.nodes import Exec, For, Signal, Step, Wait, When
from explorer.program.steps import every_step, executed
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    SMALL,
    WORKER,
    candidate,
    gemm_space,
    program_of,
)


def consumer(trips: int, **choices: int) -> tuple[Step, ...]:
    space = gemm_space("gemm", (256, 256, 64 * trips))
    schedule = candidate(space, DIRECT, **(GOOD | {"depth_A_B": 4} | choices))
    return program_of(space, schedule).roles[1].body


@pytest.mark.parametrize("trips", [1, 2, 3, 8])
@pytest.mark.parametrize("lag", [0, 1])
def test_the_first_gemm_clears_and_the_steady_loop_has_no_branch(trips: int, lag: int) -> None:
    body = fold(consumer(trips, lag_gemm_C_local=lag), {})
    assert not any(isinstance(step.op, Fill) for step in executed(body))
    gemms = [step.op for step in executed(body) if isinstance(step.op, Gemm)]
    assert gemms[0].clear_accum == TRUE
    assert all(gemm.clear_accum == FALSE for gemm in gemms[1:])
    assert not any(isinstance(step, When) for step in every_step(body))


@pytest.mark.parametrize("trips", [1, 2, 3, 8])
@pytest.mark.parametrize("lag", [0, 1])
def test_folding_keeps_every_wait_signal_and_gemm(trips: int, lag: int) -> None:
    body = consumer(trips, lag_gemm_C_local=lag)

    def trace(steps: tuple[Step, ...]) -> list[str]:
        kept = (Wait, Signal)
        return [
            type(step.op).__name__ if isinstance(step, Exec) else str(step)
            for step in leaves(steps, {"bx": 0, "by": 0})
            if isinstance(step, kept) or (isinstance(step, Exec) and isinstance(step.op, Gemm))
        ]

    assert trace(fold(body, {})) == trace(body)


def test_a_loop_that_ends_with_the_fill_is_not_peeled_away() -> None:
    """Partial sums that are promoted in every iteration: one loop, whose gemm clears them."""
    space = gemm_space("gemm", (64, 64, 128))
    body = program_of(space, candidate(space, WORKER, **(SMALL | {"block_M": 64}))).roles[0].body
    fill = next(step for step in executed(body) if isinstance(step.op, Fill))
    gemm = next(step for step in executed(body) if isinstance(step.op, Gemm))
    store = next(step for step in executed(body) if step.op.id == "copy_C")
    loop = For("i", Const(0), Var("n"), (gemm, store, fill))
    folded, last = fold((fill, loop), {})
    assert last == fill and isinstance(folded, For)
    first, second = folded.body
    assert isinstance(first, Exec) and isinstance(first.op, Gemm)
    assert first.op.clear_accum == TRUE and second == store
    # What is read before it is filled keeps its fill.
    reading = For("i", Const(0), Var("n"), (store, gemm, fill))
    assert fold((fill, reading), {}) == (fill, reading)


def test_a_fill_that_is_read_first_stays() -> None:
    space = gemm_space("gemm", (64, 64, 64))
    body = program_of(space, candidate(space, WORKER, **(SMALL | {"block_M": 64}))).roles[0].body
    fill = next(step for step in executed(body) if isinstance(step.op, Fill))
    store = next(step for step in executed(body) if step.op.id == "copy_C")
    gemm = next(step for step in executed(body) if isinstance(step.op, Gemm))
    assert fold((fill, store, gemm), {}) == (fill, store, gemm)
    assert len(fold((fill, gemm), {})) == 1


def test_a_loop_of_unknown_length_keeps_its_fill() -> None:
    space = gemm_space("gemm", (64, 64, 128))
    body = program_of(space, candidate(space, WORKER, **(SMALL | {"block_M": 64}))).roles[0].body
    fill = next(step for step in executed(body) if isinstance(step.op, Fill))
    gemm = next(step for step in executed(body) if isinstance(step.op, Gemm))
    loop = For("i", Const(0), Var("n"), (gemm,))
    assert fold((fill, loop), {}) == (fill, loop)


def test_guards_that_the_ranges_decide_are_resolved() -> None:
    signal = Signal("p", full=True)
    guarded = When(compare("<", Var("bx"), 4), (signal,))
    assert fold((guarded,), {"bx": (0, 3)}) == (signal,)
    assert fold((guarded,), {"bx": (4, 9)}) == ()
    assert fold((guarded,), {"bx": (0, 9)}) == (guarded,)
