"""What a reference must give, tensors that are updated in place, and the memory they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

import explorer.lang as T
from explorer.errors import InputError
from explorer.records import WrongResult, reason_of
from explorer.runtime import load_workload, tensors
from explorer.runtime.stage import Stage
from explorer.space import Arrays, Problem, Workload

SIZES = {"M": 8, "N": 6, "K": 4}


def gemm(reference: Any) -> Workload:
    return evolve(load_workload("gemm"), reference=reference)


def stage(workload: Workload) -> Stage:
    return Stage(workload, workload.problem(SIZES, "float32"), 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the kernel writes 'C', the reference gives nothing"),
        ({"D": (8, 6)}, "the kernel writes 'C', the reference gives D"),
        ({"C": (8, 6), "D": (8, 6)}, "gives 'D', which the kernel does not write: it writes C"),
        ({"C": (8, 6), "A": (8, 4)}, "gives 'A', which the kernel does not write"),
        ({"C": (1, 6)}, r"'C' has shape \(1, 6\), the kernel's is \(8, 6\)"),
        ({"C": ()}, r"'C' has shape \(\)"),
    ],
)
def test_a_reference_gives_every_output_whole(
    given: dict[str, tuple[int, ...]], message: str
) -> None:
    zeros = {name: np.zeros(shape) for name, shape in given.items()}
    with pytest.raises(InputError, match=message) as caught:
        stage(gemm(lambda problem, arrays: zeros))
    assert "\n" not in str(caught.value)


def test_the_first_wrong_element_is_named() -> None:
    found = stage(load_workload("gemm"))
    arrays, _ = found.next()
    found.poison(arrays)
    assert found.difference(arrays, 1e-5) == "48 of 48 elements of C were never written"
    arrays["C"][...] = arrays["A"] @ arrays["B"]
    assert found.difference(arrays, 1e-5) == ""
    arrays["C"][5, 2] = 1e6
    words = found.difference(arrays, 1e-5)
    assert words.startswith("C[5, 2] is 1e+06, the reference ")
    assert reason_of(WrongResult(2.0, 1e-5, words)).endswith(words)


def _kernel(problem: Problem) -> T.TracedKernel:
    size = problem["M"]

    @T.prim_func
    def twice(A: T.Tensor((size,), "float32")):
        with T.Kernel(1) as bx:
            own = T.alloc_fragment((size,), "float32")
            T.copy(A[bx * size], own)
            for i in T.Parallel(size):
                own[i] = own[i] * 2.0
            T.copy(own, A[bx * size])

    return twice


def _in_place(problem: Problem, arrays: Arrays) -> Arrays:
    arrays["A"] *= 2.0
    return {"A": arrays["A"]}


def test_a_tensor_that_is_updated_in_place_is_restored() -> None:
    workload = Workload(
        name="twice",
        sizes={"M": 16},
        kernel=_kernel,
        tiles={"cpu": {}},
        inputs=lambda problem, rng: {"A": np.arange(1, 17, dtype=np.float32)},
        reference=_in_place,
        work=lambda problem: 16.0,
        tolerance={"float32": 1e-6},
    )
    found = Stage(workload, workload.problem(), 0)
    assert found.computes_in_place
    for _ in range(2 * found.sets):
        arrays, _ = found.next()
        found.poison(arrays)
        assert found.error(arrays) == pytest.approx(0.5)
        assert found.difference(arrays, 1e-6) == "A[0] is 1, the reference 2"
        arrays["A"] *= 2.0
        assert found.error(arrays) == 0.0
        found.restore()
    np.testing.assert_array_equal(found.next()[0]["A"], np.arange(1, 17))


def test_tensors_beyond_the_hosts_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = load_workload("gemm")
    kernel = workload.kernel(workload.problem({"M": 1024, "N": 1024, "K": 1024}, "float32"))
    # Two inputs as drawn, three tensors in place, the reference in float64: 4 MiB each, or 8.
    monkeypatch.setattr(tensors, "memory_bytes", lambda: 28 << 20)
    tensors.require_memory(kernel)
    monkeypatch.setattr(tensors, "memory_bytes", lambda: (28 << 20) - 1)
    with pytest.raises(InputError, match=r"the host has 0\.0 GiB; use smaller sizes"):
        tensors.require_memory(kernel)
