"""Views: other shapes and types of a buffer's bytes, and what annotations of them mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import explorer
import explorer.lang as T
from explorer.constraints import FeasibleModel
from explorer.derive.eligibility import ownership
from explorer.errors import KernelError, ScheduleError
from explorer.export.ascend import export_kernel_ascend
from explorer.ir.annotations import IndexMode
from explorer.ir.interpreter import run
from explorer.ir.lives import Life, lives
from explorer.ir.nodes import Kernel
from explorer.ir.printer import show_kernel
from explorer.ir.task_tree import task_tree
from explorer.machine import ASCEND950, H200
from explorer.passes.schedule_pipes import schedule_pipes
from tests.kernels.ascend import viewed

F32 = T.float32


def test_a_view_shows_the_same_bytes() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), F32), B: T.Tensor((8, 4), F32), C: T.Tensor((4, 8), "int32")):
        with T.Kernel(1):
            a = T.alloc_shared((4, 8), F32)
            turned = T.reshape(a, (8, 4))
            bits = T.view(a, dtype="int32")
            nested = T.view(turned, (32,), "int32")
            T.copy(A, a)
            T.copy(turned, B)
            T.copy(bits, C)
            for i in T.Parallel(1):
                nested[i] = 0

    values = np.arange(32, dtype=np.float32).reshape(4, 8)
    found = run(kernel, {"A": values})
    assert (found["B"] == values.reshape(8, 4)).all()
    assert (found["C"] == values.view(np.int32)).all()
    assert {b.name: b.storage for b in kernel.buffers} == {
        "a": "",
        "turned": "a",
        "bits": "a",
        "nested": "a",
    }
    assert "turned: float32[8, 4] in shared, view of a" in show_kernel(kernel)
    assert lives(kernel) == {"a": Life(0, 3)}


Use = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda a: T.view(a, (5, 8)), r"\(4, 8\) of float32 as \(5, 8\) of float32: 1024 bits"),
        (lambda a: T.view(a, (4, 8), "float16"), "1024 bits against 512"),
        (lambda a: T.view(a, (256,), "int4"), "elements below a byte keep their width"),
        (lambda a: T.view(a, (0,)), "must be at least 1, got 0"),
        (lambda a: T.view(3), "takes an on-chip buffer, got 3"),
        (lambda a: T.view(T.alloc_fragment((4,), F32)), "private to its threads"),
    ],
)
def test_views_that_are_refused(use: Use, message: str) -> None:
    with pytest.raises(KernelError, match=message):

        @T.prim_func
        def kernel(A: T.Tensor((4, 8), F32)):
            with T.Kernel(1):
                a = T.alloc_shared((4, 8), F32)
                use(a)
                T.copy(A, a)


def test_open_sizes_are_compared_when_they_are_known() -> None:
    rows = T.Param("rows")

    @T.prim_func
    def kernel(A: T.Tensor((64, 8), F32)):
        with T.Kernel(1):
            a = T.alloc_shared((rows, 8), F32)
            v = T.view(a, (256,))
            T.copy(A[0:rows, 0:8], a)
            T.clear(v)

    assert kernel.at(rows=32).buffer("v").home == "a"
    with pytest.raises(KernelError, match="512 bits against 8192"):
        kernel.at(rows=2)


def test_a_value_read_before_a_write_through_a_view_is_stale() -> None:
    with pytest.raises(KernelError, match="used after 'a' was written"):

        @T.prim_func
        def kernel(A: T.Tensor((8,), F32)):
            with T.Kernel(1):
                a = T.alloc_shared((8,), F32)
                v = T.reshape(a, (2, 4))
                T.copy(A, a)
                held = a[0] + 1.0
                T.clear(v)
                A[0] = held


def _rings(kernel: Kernel) -> dict[str, tuple[int, IndexMode, int]]:
    schedule = schedule_pipes(kernel, ASCEND950).schedule
    return {ring.buffer: (ring.versions, ring.mode, len(ring.owners)) for ring in schedule.rings}


def test_a_storage_has_one_count_and_one_mode() -> None:
    assert _rings(viewed(2)) == {"a": (2, IndexMode.ITERATION, 1)}
    assert _rings(viewed(3, v=(3, "counter"))) == {"a": (3, IndexMode.COUNTER, 1)}
    assert _rings(viewed(2, a=2, v="counter")) == {"a": (2, IndexMode.COUNTER, 1)}
    assert _rings(viewed(2, v=1)) == {"a": (1, IndexMode.ITERATION, 0)}
    assert _rings(viewed(2, a=1)) == {"a": (1, IndexMode.ITERATION, 0)}


@pytest.mark.parametrize(
    ("request_of_a", "request_of_v", "message"),
    [
        (2, 3, "version counts 2 and 3"),
        ((2, "counter"), "iteration", "modes counter and iteration"),
    ],
)
def test_views_that_ask_for_different_things_are_refused(
    request_of_a: Any, request_of_v: Any, message: str
) -> None:
    kernel = viewed(2, a=request_of_a, v=request_of_v)
    with pytest.raises(ScheduleError, match=message):
        schedule_pipes(kernel, ASCEND950)


def test_a_claim_of_a_view_is_its_storages() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((64, 8), F32)):
        with T.Kernel(1):
            a = T.alloc_shared((8, 8), F32)
            v = T.reshape(a, (64,))
            claim = {"multi_buffer_eligible": [v]}
            for i in T.Pipelined(8, num_stages=2, annotations=claim):
                T.copy(a, A[i * 8, 0])
                T.copy(A[i * 8, 0], a)

    (found,) = ownership(kernel, task_tree(kernel))
    assert [owner.loop.var for owner in found.owners] == ["i"]


def test_views_count_no_bytes_and_are_exported() -> None:
    kernel = viewed(2, "int32")
    result = schedule_pipes(kernel, ASCEND950)
    assert [size for _, size in result.bytes_used] == [2 * 16 * 128 * 4]
    text = export_kernel_ascend(kernel, result.schedule)
    assert "v = T.view(a, (32, 64), T.int32)" in text
    assert 'T.annotate_buffer_versions({a: (2, "iteration")})' in text


def test_roles_take_no_views() -> None:
    space = explorer.derive(viewed(2), H200)
    assert any("buffer-views" in reason for reason in FeasibleModel(space).explain_empty())
