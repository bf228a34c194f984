"""Fused, scaled, batched and fp8 products on the cpu, with tails in every dimension."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.machine import CPU
from explorer.passes import materialize
from explorer.runtime import load_workload, machine_here
from explorer.space import space_of
from tests.support.cpu_candidates import draw, error, run_program, run_schedule

SIZES = {"M": 70, "N": 83, "K": 65}
NAMES = (
    "gemm_bias",
    "gemm_gelu",
    "gemm_silu",
    "gemm_residual",
    "gemm_alpha_beta",
    "gemm_batched",
    "gemm_strided",
)


CASES = [(name, kind) for name in NAMES for kind in ("float32", "bfloat16")]
CASES += [(f"gemm{end}", "float8_e4m3") for end in ("", "_nt", "_tn", "_tt", "_promoted")]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_is_what_numpy_says(name: str, kind: str) -> None:
    workload = load_workload(name)
    sizes = SIZES | ({"Z": 3} if "Z" in workload.sizes else {})
    problem = workload.problem(sizes, kind)
    machine = machine_here(CPU, problem.dtype)
    space = space_of(workload, problem, machine)
    inputs = workload.draw(problem, np.random.default_rng(1))
    expected = workload.expected(problem, inputs)["C"]
    for title, schedule in draw(space, 1, seed=len(name), skeletons=(1,)):
        found = run_schedule(space.kernel, schedule, machine, inputs)["C"]
        assert error(found, expected) <= workload.bound(machine.name, problem.dtype), title


@pytest.mark.parametrize("gap", [1, 5])
def test_gaps_between_rows_are_neither_read_nor_written(gap: int) -> None:
    """Whatever lies between the rows of operands is NaN, so that a read of it would show."""
    workload = load_workload("gemm_strided")
    problem = workload.problem(SIZES | {"gap": gap}, "float32")
    machine = machine_here(CPU, problem.dtype)
    space = space_of(workload, problem, machine)
    inputs = workload.draw(problem, np.random.default_rng(1))
    expected = workload.expected(problem, inputs)["C"]
    for _, schedule in draw(space, 1, seed=gap, skeletons=(0, 1)):
        program = materialize(space.kernel, schedule, machine)
        found = run_program(program, machine, inputs)["C"]
        assert found.strides[0] == (SIZES["N"] + gap) * 4
        assert error(found, expected) <= 1e-5
        assert np.isnan(found.base.reshape(SIZES["M"], -1)[:, SIZES["N"] :]).all()
