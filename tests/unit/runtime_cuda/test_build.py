"""Compiled kernels: in processes, cached, and again after a compiler that died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from explorer.machine import H200
from explorer.records import CompileFailed
from explorer.runtime import Built
from explorer.runtime.cuda import build
from explorer.runtime.cuda.build import read_plan
from explorer.runtime.cuda.compilers import Compilers
from explorer.runtime.cuda.log import read_log
from explorer.runtime.cuda.toolchain import CudaToolchain
from explorer.settings import settings
from tests.support.cuda_candidates import DIRECT, SMALL, candidate, gemm_space

pytest.importorskip("cuda.bindings")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    here = evolve(settings(), cache=tmp_path)
    monkeypatch.setattr(build, "settings", lambda: here)
    return tmp_path / "cuda"


def test_a_kernel_is_built_once_and_its_witness_on_demand(cache) -> None:
    space = gemm_space("gemm", (256, 256, 256))
    schedule = candidate(space, DIRECT, **SMALL, depth_A_B=2)
    toolchain = CudaToolchain(H200)
    try:
        first = toolchain.build(space.kernel, schedule)
        again = toolchain.build(space.kernel, schedule)
        assert isinstance(first, Built)
        assert isinstance(again, Built)
        assert (again.key, again.seconds, again.log) == (first.key, 0.0, first.log)
        assert read_log(first.log).registers == 168
        assert read_plan(first.library).report_words == 0
        witness = toolchain.bounded(first)
        assert witness is not None
        assert read_plan(witness.library).report_words > 0
    finally:
        toolchain.close()
    assert not list(cache.glob(".writing-*"))


def test_a_refused_source_and_a_compiler_that_dies() -> None:
    compilers = Compilers(1)
    try:
        refused = compilers.compile("this is no source", "sm_90a")
        assert isinstance(refused, CompileFailed)
        assert "error" in refused.message
        worker = compilers._idle.get_nowait()
        assert worker is not None
        os.kill(worker.pid, signal.SIGKILL)
        compilers._idle.put(worker)
        died = CompileFailed("the compiler process died: killed by SIGKILL")
        assert compilers.compile("", "sm_90a") == died
        assert isinstance(compilers.compile("this is no source", "sm_90a"), CompileFailed)
    finally:
        compilers.close()


SCRIPT = """
from explorer.machine import H200
from explorer.runtime import Built
from explorer.runtime.backend import toolchain_of
from tests.support.cuda_candidates import DIRECT, SMALL, candidate, gemm_space

print("once")
space = gemm_space("gemm", (256, 256, 256))
toolchain = toolchain_of(H200)
built = toolchain.build(space.kernel, candidate(space, DIRECT, **SMALL, depth_A_B=2))
assert isinstance(built, Built), built
assert built.seconds > 0.0
toolchain.close()
print("built")
"""


def test_a_plain_script_without_a_main_guard_builds(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ
        | {
            "EXPLORER_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": str(Path(__file__).parents[3]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["once", "built"]
