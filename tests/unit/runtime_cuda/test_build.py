"""Compiled kernels: in processes, cached, and again after a compiler that died."""

from __future__ import annotations

import os
import signal

import pytest
from attrs import evolve

from explorer.machine import H200
from explorer.records import CompileFailed
from explorer.runtime import Built
from explorer.runtime.cuda import build
from explorer.runtime.cuda.build import Compilers, read_plan
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
        assert compilers._pool is not None
        (process,) = compilers._pool._processes.values()
        os.kill(process.pid, signal.SIGKILL)
        assert compilers.compile("", "sm_90a") == CompileFailed("the compiler process died")
        assert isinstance(compilers.compile("this is no source", "sm_90a"), CompileFailed)
    finally:
        compilers.close()
