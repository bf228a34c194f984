"""Every pass leaves a numbered file when the settings name a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from explorer.errors import EnvironmentFault
from explorer.passes import PASSES, dump
from explorer.passes.assign_stages import assign_stages
from explorer.settings import settings
from tests.support.programs import gemm_program


def test_numbered_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "settings", lambda: evolve(settings(), dump=tmp_path))
    gemm_program(4, 4, 8)
    (folder,) = tmp_path.iterdir()
    names = sorted(path.name for path in folder.iterdir())
    expected = [f"{n:02d}_{step.__name__}.txt" for n, step in enumerate(PASSES)]
    assert names == [*expected, f"{len(PASSES):02d}_program.txt"]
    text = (folder / f"{PASSES.index(assign_stages):02d}_assign_stages.txt").read_text()
    assert "wait ab.full @0" in text
    assert (folder / names[-1]).read_text().startswith("program gemm on cpu")


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(dump, "settings", lambda: evolve(settings(), dump=tmp_path / "file"))
    with pytest.raises(EnvironmentFault, match="set EXPLORER_DUMP to a writable folder"):
        gemm_program(4, 4, 8)
