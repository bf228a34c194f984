"""Kernels written once for both surfaces: `T` is `tilelang.language` or `explorer.lang`.

Each takes `attach`, called with the kernel's shared buffers by name, which annotates a schedule
(TileLang) or does nothing. Every statement has an id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Attach = Callable[[dict[str, Any]], None]


def copy_ring(T: Any, attach: Attach, trips: int = 4) -> Any:
    @T.prim_func
    def kernel(src: T.Tensor((512, 64), T.float16), dst: T.Tensor((512, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            frag = T.alloc_fragment((64, 64), T.float16)
            attach({"As": As, "frag": frag})
            for lk in T.serial(trips, annotations={T.WSID: "lk"}):
                T.copy(src[lk * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, frag, annotations={T.WSID: "cfr"})
                T.copy(frag, dst[lk * 64, 0], annotations={T.WSID: "cout"})

    return kernel


def two_rings(T: Any, attach: Attach, trips: int = 6) -> Any:
    @T.prim_func
    def kernel(
        x: T.Tensor((512, 64), T.float16),
        y: T.Tensor((512, 64), T.float16),
        z: T.Tensor((512, 64), T.float16),
        w: T.Tensor((512, 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            a = T.alloc_shared((64, 64), T.float16)
            c = T.alloc_shared((64, 64), T.float16)
            fa = T.alloc_fragment((64, 64), T.float16)
            fc = T.alloc_fragment((64, 64), T.float16)
            attach({"a": a, "c": c, "fa": fa})
            for lk in T.serial(trips, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], a, annotations={T.WSID: "ca"})
                T.copy(y[lk * 64, 0], c, annotations={T.WSID: "cc"})
                T.copy(a, fa, annotations={T.WSID: "ra"})
                T.copy(fa, w[lk * 64, 0], annotations={T.WSID: "outa"})
                T.copy(c, fc, annotations={T.WSID: "rc"})
                T.copy(fc, z[lk * 64, 0], annotations={T.WSID: "outc"})

    return kernel


def relay(T: Any, attach: Attach, trips: int = 5) -> Any:
    """A third role between: global -> a -> fragment -> b -> fragment -> global."""

    @T.prim_func
    def kernel(x: T.Tensor((512, 64), T.float16), z: T.Tensor((512, 64), T.float16)):
        with T.Kernel(1, threads=384) as bx:
            a = T.alloc_shared((64, 64), T.float16)
            b = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            g = T.alloc_fragment((64, 64), T.float16)
            attach({"a": a, "b": b, "f": f})
            for lk in T.serial(trips, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], a, annotations={T.WSID: "load"})
                T.copy(a, f, annotations={T.WSID: "take"})
                T.copy(f, b, annotations={T.WSID: "give"})
                T.copy(b, g, annotations={T.WSID: "read"})
                T.copy(g, z[lk * 64, 0], annotations={T.WSID: "out"})

    return kernel


def gemm(T: Any, attach: Attach, trips: int = 4) -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((128, 256), T.bfloat16),
        B: T.Tensor((128, 256), T.bfloat16),
        C: T.Tensor((128, 128), T.float32),
    ):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((128, 64), T.bfloat16)
            Bs = T.alloc_shared((128, 64), T.bfloat16)
            acc = T.alloc_fragment((128, 128), T.float32)
            attach({"As": As, "Bs": Bs, "acc": acc})
            T.clear(acc, annotations={T.WSID: "clear"})
            for lk in T.serial(trips, annotations={T.WSID: "lk"}):
                T.copy(A[0, lk * 64], As, annotations={T.WSID: "copy_A"})
                T.copy(B[0, lk * 64], Bs, annotations={T.WSID: "copy_B"})
                T.gemm(As, Bs, acc, transpose_B=True, annotations={T.WSID: "mma"})
            T.copy(acc, C, annotations={T.WSID: "store"})

    return kernel


def nested(T: Any, attach: Attach, outer: int = 3, inner: int = 4) -> Any:
    @T.prim_func
    def kernel(
        x: T.Tensor((2048, 64), T.float16),
        y: T.Tensor((2048, 64), T.float16),
        z: T.Tensor((512, 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            S = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            g = T.alloc_fragment((64, 64), T.float16)
            attach({"S": S, "f": f})
            for lw in T.serial(outer, annotations={T.WSID: "lw"}):
                for lk in T.serial(inner, annotations={T.WSID: "lk"}):
                    T.copy(x[(lw * inner + lk) * 64, 0], S, annotations={T.WSID: "load"})
                    T.copy(S, f, annotations={T.WSID: "read"})
                    T.copy(f, y[(lw * inner + lk) * 64, 0], annotations={T.WSID: "keep"})
                T.copy(S, g, annotations={T.WSID: "rl"})
                T.copy(g, z[lw * 64, 0], annotations={T.WSID: "out"})

    return kernel


def two_loops(T: Any, attach: Attach, trips: int = 2) -> Any:
    @T.prim_func
    def kernel(
        x: T.Tensor((512, 64), T.float16),
        y: T.Tensor((512, 64), T.float16),
        z: T.Tensor((512, 64), T.float16),
        w: T.Tensor((512, 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            a = T.alloc_shared((64, 64), T.float16)
            c = T.alloc_shared((64, 64), T.float16)
            fa = T.alloc_fragment((64, 64), T.float16)
            fc = T.alloc_fragment((64, 64), T.float16)
            attach({"a": a, "c": c, "fa": fa})
            for l1 in T.serial(trips, annotations={T.WSID: "l1"}):
                T.copy(x[l1 * 64, 0], a, annotations={T.WSID: "ca"})
                T.copy(a, fa, annotations={T.WSID: "ra"})
                T.copy(fa, w[l1 * 64, 0], annotations={T.WSID: "outa"})
            for l2 in T.serial(trips, annotations={T.WSID: "l2"}):
                T.copy(y[l2 * 64, 0], c, annotations={T.WSID: "cc"})
                T.copy(c, fc, annotations={T.WSID: "rc"})
                T.copy(fc, z[l2 * 64, 0], annotations={T.WSID: "outc"})

    return kernel


def guarded(T: Any, attach: Attach, trips: int = 4, limit: int = 3) -> Any:
    @T.prim_func
    def kernel(src: T.Tensor((512, 64), T.float16), dst: T.Tensor((512, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            frag = T.alloc_fragment((64, 64), T.float16)
            attach({"As": As, "frag": frag})
            for lk in T.serial(trips, annotations={T.WSID: "lk"}):
                if lk < limit:
                    T.copy(src[lk * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, frag, annotations={T.WSID: "cfr"})
                T.copy(frag, dst[lk * 64, 0], annotations={T.WSID: "cout"})

    return kernel


def carried(T: Any, attach: Attach, trips: int = 4) -> Any:
    """An accumulator in shared memory: made by one role, read by another."""

    @T.prim_func
    def kernel(x: T.Tensor((512, 64), T.float16), z: T.Tensor((512, 64), T.float16)):
        with T.Kernel(1, threads=384) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            total = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            attach({"As": As, "total": total, "f": f})
            for lk in T.serial(trips, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], As, annotations={T.WSID: "cin"})
                with T.ws_op("add"):
                    for i, j in T.Parallel(64, 64):
                        total[i, j] = total[i, j] + As[i, j]
                T.copy(total, f, annotations={T.WSID: "cfr"})
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "cout"})

    return kernel
