"""TileLang's Ascend compiler honours what this project selects: versions, indices, pipe pairs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from explorer.export.ascend import export_kernel_ascend
from explorer.ir.annotations import IndexMode
from explorer.machine import ASCEND950
from explorer.passes.schedule_pipes import schedule_pipes
from tests.interop_tilelang.ascend import compile_ascend
from tests.kernels.ascend import CORPUS, scale

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize("name", CORPUS)
def test_selected_versions_are_honoured(name: str, tmp_path: Path) -> None:
    kernel = CORPUS[name]()
    result = schedule_pipes(kernel, ASCEND950)
    compiled = compile_ascend(export_kernel_ascend(kernel, result.schedule), tmp_path, kernel.name)
    rings = result.schedule.rings
    owned = {ring.buffer: ring.versions for ring in rings if ring.owners}
    assert compiled.versions == owned
    counted = [ring for ring in rings if ring.mode == IndexMode.COUNTER and ring.versions > 1]
    assert bool(compiled.counters) == bool(counted)
    flags = [flag for flag in result.schedule.flags if not flag.barrier]
    assert compiled.pipe_pairs == {(flag.source, flag.target) for flag in flags}
    forms = {
        (ring.versions, ring.mode == IndexMode.COUNTER)
        for ring in rings
        if ring.owners and ring.versions > 1
    }
    assert forms <= compiled.forms


@pytest.mark.parametrize("name", [name for name in CORPUS if name.startswith("manual")])
def test_manual_rings_keep_the_index_that_was_written(name: str, tmp_path: Path) -> None:
    kernel = CORPUS[name]()
    result = schedule_pipes(kernel, ASCEND950)
    compiled = compile_ascend(export_kernel_ascend(kernel, result.schedule), tmp_path, kernel.name)
    manual = next(ring for ring in result.schedule.rings if ring.manual)
    assert manual.buffer not in compiled.versions
    assert (manual.versions, False) in compiled.forms
    initial = sum(flag.versions for flag in result.schedule.flags if flag.initial)
    assert compiled.initial_sets == initial


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_copy_scale_copy_over_persistent_tiles(stages: int, tmp_path: Path) -> None:
    kernel = scale(stages)
    result = schedule_pipes(kernel, ASCEND950)
    text = export_kernel_ascend(kernel, result.schedule)
    assert re.search(rf"in T.Persistent\(\[16\], 4, core, num_stages={stages}\)", text)
    compiled = compile_ascend(text, tmp_path, kernel.name)
    assert compiled.versions == {ring.buffer: ring.versions for ring in result.schedule.rings}
    initial = sum(flag.versions for flag in result.schedule.flags if flag.initial)
    assert compiled.initial_sets == initial
