"""Golden programs: what the passes make of one GEMM under a few schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from explorer.machine import CPU, H200, Machine
from explorer.program.printer import show_program
from explorer.schedule.extensions import Extensions, Launch, MatrixLag, Raster, StagedStore
from tests.support.programs import gemm_program

STAGED = Extensions(staged=(StagedStore("store", "C_stage"),))
LAGGED = Extensions(lags=(MatrixLag("mma", 1),), launch=Launch(2, Raster.GROUPED, 2))


@pytest.mark.parametrize(
    ("name", "machine", "options"),
    [
        ("gemm_cpu_producer_consumer", CPU, {"depth": 3}),
        ("gemm_cpu_two_consumers", CPU, {"consumers": 2}),
        ("gemm_h200_staged", H200, {"consumer_warps": 4, "staged": True, "extensions": STAGED}),
        ("gemm_h200_lag_persistent", H200, {"consumer_warps": 8, "extensions": LAGGED}),
        ("gemm_h200_two_consumers", H200, {"consumers": 2, "consumer_warps": 4, "depth": 4}),
    ],
)
def test_gemm_program(
    golden: Callable[[str, str], None], name: str, machine: Machine, options: dict[str, Any]
) -> None:
    golden(f"{name}.txt", show_program(gemm_program(9, 10, 7, machine, **options)))
