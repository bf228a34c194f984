"""Consumers that split rows: what they may share without a pipeline, and what they may not.

Every kernel here has a skeleton of two such consumers; the simulator is the witness that what is
refused is a race.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import explorer.lang as T
from explorer.constraints import check
from explorer.ir.dtypes import dtype
from explorer.machine import H200
from explorer.passes import materialize
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished, Race
from explorer.schedule.bound import Schedule
from explorer.space import SearchSpace, build_space

PAIR = "roles producer+consumer_0+consumer_1; rings As+Bs; direct epilogue"
CHOICES = {"block_M": 128, "block_N": 64, "block_K": 64, "depth_As_Bs": 1, "warps_consumer": 4}
CHOICES |= {"nreg_consumer": 152, "nreg_producer": 24, "warps_producer": 1, "split": 1}
ELEMENT = dtype("bfloat16").numpy


def transposed_store(rows_first: bool) -> T.TracedKernel:
    """A result that leaves transposed, through a shared tile that no pipeline hands over."""
    M, N, K = 128, 64, 64
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))

    @T.prim_func
    def turned(
        A: T.Tensor((M, K), "bfloat16"),
        B: T.Tensor((N, K), "bfloat16"),
        C: T.Tensor((N, M), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            As = T.alloc_shared((block_M, block_K), "bfloat16")
            Bs = T.alloc_shared((block_N, block_K), "bfloat16")
            S = T.alloc_shared((block_N, block_M), "bfloat16")
            local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], As)
                T.copy(B[bx * block_N, ko * block_K], Bs)
                T.gemm(As, Bs, local, transpose_B=True)
            if rows_first:
                for i, j in T.Parallel(block_M, block_N):
                    S[j, i] = local[i, j]
            else:
                for j, i in T.Parallel(block_N, block_M):
                    S[j, i] = local[i, j]
            T.copy(S, C[bx * block_N, by * block_M])

    return turned


def used_as_columns() -> T.TracedKernel:
    """Scores that a second gemm reads transposed: each consumer wants the rows of both."""
    M, N, K = 128, 128, 64
    block_M, block_N, block_K = map(T.Param, ("block_M", "block_N", "block_K"))

    @T.prim_func
    def columns(
        A: T.Tensor((M, K), "bfloat16"),
        B: T.Tensor((N, K), "bfloat16"),
        C: T.Tensor((N, 64), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            As = T.alloc_shared((block_M, block_K), "bfloat16")
            Bs = T.alloc_shared((block_N, block_K), "bfloat16")
            S = T.alloc_shared((block_M, block_N), "bfloat16")
            V = T.alloc_shared((block_M, 64), "bfloat16")
            local = T.alloc_fragment((block_M, block_N), "float32")
            out = T.alloc_fragment((block_N, 64), "float32")
            T.clear(local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], As)
                T.copy(B[bx * block_N, ko * block_K], Bs)
                T.gemm(As, Bs, local, transpose_B=True)
            T.copy(local, S)
            T.clear(V)
            T.clear(out)
            T.gemm(S, V, out, transpose_A=True)
            T.copy(out, C[bx * block_N, 0])

    return columns


def candidate(
    make: Callable[[], T.TracedKernel], title: str, **choices: int
) -> tuple[SearchSpace, Schedule]:
    tiles = {"block_M": (128,), "block_N": (64, 128), "block_K": (64,)}
    space = build_space(make(), H200, tiles)
    titles = [skeleton.title for skeleton in space.skeletons]
    values = {choice.name: choice.domain[0] for choice in space.choices} | CHOICES | choices
    return space, space.candidate(values | {"skeleton": titles.index(title)})


def verdicts(space: SearchSpace, schedule: Schedule) -> set[type]:
    program = materialize(space.kernel, schedule, H200)
    draw = np.random.default_rng(0)
    inputs = {
        tensor.name: draw.standard_normal(tuple(map(int, tensor.shape))).astype(ELEMENT)
        for tensor in space.kernel.tensors[:-1]
    }
    return {type(simulate(program, inputs, seed)) for seed in range(4)}


@pytest.mark.parametrize("rows_first", [True, False])
def test_a_tile_that_is_written_by_columns_is_not_shared(rows_first: bool) -> None:
    space, schedule = candidate(lambda: transposed_store(rows_first), PAIR)
    found = {each.rule for each in check(space.kernel, schedule, H200).violations}
    assert "dependence-coverage" in found
    assert Race in verdicts(space, schedule)


def test_scores_that_are_read_transposed_are_not_shared() -> None:
    space, schedule = candidate(used_as_columns, PAIR, block_N=128)
    found = {each.rule for each in check(space.kernel, schedule, H200).violations}
    assert "dependence-coverage" in found


def test_one_consumer_may_do_both() -> None:
    one = "roles producer+consumer; rings As+Bs; direct epilogue"
    for rows_first in (True, False):
        space, schedule = candidate(lambda first=rows_first: transposed_store(first), one)  # type: ignore[misc]
        assert check(space.kernel, schedule, H200).ok
        assert verdicts(space, schedule) == {Finished}
