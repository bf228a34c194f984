"""Every notebook runs from top to bottom, offline, on the public API alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.fakes import tune_fake

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FOLDER = re.compile(r"^FOLDER = .*$", re.MULTILINE)


def execute(notebook: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    resources = {"metadata": {"path": str(ROOT / "notebooks")}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    return [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]


@pytest.mark.filterwarnings(
    "ignore:.*:DeprecationWarning:(jupyter|nbclient|zmq|tornado|traitlets)"
)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(path, as_version=4)
    committed = ROOT / "results" / "cpu" / "gemm-1024" / "run.json"
    if not committed.exists():
        tune_fake(tmp_path / "r", trials=12)
        first = next(cell for cell in notebook.cells if FOLDER.search(cell.source))
        first.source = FOLDER.sub(f"FOLDER = Path({str(tmp_path / 'r')!r})", first.source)
    outputs = execute(notebook, monkeypatch)
    assert not [each for each in outputs if each.output_type == "error"]
    images = [each for each in outputs if "image/png" in each.get("data", {})]
    assert len(images) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_the_public_interface(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    modules = set(re.findall(r"^(?:from|import) (explorer[\w.]*)", source, re.MULTILINE))
    assert modules <= {"explorer", "explorer.lang", "explorer.report"}
