"""Every schedule that the solver samples from a derived space is legal, and right when simulated.

The checker says yes to each, the passes materialize it, and the barrier-level simulator finds
neither hang nor race nor another result than the kernel's own.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from explorer.constraints import FeasibleModel, Status, check
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import CPU, H200, Machine
from explorer.passes import materialize
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished
from explorer.space import build_space
from tests.kernels.attention import attention
from tests.kernels.dequant import dequant_gemm
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.gemm import gemm
from tests.kernels.grouped import grouped_gemm

ROWS = {"block_M": (64, 128), "block_N": (16, 64)}
TILES = {**ROWS, "block_K": (16, 32)}


def kernels(dtype: str) -> dict[str, Kernel]:
    layouts = {
        f"gemm_{'t' if a else 'n'}{'t' if b else 'n'}": gemm(
            100, 90, 70, dtype, transpose_a=a, transpose_b=b
        )
        for a in (False, True)
        for b in (False, True)
    }
    return layouts | {
        "attention": attention(1, 2, 1, 40, 56, 32, causal=True, dtype=dtype),
        "dequant": dequant_gemm(70, 64, 64, dtype=dtype),
        "epilogue": gemm_epilogue(70, 50, 40, dtype=dtype),
        "grouped": grouped_gemm(150, 3, 40, 48, dtype=dtype),
    }


def inputs_of(kernel: Kernel, rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {}
    for tensor in kernel.tensors[:-1]:
        shape = tuple(int(extent) for extent in tensor.shape)
        if tensor.name == "offsets":
            values = np.array([0, 0, 1, 150][: shape[0]])
        elif tensor.dtype.kind in ("int", "uint"):
            values = rng.integers(0, 100, shape)
        else:
            values = rng.standard_normal(shape)
        found[tensor.name] = values.astype(tensor.dtype.numpy)
    return found


def sample_and_simulate(kernel: Kernel, machine: Machine, count: int) -> None:
    tiles = {name: values for name, values in TILES.items() if name in kernel.params}
    space = build_space(kernel, machine, tiles)
    model, draw = FeasibleModel(space), random.Random(3)
    inputs = inputs_of(kernel, np.random.default_rng(3))
    skeletons = set()
    for seed in range(count):
        wish = {choice.name: draw.choice(choice.domain) for choice in space.choices}
        wish["skeleton"] = seed % len(space.skeletons)
        near = model.project(wish)
        assert near.status == Status.FOUND
        assignment = dict(near.assignment)
        model.forbid(assignment)
        skeletons.add(assignment["skeleton"])
        schedule = space.candidate(assignment)
        assert check(kernel, schedule, machine).violations == ()
        verdict = simulate(materialize(kernel, schedule, machine), inputs, seed=seed)
        assert isinstance(verdict, Finished), (assignment, verdict)
        expected = run(kernel.at(**schedule.params), inputs)
        for name, value in expected.items():
            want = np.asarray(value, np.float64)
            error = np.linalg.norm(np.asarray(verdict.output(name), np.float64) - want)
            assert error <= 2e-3 * np.linalg.norm(want), (assignment, name)
    assert len(skeletons) >= min(count, len(space.skeletons)) // 2


@pytest.mark.parametrize("machine", [CPU, H200], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", list(kernels("float16")))
def test_sampled_schedules_are_right(name: str, machine: Machine) -> None:
    sample_and_simulate(kernels("float16")[name], machine, 12)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [CPU, H200], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", list(kernels("float16")))
def test_many_sampled_schedules_are_right(name: str, machine: Machine) -> None:
    sample_and_simulate(kernels("float16")[name], machine, 120)
