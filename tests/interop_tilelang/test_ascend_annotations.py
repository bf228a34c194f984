"""TileLang's Ascend compiler honours what this project selects: versions, indices, pipe pairs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from explorer.errors import IllegalSchedule
from explorer.export.ascend import export_kernel_ascend
from explorer.ir.annotations import (
    BufferVersions,
    IndexMode,
    ManualMultiBuffer,
    UnlimitedMemory,
)
from explorer.machine import ASCEND950
from explorer.passes.schedule_pipes import schedule_pipes
from explorer.runtime import load_workload
from explorer.tune.pipes import candidate_choices, schedule_candidate, with_stages
from tests.interop_tilelang.ascend import compile_ascend
from tests.kernels.ascend import CORPUS, claimed, scale

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
    # Its map names one of the views of a storage.
    homes = {kernel.buffer(name).home: count for name, count in compiled.versions.items()}
    assert homes == owned
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


def test_an_opt_out_beats_a_claim_there_too(tmp_path: Path) -> None:
    kernel = claimed(2, a=1)
    result = schedule_pipes(kernel, ASCEND950)
    compiled = compile_ascend(export_kernel_ascend(kernel, result.schedule), tmp_path, kernel.name)
    assert compiled.versions == {"b": 2}


@pytest.mark.parametrize("name", ["ascend_scale", "ascend_matmul"])
def test_candidates_of_the_search_spaces_are_honoured(name: str, tmp_path: Path) -> None:
    workload = load_workload(name)
    problem = workload.problem(machine=ASCEND950.name)
    kernel = workload.trace(problem)
    for choices in candidate_choices(workload, problem, kernel, ASCEND950)[1::9]:
        staged = with_stages(kernel, choices)
        try:
            result = schedule_candidate(kernel, ASCEND950, choices)
        except IllegalSchedule:
            continue
        text = export_kernel_ascend(staged, result.schedule)
        compiled = compile_ascend(text, tmp_path, kernel.name)
        rings = result.schedule.rings
        assert compiled.versions == {ring.buffer: ring.versions for ring in rings if ring.owners}
        flags = [flag for flag in result.schedule.flags if not flag.barrier]
        assert compiled.pipe_pairs == {(flag.source, flag.target) for flag in flags}


def test_there_are_enough_kernels_of_every_form() -> None:
    assert len(CORPUS) >= 40
    requests = [note for make in CORPUS.values() for note in make().annotations]
    versions = [note for note in requests if isinstance(note, BufferVersions)]
    assert {note.mode for note in versions} == set(IndexMode)
    assert any(note.opted_out for note in versions)
    assert any(note.versions == 1 and not note.opted_out for note in versions)
    assert any(note.versions is None for note in versions)
    assert {note.versions for note in requests if isinstance(note, ManualMultiBuffer)} == {2, 3}
    assert any(isinstance(note, UnlimitedMemory) for note in requests)
