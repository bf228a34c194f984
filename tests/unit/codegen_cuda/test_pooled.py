"""Kernels whose buffers lie in pools: their offsets and swizzles reach the generated source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import explorer
import explorer.lang as T
from explorer.codegen.cpu import emit_c
from explorer.codegen.cuda import generate
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import CPU, H200, Machine
from explorer.memory.swizzle import SwizzleMode
from explorer.passes import materialize
from explorer.program.nodes import Program
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished
from explorer.tune import first_legal
from tests.kernels.pooled import TILE_BYTES, pooled_gemm

WISHES = {"depth": 2, "lag": 0, "blocks": 0}


def program_of(kernel: Kernel, machine: Machine = H200) -> Program:
    space = explorer.derive(kernel, machine)
    return materialize(kernel, first_legal(space, WISHES), machine)


def offsets(program: Program) -> dict[str, int]:
    assert program.placement is not None
    return {each.buffer: each.offset_bytes for each in program.placement.buffers}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"staging": TILE_BYTES},
        {"staging": 2 * TILE_BYTES, "plain": True},
        {"mode": SwizzleMode.SWIZZLE_64B_ATOM},
        {"mode": SwizzleMode.SWIZZLE_32B_ATOM, "plain": True},
    ],
    ids=str,
)
def test_offsets_and_swizzles_are_the_authors(options: dict[str, Any]) -> None:
    program = program_of(pooled_gemm(**options))
    found = offsets(program)
    assert found["A_shared"] == 0
    assert found["B_shared"] == 2 * TILE_BYTES
    assert found["C_shared"] == options.get("staging", 0)
    for name in ("A_shared", "B_shared"):
        atom = options.get("mode", SwizzleMode.SWIZZLE_128B_ATOM).atom_bytes
        place = program.fixed_place(name)
        assert place is not None and place.swizzle_bytes == atom
    compiled = pytest.importorskip("explorer.runtime.cuda.compile")
    pytest.importorskip("cuda.bindings")
    kernel = generate(program, H200)
    assert kernel.plan.shared_bytes >= 4 * TILE_BYTES
    compiled.compile_source(kernel.source, kernel.plan.arch)


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
def test_shared_bytes_survive_every_interleaving(machine: Machine) -> None:
    kernel = pooled_gemm(size=128)
    program = program_of(kernel, machine)
    draw = np.random.default_rng(0)
    inputs = {name: draw.standard_normal((128, 128)).astype(np.float16) for name in "AB"}
    expected = run(kernel, inputs)["C"].astype(np.float32)
    for seed in range(4):
        verdict = simulate(program, inputs, seed)
        assert isinstance(verdict, Finished), str(verdict)
        np.testing.assert_allclose(
            verdict.output("C").astype(np.float32), expected, rtol=1e-2, atol=1e-2
        )


def test_padded_slots_keep_to_themselves() -> None:
    found = offsets(program_of(pooled_gemm(size=128), CPU))
    assert found["C_shared"] != found["B_shared"] != 2 * TILE_BYTES


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
def test_a_pool_in_a_buffer_and_what_nothing_touches(machine: Machine) -> None:
    F16 = T.float16

    @T.prim_func
    def gemm(
        A: T.Tensor((128, 128), F16), B: T.Tensor((128, 128), F16), C: T.Tensor((128, 128), F16)
    ):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            raw = T.alloc_shared((65536,), "uint8")
            pool = T.SMEMPool(raw)
            pool.alloc((64,), T.float32)
            left = pool.alloc_mma((64, 64), F16)
            pool.move_base_to(24576)
            right = pool.alloc_mma((64, 64), F16)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[by * 64, k * 64], left)
                T.copy(B[k * 64, bx * 64], right)
                T.gemm(left, right, acc)
            T.copy(acc, C[by * 64, bx * 64])

    program = program_of(gemm, machine)
    found = offsets(program)
    if machine == H200:
        assert (found["left"], found["right"]) == (1024, 24576)
        assert generate(program, H200).plan.shared_bytes >= 65536
    else:
        assert emit_c(program, machine)
