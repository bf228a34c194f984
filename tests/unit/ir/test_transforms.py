"""Staged stores and shares of rows: the parts together do what the whole did."""

from __future__ import annotations

import numpy as np
import pytest

import explorer.lang as T
from explorer.errors import ScheduleError
from explorer.expr import Const, Param, Var, const
from explorer.ir.interpreter import Array, execute, run
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Copy,
    Element,
    Fill,
    Gemm,
    Index,
    Literal,
    Map,
    Op,
    Reduce,
    Region,
    Store,
    whole,
)
from explorer.ir.transforms import row_fragments, stage_store, take_buffer, take_rows
from explorer.machine import Scope
from tests.support.programs import F32, exprs, gemm_inputs, gemm_kernel, region

ROWS, COLS, DEPTH = 6, 4, 3
ACC = Buffer("acc", exprs(ROWS, COLS), F32, Scope.FRAGMENT)
VECTOR = Buffer("vector", exprs(ROWS), F32, Scope.FRAGMENT)
BIAS = Buffer("bias", exprs(COLS), F32, Scope.FRAGMENT)
LEFT = Buffer("left", exprs(ROWS, DEPTH), F32, Scope.SHARED)
LEFT_T = Buffer("left_t", exprs(DEPTH, ROWS), F32, Scope.SHARED)
RIGHT = Buffer("right", exprs(DEPTH, COLS), F32, Scope.SHARED)
OUT = Buffer("out", exprs(2, ROWS, COLS), F32, Scope.GLOBAL)
BUFFERS = (ACC, VECTOR, BIAS, LEFT, LEFT_T, RIGHT, OUT)
I, J = Var("i"), Var("j")


def scaled() -> Map:
    """acc[i, j] = acc[i, j] * vector[i] + bias[j] + 10 i."""
    product = Arith("*", Element(ACC, (I, J)), Element(VECTOR, (I,)))
    shifted = Arith("+", product, Element(BIAS, (J,)))
    value = Arith("+", shifted, Index(I * 10))
    axes = (("i", const(ROWS)), ("j", const(COLS)))
    return Map("scale", axes, (Store(ACC, (I, J), value),), (I * COLS + J < 20,))


def store_out() -> Op:
    target = Region(OUT, exprs(1, 0, 0), exprs(1, ROWS, COLS), frozenset({0}))
    return Copy("store", whole(ACC), target)


OPS: tuple[Op, ...] = (
    Fill("clear", whole(ACC), Literal(2.0)),
    Gemm("mma", whole(LEFT), whole(RIGHT), whole(ACC), False, False),
    Gemm("mma_t", whole(LEFT_T), whole(RIGHT), whole(ACC), True, False),
    Reduce("row_max", "max", whole(ACC), whole(VECTOR), 1),
    scaled(),
    store_out(),
)


def arrays() -> dict[str, Array]:
    random = np.random.default_rng(5)
    return {
        b.name: random.standard_normal(tuple(map(int, b.shape))).astype(np.float32)
        for b in BUFFERS
    }


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.id)
def test_shares_together_do_what_the_op_does(op: Op, count: int) -> None:
    expected = arrays()
    execute(op, {}, expected.__getitem__)
    memory = arrays()
    held = frozenset({"acc", "vector"})
    for index in range(count):
        rows = ROWS // count
        own = {n: memory[n][index * rows : (index + 1) * rows] for n in held}
        share = take_rows(op, held, index, count)
        execute(share, {}, lambda name, own=own: own.get(name, memory.get(name)))  # type: ignore[misc]
    for name, value in expected.items():
        np.testing.assert_allclose(memory[name], value, rtol=1e-5)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.id)
def test_a_share_may_have_a_run_time_index(op: Op) -> None:
    held = frozenset({"acc", "vector"})
    fixed, memory = arrays(), arrays()
    for index in range(2):
        share = take_rows(op, held, Var("warp"), 2)
        for store, scalars in ((memory, {"warp": index}),):
            own = {n: store[n][index * 3 : index * 3 + 3] for n in held}
            execute(share, scalars, lambda n, own=own, s=store: own.get(n, s.get(n)))  # type: ignore[misc]
    execute(op, {}, fixed.__getitem__)
    for name, value in fixed.items():
        np.testing.assert_allclose(memory[name], value, rtol=1e-5)


def test_row_fragments_follow_the_rows_of_the_gemm() -> None:
    assert row_fragments(OPS) == {"acc", "vector"}


def test_rows_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ScheduleError, match="6 rows do not divide into 4 equal shares"):
        take_rows(OPS[1], frozenset({"acc"}), 0, 4)
    with pytest.raises(ScheduleError, match="'acc': 6 rows"):
        take_buffer(ACC, 4)


def test_a_reduction_over_the_rows_cannot_be_split() -> None:
    column = Reduce("columns", "sum", whole(ACC), whole(BIAS), 0)
    with pytest.raises(ScheduleError, match="reduces over the rows"):
        take_rows(column, frozenset({"acc"}), 0, 2)


def test_a_part_of_a_fragment_cannot_be_split() -> None:
    part = Fill("part", region(ACC, (1, 2), (0, COLS)), Literal(0.0))
    with pytest.raises(ScheduleError, match="part of the rows"):
        take_rows(part, frozenset({"acc"}), 0, 2)


def test_a_staged_store_keeps_the_meaning() -> None:
    kernel = gemm_kernel(9, 10, 7)
    staged = stage_store(kernel, "store", "C_stage")
    assert staged.buffer("C_stage").shape == (Param("block_M"), Param("block_N"))
    assert [s.id for s in staged.body] == ["clear", "loop_k", "store_stage", "store"]
    sizes = {"block_M": 4, "block_N": 4, "block_K": 2}
    inputs = gemm_inputs(9, 10, 7)
    expected, found = (run(each.at(**sizes), inputs)["C"] for each in (kernel, staged))
    np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("pieces", [2, 4])
def test_a_staged_store_in_pieces_keeps_the_meaning(pieces: int) -> None:
    kernel = gemm_kernel(9, 10, 7)
    staged = stage_store(kernel, "store", "C_stage", pieces)
    sizes = {"block_M": 4, "block_N": 4, "block_K": 2}
    assert staged.at(**sizes).buffer("C_stage").shape == (Const(4), Const(4 // pieces))
    assert [s.id for s in staged.body[2:6]] == ["store_stage", "store", "store_stage_1", "store_1"]
    assert len(staged.body) == 2 + 2 * pieces
    inputs = gemm_inputs(9, 10, 7)
    expected, found = (run(each.at(**sizes), inputs)["C"] for each in (kernel, staged))
    np.testing.assert_array_equal(expected, found)


def test_pieces_leave_an_index_of_the_last_dimension_alone() -> None:
    @T.prim_func
    def one_plane(A: T.Tensor((8, 12), "float32"), C: T.Tensor((8, 12, 3), "float32")):
        with T.Kernel(2, threads=128) as bx:
            local = T.alloc_fragment((4, 12), "float32")
            T.copy(A[bx * 4, 0], local)
            T.copy(local, C[bx * 4 : bx * 4 + 4, 0:12, 1])

    staged = stage_store(one_plane, "copy_C", "C_stage", 3)
    inputs = {"A": np.arange(96, dtype=np.float32).reshape(8, 12)}
    expected, found = (run(kernel, inputs)["C"] for kernel in (one_plane, staged))
    np.testing.assert_array_equal(expected, found)
    np.testing.assert_array_equal(found[:, :, 1], inputs["A"])


@pytest.mark.parametrize(
    ("op", "staging", "message"),
    [
        ("copy_A", "S", "only a fragment-to-global copy"),
        ("ghost", "S", "no statement 'ghost'"),
        ("store", "C_local", "is taken"),
    ],
)
def test_stores_that_cannot_be_staged(op: str, staging: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        stage_store(gemm_kernel(8, 8, 8), op, staging)
