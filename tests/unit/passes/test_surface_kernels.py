"""The kernels of the surface language under schedules: simulated results equal their meaning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import CPU, H200
from explorer.program.nodes import Program
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished
from explorer.schedule.extensions import (
    Extensions,
    Launch,
    Raster,
    Side,
    SideMode,
    Split,
    StagedStore,
)
from tests.kernels.attention import attention
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.gemm import gemm
from tests.kernels.rmsnorm import rmsnorm
from tests.support.programs import acquire, commit, program_of, release, wait


def random_inputs(kernel: Kernel, output: str) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(3)
    return {
        t.name: random.standard_normal(tuple(map(int, t.shape))).astype(t.dtype.numpy)
        for t in kernel.tensors
        if t.name != output
    }


def assert_right(program: Program, kernel: Kernel, output: str, seeds: int = 4) -> None:
    inputs = random_inputs(kernel, output)
    expected = run(kernel, inputs)[output].astype(np.float64)
    for seed in range(seeds):
        verdict = simulate(program, inputs, seed)
        assert isinstance(verdict, Finished), str(verdict)
        got = verdict.output(output).astype(np.float64)
        np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2)


def shared_sides(pipelines: Iterable[str], roles: tuple[str, ...], **more: Any) -> Extensions:
    return Extensions(
        sides=tuple(Side(name, False, SideMode.SHARED, roles) for name in pipelines),
        splits=(Split(roles),),
        **more,
    )


def loop_id(kernel: Kernel) -> str:
    return next(s.id for s in kernel.body if hasattr(s, "extent"))


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_gemm_layouts_with_two_consumers_and_a_staged_store(
    transpose_a: bool, transpose_b: bool
) -> None:
    kernel = gemm(9, 11, 7, transpose_a=transpose_a, transpose_b=transpose_b)
    sizes = {"block_M": 4, "block_N": 8, "block_K": 2}
    loop = loop_id(kernel)
    first, *_, store = (statement.id for statement in kernel.body)
    consumer = [first, loop, f"{store}_stage", store]
    mma = [wait("ab"), "gemm_C_local", release("ab")]
    program = program_of(
        kernel,
        {"P": (0, 1), "C0": (1, 2), "C1": (2, 3)},
        {"ab": (["A_shared", "B_shared"], 2)},
        {
            "root": {"P": [loop], "C0": consumer, "C1": consumer},
            loop: {
                "P": [acquire("ab"), "copy_A_shared", "copy_B_shared", commit("ab")],
                "C0": mma,
                "C1": mma,
            },
        },
        extensions=shared_sides(
            ("ab",),
            ("C0", "C1"),
            staged=(StagedStore(store, "C_stage"),),
            launch=Launch(2, Raster.GROUPED, 2),
        ),
        sizes=sizes,
    )
    assert_right(program, kernel.at(**sizes), "C")


SOFTMAX = [
    "map_S",
    "copy_row_max_prev",
    "reduce_row_max",
    "map_rescale",
    "map_S_2",
    "reduce_block_sum",
    "map_row_sum",
    "map_acc",
    "copy_P",
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("machine", [CPU, H200])
def test_attention_with_two_consumers_on_shared_rings(causal: bool, machine: Any) -> None:
    kernel = attention(1, 2, 1, 7, 9, 4, causal)
    sizes = {"block_M": 4, "block_N": 2}
    start = [wait("q"), "fill_acc", "fill_row_sum", "fill_row_max", "k"]
    consumer = [*start, release("q"), "map_acc_2", "copy_O"]
    step = [wait("x"), "gemm_S", release("x"), *SOFTMAX, wait("v"), "gemm_acc", release("v")]
    warps = machine.warps_per_group
    program = program_of(
        kernel,
        {"P": (0, 1), "C0": (warps, 2 * warps), "C1": (2 * warps, 3 * warps)},
        {"q": (["Q_shared"], 1), "x": (["K_shared"], 2), "v": (["V_shared"], 2)},
        {
            "root": {
                "P": [acquire("q"), "copy_Q_shared", commit("q"), "k"],
                "C0": consumer,
                "C1": consumer,
            },
            "k": {
                "P": [
                    acquire("x"),
                    "copy_K_shared",
                    commit("x"),
                    acquire("v"),
                    "copy_V_shared",
                    commit("v"),
                ],
                "C0": step,
                "C1": step,
            },
        },
        machine,
        shared_sides("qxv", ("C0", "C1"), launch=Launch(2)),
        sizes=sizes,
    )
    assert [b.empty_count for b in program.barriers] == [2 * warps * machine.threads_per_warp] * 3
    assert_right(program, kernel.at(**sizes), "O")


def test_a_bias_row_is_held_whole_by_roles_that_split_rows() -> None:
    kernel = gemm_epilogue(9, 11, 7, dtype="float32")
    sizes = {"block_M": 4, "block_N": 8, "block_K": 2}
    loop = loop_id(kernel)
    body = [statement.id for statement in kernel.body]
    consumer = body
    program = program_of(
        kernel,
        {"P": (0, 1), "C0": (1, 2), "C1": (2, 3)},
        {"ab": (["A_shared", "B_shared"], 2)},
        {
            "root": {"P": [loop], "C0": consumer, "C1": consumer},
            loop: {
                "P": [acquire("ab"), "copy_A_shared", "copy_B_shared", commit("ab")],
                "C0": [wait("ab"), "gemm_C_local", release("ab")],
                "C1": [wait("ab"), "gemm_C_local", release("ab")],
            },
        },
        extensions=shared_sides(("ab",), ("C0", "C1")),
        sizes=sizes,
    )
    shapes = {b.name: tuple(map(int, b.shape)) for b in program.roles[1].private}
    assert shapes["C_local"] == (2, 8)
    assert_right(program, kernel.at(**sizes), "C")


def test_one_role_runs_a_row_normalisation() -> None:
    kernel = rmsnorm(5, 12, dtype="float32")
    sizes = {"block_M": 2, "block_N": 4}
    program = program_of(kernel, {"all": (0, 1)}, {}, {}, sizes=sizes)
    assert_right(program, kernel.at(**sizes), kernel.tensors[-1].name)
