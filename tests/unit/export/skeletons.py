"""The kernels of the test suite, each with one plain schedule a skeleton, for h200.

The numbers are small and alike; whether a schedule is legal does not matter here.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.derive import derive_skeletons
from explorer.export.limits import refusals
from explorer.ir.nodes import Kernel
from explorer.machine import H200
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.plan import fix
from explorer.space.space import plan_params
from tests.kernels.attention import attention
from tests.kernels.dequant import dequant_gemm
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.gemm import gemm
from tests.kernels.grouped import grouped_gemm
from tests.kernels.rmsnorm import rmsnorm

KERNELS: dict[str, Kernel] = {
    "gemm": gemm(512, 1024, 512, "bfloat16", transpose_b=True),
    "few rows": gemm(16, 1024, 512, "bfloat16", transpose_b=True),
    "epilogue": gemm_epilogue(512, 1024, 512, "gelu"),
    "attention": attention(1, 4, 2, 256, 256, 64),
    "causal attention": attention(1, 4, 2, 256, 256, 64, causal=True),
    "rmsnorm": rmsnorm(256, 512),
    "dequant": dequant_gemm(256, 256, 256),
    "grouped": grouped_gemm(256, 4, 256, 256),
}
_NUMBERS = {
    "warps": 4,
    "depth": 2,
    "nreg": 160,
    "group": 1,
    "mma": 64,
    "cluster": 1,
    "cluster_axis": 0,
    "split": 1,
    "stream": 0,
}


def plain_schedules(kernel: Kernel) -> Iterator[tuple[str, Schedule]]:
    """(title, schedule) of every skeleton that can be exported."""
    for skeleton in derive_skeletons(kernel, H200):
        names = plan_params(skeleton.plan)
        numbers = {
            name: _NUMBERS.get(name, _NUMBERS.get(name.split("_", maxsplit=1)[0], 0))
            for name in names
        }
        tiles = dict.fromkeys(kernel.params, 64)
        ws, extensions = fix(skeleton.plan, numbers | tiles)
        schedule = Schedule(bind(kernel, H200.name, tiles), ws, extensions)
        if not refusals(schedule):
            yield skeleton.title, schedule


CASES = {
    f"{name}: {title}": (kernel, schedule)
    for name, kernel in KERNELS.items()
    for title, schedule in plain_schedules(kernel)
}
