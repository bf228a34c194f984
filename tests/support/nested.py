"""Kernels with a buffer that outlives its inner loop, and with guards around ops and loops."""

from __future__ import annotations

from explorer.expr import Var, const
from explorer.ir.nodes import Buffer, Copy, If, Kernel, Loop, Stmt, whole
from explorer.machine import Scope
from tests.support.programs import F32, exprs, region


def carried_kernel(outer: int, inner: int, width: int = 2) -> Kernel:
    """loop_w: loop_k: { load: S <- X[w, k]; read: Y[w, k] <- S }; read_last: Z[w] <- S."""
    w, k = Var("w"), Var("k")
    x = Buffer("X", exprs(outer * inner, width), F32, Scope.GLOBAL)
    y = Buffer("Y", exprs(outer * inner, width), F32, Scope.GLOBAL)
    z = Buffer("Z", exprs(outer, width), F32, Scope.GLOBAL)
    s = Buffer("S", exprs(1, width), F32, Scope.SHARED)
    n = w * inner + k
    loop_k = Loop(
        "loop_k",
        "k",
        const(0),
        const(inner),
        "serial",
        0,
        (
            Copy("load", region(x, (n, 1), (0, width)), whole(s)),
            Copy("read", whole(s), region(y, (n, 1), (0, width))),
        ),
    )
    last = Copy("read_last", whole(s), region(z, (w, 1), (0, width)))
    body = (Loop("loop_w", "w", const(0), const(outer), "serial", 0, (loop_k, last)),)
    return Kernel("carried", (x, y, z), (("bx", const(1)),), const(64), (s,), body)


def guarded_kernel(tiles: int, trips: int, limit: int, loop_inside: bool) -> Kernel:
    """A tile a block: loop_k of `trips`: if k < limit: { load: S <- X[n]; use: Z[n] <- S }.

    With `loop_inside` the guarded ops stand in a loop of one trip, loop_g, of their own.
    """
    k = Var("k")
    n = Var("bx") * trips + k
    x = Buffer("X", exprs(tiles * trips, 2), F32, Scope.GLOBAL)
    z = Buffer("Z", exprs(tiles * trips, 2), F32, Scope.GLOBAL)
    s = Buffer("S", exprs(1, 2), F32, Scope.SHARED)
    ops: tuple[Stmt, ...] = (
        Copy("load", region(x, (n, 1), (0, 2)), whole(s)),
        Copy("use", whole(s), region(z, (n, 1), (0, 2))),
    )
    if loop_inside:
        ops = (Loop("loop_g", "g", const(0), const(1), "serial", 0, ops),)
    guarded = (If("guard", k < limit, ops),)
    body = (Loop("loop_k", "k", const(0), const(trips), "serial", 0, guarded),)
    return Kernel("guarded", (x, z), (("bx", const(tiles)),), const(64), (s,), body)
