"""An exported kernel, read back with this package's own language, is the kernel it came from."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from explorer.export import export_kernel_tilelang
from explorer.expr import const
from explorer.ir.printer import show_kernel
from explorer.schedule.plan import scheduled_kernel
from tests.unit.export.skeletons import CASES


def read_back(text: str, name: str, folder: Path) -> Any:
    """The kernel of a printed module, its import swapped for `explorer.lang`."""
    path = folder / "exported.py"
    path.write_text(text.replace("import tilelang.language as T", "import explorer.lang as T"))
    spec = importlib.util.spec_from_file_location(f"exported_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.mark.parametrize("case", CASES)
def test_kernel_and_schedule_come_back(case: str, tmp_path: Path) -> None:
    kernel, schedule = CASES[case]
    back = read_back(export_kernel_tilelang(kernel, schedule), kernel.name, tmp_path)
    wanted = scheduled_kernel(kernel, schedule.extensions).at(**schedule.params)
    wanted = evolve(wanted, threads=const(schedule.ws.num_warps * 32))
    assert show_kernel(back) == show_kernel(wanted)
    assert back.schedule == schedule.ws
