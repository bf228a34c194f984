"""A larger random sample of the cpu backend: sizes, layouts, types, skeletons."""

from __future__ import annotations

import random

import numpy as np
import pytest

from explorer.machine import CPU
from explorer.runtime import load_workload, machine_here
from explorer.space import space_of
from tests.support.cpu_candidates import draw, error, run_schedule

pytestmark = pytest.mark.slow

LAYOUTS = ("gemm", "gemm_nt", "gemm_tn", "gemm_tt")
DTYPES = ("float32", "float64", "float16", "bfloat16")


@pytest.mark.parametrize("seed", range(16))
def test_random_problems_and_schedules(seed: int) -> None:
    chosen = random.Random(seed)
    workload = load_workload(LAYOUTS[seed % 4])
    sizes = {name: chosen.choice((1, 2, 31, 65, 130, 257, 300)) for name in "MNK"}
    problem = workload.problem(sizes, DTYPES[seed // 4])
    space = space_of(workload, problem, machine_here(CPU, problem.dtype))
    inputs = workload.inputs(problem, np.random.default_rng(seed))
    expected = workload.reference(problem, inputs)["C"]
    for title, schedule in draw(space, 1, seed):
        out = run_schedule(space.kernel, schedule, space.machine, inputs, runs=3)["C"]
        found = error(out, expected)
        assert found <= workload.tolerance[problem.dtype.name], f"{title}: {problem}\n{schedule}"
