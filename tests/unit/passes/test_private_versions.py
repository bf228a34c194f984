"""Stages inside a role: copies of private buffers, and when they are needed."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.expr import Const, IntLike, Var, const
from explorer.ir.interpreter import run
from explorer.ir.nodes import Buffer, Copy, Kernel, Loop, whole
from explorer.machine import Scope
from explorer.program.nodes import Program
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished
from explorer.schedule.extensions import Extensions, OpStage, Side, SideMode, Split
from tests.kernels.attention import attention
from tests.support.programs import (
    F32,
    acquire,
    commit,
    exprs,
    program_of,
    region,
    relay_inputs,
    release,
    wait,
)


def fragment_relay(extent: IntLike) -> Kernel:
    """loop_0: { load_0: F <- X_0[i]; use_0: Z_0[i] <- F }."""
    x = Buffer("X_0", exprs(12, 2), F32, Scope.GLOBAL)
    z = Buffer("Z_0", exprs(12, 2), F32, Scope.GLOBAL)
    f = Buffer("F", exprs(1, 2), F32, Scope.FRAGMENT)
    i = Var("i0")
    body = (
        Copy("load_0", region(x, (i, 1), (0, 2)), whole(f)),
        Copy("use_0", whole(f), region(z, (i, 1), (0, 2))),
    )
    loop = Loop("loop_0", "i0", const(0), const(extent), "serial", 0, body)
    return Kernel("relay", (x, z), (("bx", const(1)),), const(64), (f,), (loop,))


def shifted(kernel: Kernel, stage: int, body: list[str]) -> Program:
    return program_of(
        kernel,
        {"A": (0, 1)},
        {},
        {"root": {"A": ["loop_0"]}, "loop_0": {"A": body}},
        extensions=Extensions(stages=(OpStage("A", "use_0", stage),)),
    )


def copies(program: Program) -> int:
    return len(program.roles[0].private)


@pytest.mark.parametrize(
    ("stage", "body", "expected"),
    [
        (0, ["load_0", "use_0"], 1),
        (1, ["use_0", "load_0"], 1),
        (1, ["load_0", "use_0"], 2),
        (2, ["use_0", "load_0"], 2),
        (2, ["load_0", "use_0"], 3),
    ],
)
@pytest.mark.parametrize("extent", range(8))
def test_copies_follow_the_distance_and_the_order(
    stage: int, body: list[str], expected: int, extent: int
) -> None:
    kernel = fragment_relay(extent)
    program = shifted(kernel, stage, body)
    assert copies(program) == expected
    inputs = relay_inputs(kernel) | {"Z_0": np.zeros((12, 2), np.float32)}
    verdict = simulate(program, inputs)
    assert isinstance(verdict, Finished), str(verdict)
    np.testing.assert_array_equal(verdict.output("Z_0"), run(kernel, inputs)["Z_0"])


@pytest.mark.parametrize("trips", range(8))
def test_a_run_time_extent_picks_copies_by_condition(trips: int) -> None:
    kernel = fragment_relay(Var("trips"))
    program = shifted(kernel, 2, ["load_0", "use_0"])
    assert copies(program) == 3
    inputs = relay_inputs(kernel) | {"Z_0": np.zeros((12, 2), np.float32)}
    verdict = simulate(program, inputs, scalars={"trips": trips})
    assert isinstance(verdict, Finished), str(verdict)
    np.testing.assert_array_equal(verdict.output("Z_0")[:trips], inputs["X_0"][:trips])
    assert not verdict.output("Z_0")[trips:].any()


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
@pytest.mark.parametrize("keys", [1, 2, 5, 9])
def test_the_next_scores_are_computed_before_the_softmax_of_the_current(
    causal: bool, keys: int
) -> None:
    kernel = attention(1, 2, 1, keys, keys, 4, causal)
    sizes = {"block_M": 4, "block_N": 2}
    roles = ("C0", "C1")
    ahead = [wait("x"), "gemm_S", release("x")]
    behind = [*SOFTMAX, wait("v", 1), "gemm_acc", release("v", 1)]
    consumer = [wait("q"), "fill_acc", "fill_row_sum", "fill_row_max", "k", release("q")]
    consumer += ["map_acc_2", "copy_O"]
    loads = [acquire("x"), "copy_K_shared", commit("x")]
    loads += [acquire("v"), "copy_V_shared", commit("v")]
    program = program_of(
        kernel,
        {"P": (0, 1), "C0": (1, 2), "C1": (2, 3)},
        {"q": (["Q_shared"], 1), "x": (["K_shared"], 2), "v": (["V_shared"], 2)},
        {
            "root": {
                "P": [acquire("q"), "copy_Q_shared", commit("q"), "k"],
                "C0": consumer,
                "C1": consumer,
            },
            "k": {"P": loads, "C0": [*ahead, *behind], "C1": [*ahead, *behind]},
        },
        extensions=Extensions(
            sides=tuple(Side(name, False, SideMode.SHARED, roles) for name in "qxv"),
            splits=(Split(roles),),
            stages=tuple(OpStage(role, op, 1) for role in roles for op in SOFTMAX),
        ),
        sizes=sizes,
    )
    names = {buffer.name for buffer in program.roles[1].private}
    assert "S_v1" in names
    assert "P_v1" not in names
    random = np.random.default_rng(keys)
    inputs = {
        tensor.name: random.standard_normal(tuple(map(int, tensor.shape))).astype(np.float16)
        for tensor in kernel.tensors
        if tensor.name != "O"
    }
    expected = run(kernel.at(**sizes), inputs)["O"].astype(np.float64)
    for seed in range(4):
        verdict = simulate(program, inputs, seed)
        assert isinstance(verdict, Finished), str(verdict)
        got = verdict.output("O").astype(np.float64)
        np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2)


def test_a_fixed_extent_leaves_no_conditions() -> None:
    program = shifted(fragment_relay(7), 1, ["load_0", "use_0"])
    kinds = [type(step).__name__ for step in program.roles[0].body]
    assert "When" not in kinds
    assert kinds.count("For") == 1
    assert Const(3) in [getattr(step, "stop", None) for step in program.roles[0].body]
