"""A peer on the cpu is checked before it is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from explorer.runtime import load_workload
from explorer.runtime.bench import Bench
from explorer.runtime.stage import Stage
from explorer.space import Peer


def right(problem: Any, arrays: Any) -> None:
    np.matmul(arrays["A"], arrays["B"], out=arrays["C"])


def off(problem: Any, arrays: Any) -> None:
    right(problem, arrays)
    arrays["C"][0] *= 1.1


def elsewhere(problem: Any, arrays: Any) -> Any:
    return arrays["A"] @ arrays["B"]


def failing(problem: Any, arrays: Any) -> None:
    raise RuntimeError("not for this type")


@pytest.mark.parametrize(("run", "timed"), [(right, 3), (off, 0), (elsewhere, 0), (failing, 0)])
def test_what_is_wrong_or_fails_is_not_timed(run: Callable[..., Any], timed: int) -> None:
    workload = load_workload("gemm")
    problem = workload.problem({"M": 12, "N": 20, "K": 16}, "float32")
    stage = Stage(workload, problem, 0)
    bench = Bench(stage, problem, Peer("library", "cpu", run), 1e-5, 1.0)
    (samples,) = bench.race((), 3, True, lambda entry: None)
    assert len(samples or ()) == timed
