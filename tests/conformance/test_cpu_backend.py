"""The cpu backend against the kernel's meaning: random legal schedules of every skeleton."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.ir.dtypes import dtype
from explorer.machine import CPU
from explorer.records import Measured
from explorer.runtime import Built, Session, load_workload, machine_here
from explorer.space import space_of
from tests.support.cpu_candidates import draw, error, run_schedule

ODD = ((129, 257, 65), (1, 1, 1), (1000, 1, 7))
LAYOUTS = ("gemm", "gemm_nt", "gemm_tn", "gemm_tt")
DTYPES = ("float32", "float64", "float16", "bfloat16")


def _space(name: str, sizes: tuple[int, int, int], kind: str):
    workload = load_workload(name)
    problem = workload.problem(dict(zip("MNK", sizes, strict=True)), kind)
    machine = machine_here(CPU, dtype(kind))
    return workload, problem, space_of(workload, problem, machine)


@pytest.mark.parametrize("sizes", ODD)
def test_every_skeleton_is_right_on_odd_sizes(sizes: tuple[int, int, int]) -> None:
    workload, problem, space = _space("gemm", sizes, "float32")
    tolerance = workload.tolerance["float32"]
    with Session("gemm", problem, space.machine, tolerance, limit_s=20.0) as session:
        drawn = list(draw(space, per_skeleton=1, seed=sum(sizes)))
        assert len(drawn) == len(space.skeletons)
        for title, schedule in drawn:
            built = session.build(schedule)
            assert isinstance(built, Built), f"{title}: {built}"
            outcome = session.measure(built, repeats=1)
            assert isinstance(outcome, Measured), f"{title}: {outcome}\n{schedule}"


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_type(layout: str, kind: str) -> None:
    workload, problem, space = _space(layout, (129, 257, 65), kind)
    inputs = workload.inputs(problem, np.random.default_rng(7))
    expected = workload.reference(problem, inputs)["C"]
    first = 4 * LAYOUTS.index(layout) + DTYPES.index(kind)
    count = len(space.skeletons)
    chosen = sorted({first % count, (first + count // 2) % count})
    for title, schedule in draw(space, 1, first, chosen):
        out = run_schedule(space.kernel, schedule, space.machine, inputs)["C"]
        assert error(out, expected) <= workload.tolerance[kind], f"{title}\n{schedule}"
