"""C31: addresses in tensors of more than 2^31 elements are widened before they are multiplied."""

from __future__ import annotations

import re

import pytest

from explorer.codegen.cuda import generate
from explorer.codegen.cuda.scalars import Scalars
from explorer.constraints import check
from explorer.expr import Var
from explorer.machine import H200
from explorer.passes import materialize
from explorer.runtime import load_workload
from explorer.space import space_of

DIRECT = "roles producer+consumer; rings A_shared+B_shared; direct epilogue"


def batched_source(batch: int) -> str:
    """An odd pitch keeps bulk copies out, so that threads compute every address."""
    workload = load_workload("gemm_batched")
    problem = workload.problem({"Z": batch, "M": 4096, "N": 4097, "K": 257}, "bfloat16")
    space = space_of(workload, problem, H200)
    values = {choice.name: choice.domain[0] for choice in space.choices}
    values |= {"block_M": 64, "block_N": 64, "block_K": 64, "depth_A_B": 2, "warps_consumer": 4}
    values |= {"nreg_producer": 88, "nreg_consumer": 168, "warps_producer": 4}
    titles = [skeleton.title for skeleton in space.skeletons]
    schedule = space.candidate(space.canonical(values | {"skeleton": titles.index(DIRECT)}))
    assert check(space.kernel, schedule, H200).ok
    return generate(materialize(space.kernel, schedule, H200), H200).source


def pointers(source: str, tensor: str) -> list[str]:
    return [line for line in source.splitlines() if re.search(rf"\(t_{tensor} \+", line)]


@pytest.mark.parametrize("tensor", ["A", "B", "C"])
def test_a_large_batch_is_addressed_with_64_bits(tensor: str) -> None:
    source = batched_source(4096)
    pitch = {"A": 4096 * 257, "B": 4097 * 257, "C": 4096 * 4097}[tensor]
    lines = pointers(source, tensor)
    assert lines
    for line in lines:
        assert f"(long long)v_bz * {pitch}ll" in line, line


def test_a_small_batch_keeps_32_bits() -> None:
    lines = pointers(batched_source(2), "A")
    assert lines
    assert all("v_bz * 1052672)" in line for line in lines)


def test_widening_goes_to_the_leaves() -> None:
    i, j = Var("i"), Var("j")
    assert Scalars().wide(i * 70000 + j) == "(((long long)v_i * 70000ll) + (long long)v_j)"
    assert Scalars().wide((i % 8) * 3) == "((long long)floor_mod(v_i, 8) * 3ll)"
