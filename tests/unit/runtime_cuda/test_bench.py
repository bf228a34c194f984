"""The device bench on NumPy arrays: placing, poisoning, checking, peers, the wait for the host."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from explorer.records import WrongResult
from explorer.runtime import load_workload
from explorer.runtime.cuda.bench import CudaBench
from explorer.runtime.cuda.timing import MARGIN, Timer
from explorer.space import Peer
from tests.support.host_cupy import Waiting, host_modules

CASES = (
    ("gemm_nt", "bfloat16", {}),
    ("gemm_nt", "float8_e4m3", {}),
    ("gemm_nt", "float32", {}),
    ("gemm_batched", "float16", {"Z": 3}),
    ("gemm_strided", "bfloat16", {"gap": 8}),
)


@pytest.fixture(autouse=True)
def _on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in host_modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Waiting, "waits", [])


def opened(
    name: str, kind: str, extra: dict[str, int], run: Callable[..., Any] = lambda *_: None
) -> CudaBench:
    workload = load_workload(name)
    problem = workload.problem({"M": 40, "N": 24, "K": 32, **extra}, kind, "h200")
    bound = workload.bound("h200", problem.dtype)
    timed = evolve(workload, peers=(Peer("library", "h200", run),))
    return CudaBench(timed, problem, "h200", bound, 4.0, 1, lambda _: None)


@pytest.mark.parametrize(("name", "kind", "extra"), CASES)
def test_right_wrong_and_missing_results_are_told_apart(
    name: str, kind: str, extra: dict[str, int]
) -> None:
    bench: Any = opened(name, kind, extra)
    element = bench._kernel.buffer("C").dtype.numpy

    def storing(factor: float) -> list[Callable[[], None]]:
        def store(tensors: dict[str, Any]) -> None:
            values = (bench._reference["C"] * factor).astype(element)
            tensors["C"][...] = values.view(tensors["C"].dtype)

        return [lambda each=each: store(each) for each in bench._sets]  # type: ignore[misc]

    assert bench._checked(storing(1.0)) <= bench._tolerance
    assert bench._checked(storing(1.1)) == pytest.approx(0.1, rel=0.1)
    outcome = bench._wrong(bench._checked([lambda: None for _ in bench._sets]))
    assert isinstance(outcome, WrongResult)
    assert "elements of C were never written" in outcome.detail


def test_gaps_between_rows_are_poisoned_in_every_set() -> None:
    bench: Any = opened("gemm_strided", "bfloat16", {"gap": 8})
    for tensors in bench._sets:
        assert tensors["A"].strides == (2 * (32 + 8), 2)
        whole = tensors["A"].base.reshape(40, 40)
        assert (whole[:, 32:] == 0xFFFF).all()
        assert not (whole[:, :32] == 0xFFFF).any()


def test_a_peer_that_fails_is_not_timed() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("not for this type")

    assert opened("gemm_nt", "bfloat16", {}, fail)._peer_runs() is None


def test_a_peer_that_is_wrong_is_not_timed() -> None:
    def times(factor: float) -> Callable[..., None]:
        return lambda _, arrays: arrays["A"].reduced_product(arrays["B"].T, arrays["C"], factor)

    nothing: Any = opened("gemm_batched", "float16", {"Z": 3})
    assert nothing._peer_runs() is None, "it left the poison where it was"
    assert opened("gemm_nt", "bfloat16", {}, times(0.9))._peer_runs() is None
    runs: Any = opened("gemm_nt", "bfloat16", {}, times(1.0))._peer_runs()
    assert len(runs) > 1, "one for each set of tensors"


def test_the_device_waits_until_a_slow_host_has_enqueued_everything() -> None:
    timer = Timer()
    launches = [lambda: time.sleep(1e-3)] * 3
    timer.mean_us(launches)
    assert len(Waiting.waits) >= 2, "the first wait was too short, the sample was taken again"
    assert Waiting.waits[-1] >= 3e-3
    before = len(Waiting.waits)
    timer.mean_us(launches)
    assert Waiting.waits[before] >= MARGIN * 3e-3, "the next sample knows how long it takes"
    assert np.isfinite(timer.mean_us(launches))
