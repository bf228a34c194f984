"""Finding workloads by name and by file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from explorer.errors import InputError
from explorer.ir.dtypes import dtype
from explorer.runtime import absolute_ref, bundled_workloads, load_workload


def test_the_gemm_workloads_are_found_by_name() -> None:
    assert {"gemm", "gemm_nt", "gemm_tn", "gemm_tt"} <= set(bundled_workloads())
    assert load_workload("gemm").problem().sizes == (("M", 1024), ("N", 1024), ("K", 1024))


ON_CPU = [
    (name, kind)
    for name in bundled_workloads()
    for kind in load_workload(name).dtypes
    if load_workload(name).peer("cpu", dtype(kind)) is not None
]


@pytest.mark.parametrize(("name", "kind"), ON_CPU)
def test_the_peer_computes_the_reference(name: str, kind: str) -> None:
    workload = load_workload(name)
    problem = workload.problem({"M": 5, "N": 6, "K": 7}, kind)
    arrays = workload.inputs(problem, np.random.default_rng(0))
    expected = workload.reference(problem, arrays)["C"]
    arrays["C"] = np.zeros(expected.shape, workload.trace(problem).buffer("C").dtype.numpy)
    peer = workload.peer("cpu", problem.dtype)
    assert peer is not None
    peer.run(problem, arrays)
    off = np.linalg.norm(arrays["C"].astype(np.float64) - expected)
    assert off <= workload.tolerance[kind] * np.linalg.norm(expected)


def test_every_product_has_a_peer_on_the_h200() -> None:
    for name in bundled_workloads():
        workload = load_workload(name)
        here = "h200" in workload.tiles
        for kind in ("float32", "float16", "bfloat16") if here else ():
            if kind in workload.dtypes:
                assert workload.peer("h200", dtype(kind)), f"{name} {kind}"


def test_a_workload_in_a_file_is_found_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from explorer.runtime import load_workload\nlocal = load_workload('gemm_tt')\n"
    )
    assert load_workload(f"{path}:local").name == "gemm_tt"


@pytest.mark.parametrize(
    ("content", "ref", "message"),
    [
        (None, "nothing", "unknown search space 'nothing': known are .*gemm"),
        (None, "{path}:x", "no file"),
        ("x = 1\n", "{path}", "say which workload"),
        ("x = 1\n", "{path}:x", "has no workload 'x': it has no workload at all"),
        ("def f(:\n", "{path}:f", "cannot be loaded: SyntaxError"),
        ("raise SystemExit(3)\n", "{path}:f", "cannot be loaded: SystemExit: 3"),
        ("1 / 0\n", "{path}:f", "cannot be loaded: ZeroDivisionError"),
    ],
)
def test_a_bad_reference_is_one_clear_line(
    content: str | None, ref: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "space.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load_workload(ref.format(path=path))
    assert "\n" not in str(caught.value)


def test_a_file_may_import_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_the_space.py").write_text("NAME = 'gemm_nt'\n")
    path = tmp_path / "space.py"
    path.write_text(
        "from beside_the_space import NAME\nfrom explorer.runtime import load_workload\n"
        "local = load_workload(NAME)\n"
    )
    before = list(sys.path)
    assert load_workload(f"{path}:local").name == "gemm_nt"
    assert sys.path == before


def test_a_reference_reads_the_same_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_ref("mine.py:local") == f"{tmp_path}/mine.py:local"
    assert absolute_ref("gemm") == "gemm"
