"""Schedules and buffer annotations that a kernel carries."""

from __future__ import annotations

from typing import Any

import pytest

import explorer.lang as T
from explorer.errors import KernelError
from explorer.ir.annotations import (
    BufferVersions,
    IndexMode,
    ManualMultiBuffer,
    RasterHint,
    UnlimitedMemory,
)
from explorer.ir.nodes import Loop
from explorer.machine import Scope


def annotated(annotate: Any, leading: Any = 2) -> T.TracedKernel:
    """A kernel with buffers S and R of `leading` x 8 after `annotate(S, R)`."""

    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((leading, 8), "float32")
            R = T.alloc_shared((leading, 8), "float32")
            annotate(S, R)
            T.copy(A, S[0, :])

    return kernel


def message(annotate: Any, leading: Any = 2) -> str:
    with pytest.raises(KernelError) as caught:
        annotated(annotate, leading)
    return str(caught.value).split(": ", 1)[1]


def test_a_schedule_is_attached():
    @T.prim_func
    def kernel(A: T.Tensor((256, 64), T.float16), B: T.Tensor((256, 64), T.float16)):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), T.float16)
            Af = T.alloc_fragment((64, 64), T.float16)
            T.annotate_ws_schedule(
                T.WSSchedule(
                    num_warps=8,
                    roles=[
                        T.WSRole("P", warps_lo=0, warps_hi=1, max_nreg=40),
                        T.WSRole("C", warps_lo=4, warps_hi=8, max_nreg=224),
                    ],
                    pipelines=[T.WSPipeline("buf", [As], depth=2)],
                    scopes=[
                        T.WSScope(
                            "lk",
                            {
                                "P": [
                                    T.WSSync.producer_acquire("buf"),
                                    "cin",
                                    T.WSSync.producer_commit("buf"),
                                ],
                                "C": [
                                    T.WSSync.consumer_wait("buf"),
                                    T.WSOpRef("cfr"),
                                    T.WSSync.consumer_release("buf"),
                                    "cout",
                                ],
                            },
                        ),
                        T.WSScope(T.WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
                    ],
                )
            )
            for i in T.serial(4, annotations={T.WSID: "lk"}):
                T.copy(A[i * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, Af, annotations={T.WSID: "cfr"})
                T.copy(Af, B[i * 64, 0], annotations={T.WSID: "cout"})

    assert kernel.schedule is not None
    assert kernel.schedule.pipeline("buf").buffers == ("As",)
    assert kernel.schedule.role("C").warps == 4
    assert kernel.at().schedule == kernel.schedule


def test_a_kernel_has_one_schedule_of_the_right_type():
    empty = T.WSSchedule(4, [], [], [])

    def twice(S: Any, R: Any) -> None:
        T.annotate_ws_schedule(empty)
        T.annotate_ws_schedule(empty)

    assert message(twice) == "the kernel has a schedule already: remove one"
    assert (
        message(lambda S, R: T.annotate_ws_schedule({"num_warps": 4}))  # type: ignore[arg-type]
        == "T.annotate_ws_schedule takes a T.WSSchedule, got {'num_warps': 4}"
    )


def test_buffer_versions_in_every_form():
    kernel = annotated(
        lambda S, R: [
            T.annotate_buffer_versions({S: 1, R: 3}),
            T.annotate_buffer_versions({S: (2, "counter"), R: "iteration"}),
            T.annotate_buffer_versions({S: (1, "auto")}),
        ]
    )
    assert kernel.annotations == (
        BufferVersions("S", 1, IndexMode.AUTO, opted_out=True),
        BufferVersions("R", 3, IndexMode.AUTO),
        BufferVersions("S", 2, IndexMode.COUNTER),
        BufferVersions("R", None, IndexMode.ITERATION),
        BufferVersions("S", 1, IndexMode.AUTO),
    )


def test_refused_buffer_versions():
    assert (
        message(lambda S, R: T.annotate_buffer_versions({S: 0}))
        == "'S' asks for 0 versions: it takes an int of at least 1"
    )
    assert (
        message(lambda S, R: T.annotate_buffer_versions({S: (2, "sometimes")}))
        == "'S' asks for index mode 'sometimes': it takes auto, iteration or counter"
    )
    assert (
        message(lambda S, R: T.annotate_buffer_versions({"S": 2}))  # type: ignore[dict-item]
        == "T.annotate_buffer_versions takes on-chip buffers, got 'S'"
    )


def test_manual_multi_buffers():
    kernel = annotated(lambda S, R: T.annotate_manual_multi_buffer(S, {R: 5}))
    assert kernel.annotations == (ManualMultiBuffer("S", 2), ManualMultiBuffer("R", 5))
    assert (
        message(lambda S, R: T.annotate_manual_multi_buffer(S), T.Param("n"))
        == "the leading dimension of 'S' is 'n', not a constant: pass {S: n}"
    )


def test_unlimited_memory():
    kernel = annotated(lambda S, R: T.annotate_unlimit_memory("shared", "shared.l0c"))
    assert kernel.annotations == (UnlimitedMemory((Scope.SHARED, Scope.L0C)),)
    assert (
        message(lambda S, R: T.annotate_unlimit_memory("tmem"))
        == "T.annotate_unlimit_memory got 'tmem': it takes shared, shared.l1, shared.l0c, "
        "shared.l0a, shared.l0b"
    )


def test_hints_are_kept_or_ignored_and_never_change_the_meaning():
    kernel = annotated(
        lambda S, R: [
            T.use_swizzle(10, order="column"),
            T.use_swizzle(4, enable=False),
            T.annotate_layout({S: None}),
            T.annotate_min_blocks_per_sm(2),
            T.annotate_safe_value({S: 0}),
        ]
    )
    assert kernel.annotations == (RasterHint(10, "column"),)
    assert (
        message(lambda S, R: T.annotate_safe_value({S: 1.0}))
        == "T.annotate_safe_value asks 1.0 for 'S': reads outside a tensor give 0, "
        "use T.if_then_else"
    )


def test_a_loop_claims_buffers():
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((8,), "float32")
            for k in T.serial(4, annotations={"multi_buffer_eligible": [S]}):
                T.copy(A[k, :], S)

    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    assert loop.multi_buffer_eligible == ("S",)
