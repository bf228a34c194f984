"""Kernels for pipe machines, with annotations of every form. `CORPUS` names each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import explorer.lang as T
from explorer.ir.nodes import Kernel

ROWS, COLUMNS, CORES = 16, 128, 4
F32 = T.float32


def _note(request: dict[str, Any], **buffers: Any) -> None:
    """Annotate the buffers that `request` names."""
    if request:
        T.annotate_buffer_versions({buffers[name]: what for name, what in request.items()})


def scale(stages: int, tiles: int = 16, **request: Any) -> Kernel:
    """Copy, scale, copy over persistent tiles."""

    @T.prim_func
    def scale_tiles(
        A: T.Tensor((tiles * ROWS, COLUMNS), F32), B: T.Tensor((tiles * ROWS, COLUMNS), F32)
    ):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b)
            for i in T.Persistent([tiles], CORES, core, num_stages=stages):
                T.copy(A[i * ROWS, 0], a)
                for r, c in T.Parallel(ROWS, COLUMNS):
                    b[r, c] = a[r, c] * 2.0
                T.copy(b, B[i * ROWS, 0])

    return scale_tiles


def in_place(stages: int, **request: Any) -> Kernel:
    """One buffer is loaded, changed and stored."""

    @T.prim_func
    def scale_in_place(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a)
            for i in T.Pipelined(8, num_stages=stages):
                T.copy(A[(core * 8 + i) * ROWS, 0], a)
                for r, c in T.Parallel(ROWS, COLUMNS):
                    a[r, c] = a[r, c] + 1.0
                T.copy(a, B[(core * 8 + i) * ROWS, 0])

    return scale_in_place


def add(stages: int, **request: Any) -> Kernel:
    """Two loads, one sum, one store."""

    @T.prim_func
    def add_tiles(
        A: T.Tensor((512, COLUMNS), F32),
        B: T.Tensor((512, COLUMNS), F32),
        C: T.Tensor((512, COLUMNS), F32),
    ):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            c = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b, c=c)
            for i in T.Pipelined(8, num_stages=stages):
                T.copy(A[(core * 8 + i) * ROWS, 0], a)
                T.copy(B[(core * 8 + i) * ROWS, 0], b)
                for r, k in T.Parallel(ROWS, COLUMNS):
                    c[r, k] = a[r, k] + b[r, k]
                T.copy(c, C[(core * 8 + i) * ROWS, 0])

    return add_tiles


def guarded(stages: int, **request: Any) -> Kernel:
    """Only every second iteration does anything."""

    @T.prim_func
    def scale_some(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b)
            for i in T.Pipelined(8, num_stages=stages):
                if i % 2 == 0:
                    T.copy(A[(core * 8 + i) * ROWS, 0], a)
                    for r, c in T.Parallel(ROWS, COLUMNS):
                        b[r, c] = a[r, c] * 3.0
                    T.copy(b, B[(core * 8 + i) * ROWS, 0])

    return scale_some


def nested(stages: int, **request: Any) -> Kernel:
    """The inner loop owns its buffers; the outer one only repeats it."""

    @T.prim_func
    def scale_nested(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b)
            for o in T.serial(2):
                for i in T.Pipelined(4, num_stages=stages):
                    T.copy(A[((core * 2 + o) * 4 + i) * ROWS, 0], a)
                    for r, c in T.Parallel(ROWS, COLUMNS):
                        b[r, c] = a[r, c] - 1.0
                    T.copy(b, B[((core * 2 + o) * 4 + i) * ROWS, 0])

    return scale_nested


def rowwise(stages: int, **request: Any) -> Kernel:
    """An inner loop writes part by part what is read whole after it: the outer loop owns."""

    @T.prim_func
    def gather_rows(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b)
            for i in T.Pipelined(8, num_stages=stages):
                for j in T.serial(2):
                    T.copy(
                        A[
                            (core * 8 + i) * ROWS + j * 8 : (core * 8 + i) * ROWS + j * 8 + 8,
                            0:COLUMNS,
                        ],
                        a[j * 8 : j * 8 + 8, 0:COLUMNS],
                    )
                for r, c in T.Parallel(ROWS, COLUMNS):
                    b[r, c] = a[r, c] * 0.5
                T.copy(b, B[(core * 8 + i) * ROWS, 0])

    return gather_rows


def two_owners(stages: int, **request: Any) -> Kernel:
    """Two loops in turn use one buffer."""

    @T.prim_func
    def scale_twice(A: T.Tensor((1024, COLUMNS), F32), B: T.Tensor((1024, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b)
            for i in T.Pipelined(5, num_stages=stages):
                T.copy(A[(core * 8 + i) * ROWS, 0], a)
                for r, c in T.Parallel(ROWS, COLUMNS):
                    b[r, c] = a[r, c] * 2.0
                T.copy(b, B[(core * 8 + i) * ROWS, 0])
            for i in T.Pipelined(3, num_stages=stages):
                T.copy(A[(core * 8 + 5 + i) * ROWS, 0], a)
                for r, c in T.Parallel(ROWS, COLUMNS):
                    b[r, c] = a[r, c] * 4.0
                T.copy(b, B[(core * 8 + 5 + i) * ROWS, 0])

    return scale_twice


def manual(leading: int, explicit: bool = False) -> Kernel:
    """The kernel indexes the versions of its ring itself."""

    @T.prim_func
    def scale_manual(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((leading, ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            if explicit:
                T.annotate_manual_multi_buffer({a: leading})
            else:
                T.annotate_manual_multi_buffer(a)
            for i in T.serial(8):
                row = (core * 8 + i) * ROWS
                T.copy(A[row : row + ROWS, 0:COLUMNS], a[i % leading, 0:ROWS, 0:COLUMNS])
                for r, c in T.Parallel(ROWS, COLUMNS):
                    b[r, c] = a[i % leading, r, c] * 2.0
                T.copy(b, B[(core * 8 + i) * ROWS, 0])

    return scale_manual


def manual_flat() -> Kernel:
    """A ring of three sub-ranges of one flat buffer."""

    @T.prim_func
    def scale_flat(A: T.Tensor((32 * COLUMNS,), F32), B: T.Tensor((32 * COLUMNS,), F32)):
        with T.Kernel(CORES) as core:
            flat = T.alloc_shared((3 * COLUMNS,), F32)
            b = T.alloc_shared((COLUMNS,), F32)
            T.annotate_manual_multi_buffer({flat: 3})
            for i in T.serial(8):
                T.copy(
                    A[(core * 8 + i) * COLUMNS : (core * 8 + i) * COLUMNS + COLUMNS],
                    flat[(i % 3) * COLUMNS : (i % 3) * COLUMNS + COLUMNS],
                )
                for c in T.Parallel(COLUMNS):
                    b[c] = flat[(i % 3) * COLUMNS + c] * 2.0
                T.copy(b, B[(core * 8 + i) * COLUMNS : (core * 8 + i) * COLUMNS + COLUMNS])

    return scale_flat


def carried(stages: int, **request: Any) -> Kernel:
    """The body first uses what the iteration before it left in `s`."""

    @T.prim_func
    def use_then_load(A: T.Tensor((1024, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            s = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, s=s, b=b)
            T.copy(A[core * 8 * ROWS, 0], s)
            for i in T.Pipelined(8, num_stages=stages):
                for r, c in T.Parallel(ROWS, COLUMNS):
                    b[r, c] = s[r, c] * 2.0
                T.copy(b, B[(core * 8 + i) * ROWS, 0])
                T.copy(A[(core * 8 + i + 1) * ROWS, 0], s)

    return use_then_load


def claimed(stages: int, **request: Any) -> Kernel:
    """The author claims the buffers for the loop."""

    @T.prim_func
    def scale_claimed(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b)
            for i in T.Pipelined(
                8, num_stages=stages, annotations={"multi_buffer_eligible": [a, b]}
            ):
                T.copy(A[(core * 8 + i) * ROWS, 0], a)
                for r, c in T.Parallel(ROWS, COLUMNS):
                    b[r, c] = a[r, c] * 5.0
                T.copy(b, B[(core * 8 + i) * ROWS, 0])

    return scale_claimed


def unlimited(stages: int) -> Kernel:
    """More versions than the unified buffer holds, because its capacity is left out."""

    @T.prim_func
    def scale_big(A: T.Tensor((512 * 16, COLUMNS), F32), B: T.Tensor((512 * 16, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((128, COLUMNS), F32)
            b = T.alloc_shared((128, COLUMNS), F32)
            T.annotate_unlimit_memory("shared")
            for i in T.Pipelined(8, num_stages=stages):
                T.copy(A[(core * 8 + i) * 128, 0], a)
                for r, c in T.Parallel(128, COLUMNS):
                    b[r, c] = a[r, c] * 2.0
                T.copy(b, B[(core * 8 + i) * 128, 0])

    return scale_big


def matmul(stages: int, **request: Any) -> Kernel:
    """L1 tiles, an accumulator in L0C, one store a block."""

    @T.prim_func
    def matmul_l1(
        A: T.Tensor((256, 256), T.float16),
        B: T.Tensor((256, 256), T.float16),
        C: T.Tensor((256, 256), F32),
    ):
        with T.Kernel(4) as core:
            a = T.alloc_l1((64, 64), T.float16)
            b = T.alloc_l1((64, 64), T.float16)
            c = T.alloc_l0c((64, 64), F32)
            _note(request, a=a, b=b)
            for n in T.serial(4):
                for k in T.Pipelined(4, num_stages=stages):
                    T.copy(A[core * 64, k * 64], a)
                    T.copy(B[n * 64, k * 64], b)
                    T.gemm(a, b, c, transpose_B=True, clear_accum=(k == 0))
                T.copy(c, C[core * 64, n * 64])

    return matmul_l1


def filled(stages: int, where: str, **request: Any) -> Kernel:
    """A fill outside the owner of `a` initialises every version: at the top, or in the outer
    loop before or after the inner one. What is not loaded keeps it."""
    loaded = ROWS if where == "after" else ROWS // 2

    @T.prim_func
    def scale_filled(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b)
            if where == "top":
                T.fill(a, 0.0)
            for o in T.serial(2):
                if where == "before":
                    T.fill(a, 0.0)
                for i in T.Pipelined(4, num_stages=stages):
                    row = ((core * 2 + o) * 4 + i) * ROWS
                    T.copy(A[row : row + loaded, 0:COLUMNS], a[0:loaded, 0:COLUMNS])
                    for r, c in T.Parallel(ROWS, COLUMNS):
                        b[r, c] = a[r, c] * 2.0
                    T.copy(b, B[row, 0])
                if where == "after":
                    T.fill(a, 0.0)

    return scale_filled


def filled_l1(stages: int, **request: Any) -> Kernel:
    """A fill of an L1 tile ahead of its owner, which leaves it one version."""

    @T.prim_func
    def matmul_filled(
        A: T.Tensor((256, 256), T.float16),
        B: T.Tensor((256, 256), T.float16),
        C: T.Tensor((256, 64), F32),
    ):
        with T.Kernel(4) as core:
            a = T.alloc_l1((64, 64), T.float16)
            b = T.alloc_l1((64, 64), T.float16)
            c = T.alloc_l0c((64, 64), F32)
            _note(request, a=a, b=b)
            T.fill(a, 0.0)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[core * 64, k * 64], a)
                T.copy(B[0, k * 64], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=(k == 0))
            T.copy(c, C[core * 64, 0])

    return matmul_filled


def triangular(stages: int, **request: Any) -> Kernel:
    """The inner trip count depends on the outer loop, so that no index is affine."""

    @T.prim_func
    def scale_triangle(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            b = T.alloc_shared((ROWS, COLUMNS), F32)
            _note(request, a=a, b=b)
            for o in T.serial(3):
                for i in T.Pipelined(o + 1, num_stages=stages):
                    T.copy(A[(core * 6 + i) * ROWS, 0], a)
                    for r, c in T.Parallel(ROWS, COLUMNS):
                        b[r, c] = a[r, c] * 2.0
                    T.copy(b, B[(core * 6 + i) * ROWS, 0])

    return scale_triangle


def through_l0(stages: int, **request: Any) -> Kernel:
    """Operands in L0A and L0B, loaded from L1 by copies of the kernel's own."""

    @T.prim_func
    def matmul_l0(
        A: T.Tensor((256, 256), T.float16),
        B: T.Tensor((256, 256), T.float16),
        C: T.Tensor((256, 64), F32),
    ):
        with T.Kernel(4) as core:
            a = T.alloc_l1((64, 64), T.float16)
            b = T.alloc_l1((64, 64), T.float16)
            left = T.alloc_l0a((64, 64), T.float16)
            right = T.alloc_l0b((64, 64), T.float16)
            c = T.alloc_l0c((64, 64), F32)
            _note(request, a=a, b=b, left=left, right=right)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[core * 64, k * 64], a)
                T.copy(B[0, k * 64], b)
                T.copy(a, left)
                T.copy(b, right)
                T.gemm(left, right, c, transpose_B=True, clear_accum=(k == 0))
            T.copy(c, C[core * 64, 0])

    return matmul_l0


def viewed(stages: int, dtype: str = "float32", **request: Any) -> Kernel:
    """What is loaded into `a` is changed through a view of another shape or type."""

    @T.prim_func
    def scale_viewed(A: T.Tensor((512, COLUMNS), F32), B: T.Tensor((512, COLUMNS), F32)):
        with T.Kernel(CORES) as core:
            a = T.alloc_shared((ROWS, COLUMNS), F32)
            v = T.view(a, (2 * ROWS, COLUMNS // 2), dtype)
            _note(request, a=a, v=v)
            for i in T.Pipelined(8, num_stages=stages):
                T.copy(A[(core * 8 + i) * ROWS, 0], a)
                for r, c in T.Parallel(2 * ROWS, COLUMNS // 2):
                    if dtype == "float32":
                        v[r, c] = v[r, c] * 2.0
                    else:
                        v[r, c] = v[r, c] & 0x7FFFFFFF
                T.copy(a, B[(core * 8 + i) * ROWS, 0])

    return scale_viewed


CORPUS: dict[str, Callable[[], Kernel]] = {
    "scale_1": lambda: scale(1),
    "scale_2": lambda: scale(2),
    "scale_3": lambda: scale(3),
    "scale_ragged": lambda: scale(2, tiles=15),
    "scale_fixed": lambda: scale(2, a=2, b=3),
    "scale_fixed_modes": lambda: scale(3, a=(3, "counter"), b=(2, "iteration")),
    "scale_auto_mode": lambda: scale(3, a=(2, "auto"), b="auto"),
    "scale_counter": lambda: scale(3, a="counter", b="counter"),
    "scale_iteration": lambda: scale(3, a="iteration", b="iteration"),
    "scale_out_a": lambda: scale(3, a=1),
    "scale_out_b": lambda: scale(3, b=1),
    "scale_out_both": lambda: scale(3, a=1, b=1),
    "scale_kept": lambda: scale(3, a=(1, "auto"), b=(1, "counter")),
    "in_place_2": lambda: in_place(2),
    "in_place_fixed": lambda: in_place(3, a=3),
    "in_place_counter": lambda: in_place(3, a=(3, "counter")),
    "add_2": lambda: add(2),
    "add_4": lambda: add(4),
    "add_mixed": lambda: add(3, a=3, b=(2, "counter"), c=1),
    "guarded_auto": lambda: guarded(2),
    "guarded_iteration": lambda: guarded(2, a=(2, "iteration"), b=(2, "iteration")),
    "guarded_counter": lambda: guarded(2, a=(2, "counter"), b=(2, "counter")),
    "nested_2": lambda: nested(2),
    "nested_counter": lambda: nested(3, a="counter"),
    "nested_fixed": lambda: nested(3, a=(3, "iteration"), b=(2, "counter")),
    "rowwise_2": lambda: rowwise(2),
    "rowwise_fixed": lambda: rowwise(2, a=(2, "counter"), b=2),
    "two_owners_auto": lambda: two_owners(2),
    "two_owners_fixed": lambda: two_owners(3, a=(3, "counter"), b=(2, "counter")),
    "two_owners_out": lambda: two_owners(2, b=1),
    "manual_2": lambda: manual(2),
    "manual_3": lambda: manual(3, explicit=True),
    "manual_flat": manual_flat,
    "carried": lambda: carried(2),
    "carried_out": lambda: carried(2, s=1),
    "claimed": lambda: claimed(2),
    "unlimited": lambda: unlimited(4),
    "matmul_2": lambda: matmul(2),
    "filled_top": lambda: filled(2, "top"),
    "filled_before": lambda: filled(2, "before", a=(3, "counter")),
    "filled_after": lambda: filled(2, "after", a=2, b="iteration"),
    "filled_l1": lambda: filled_l1(2),
    "triangular": lambda: triangular(2),
    "through_l0": lambda: through_l0(2),
    "through_l0_fixed": lambda: through_l0(2, left=(2, "iteration"), right=1, b=(1, "auto")),
    "viewed": lambda: viewed(2),
    "viewed_bits": lambda: viewed(3, "int32", v=(3, "iteration")),
    "viewed_counter": lambda: viewed(2, a=2, v="counter"),
    "viewed_out": lambda: viewed(2, v=1),
    "matmul_fixed": lambda: matmul(3, a=(3, "iteration"), b=(2, "iteration")),
}
