"""Kernels and schedules built by hand, for the tests of passes and programs.

Everything here is plain IR: no surface language, no derivation, so that a failure of those cannot
hide one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import evolve

from explorer.expr import Expr, IntLike, Param, Var, ceildiv, const
from explorer.ir.dtypes import dtype
from explorer.ir.interpreter import run
from explorer.ir.nodes import Buffer, Copy, Fill, Gemm, Kernel, Literal, Loop, Region, Stmt, whole
from explorer.machine import CPU, Machine, Scope
from explorer.passes import materialize
from explorer.program.nodes import For, Program, Repeat, Step, When
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Route,
    Side,
    SideMode,
    Split,
)
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope, WSSync

acquire, commit = WSSync.producer_acquire, WSSync.producer_commit
wait, release = WSSync.consumer_wait, WSSync.consumer_release
F32 = dtype("float32")


def exprs(*values: IntLike) -> tuple[Expr, ...]:
    return tuple(const(value) for value in values)


def region(buffer: Buffer, *box: tuple[IntLike, IntLike]) -> Region:
    return Region(buffer, exprs(*(start for start, _ in box)), exprs(*(size for _, size in box)))


def gemm_kernel(m: int, n: int, k: int) -> Kernel:
    """C = A B with open Params for the tile; ops clear, copy_A, copy_B, mma, store."""
    bm, bn, bk = Param("block_M"), Param("block_N"), Param("block_K")
    a = Buffer("A", exprs(m, k), F32, Scope.GLOBAL)
    b = Buffer("B", exprs(k, n), F32, Scope.GLOBAL)
    c = Buffer("C", exprs(m, n), F32, Scope.GLOBAL)
    shared_a = Buffer("A_shared", (bm, bk), F32, Scope.SHARED)
    shared_b = Buffer("B_shared", (bk, bn), F32, Scope.SHARED)
    acc = Buffer("C_local", (bm, bn), F32, Scope.FRAGMENT)
    bx, by, ko = Var("bx"), Var("by"), Var("ko")
    body: tuple[Stmt, ...] = (
        Fill("clear", whole(acc), Literal(0.0)),
        Loop(
            "loop_k",
            "ko",
            const(0),
            ceildiv(k, bk),
            "pipelined",
            3,
            (
                Copy("copy_A", region(a, (by * bm, bm), (ko * bk, bk)), whole(shared_a)),
                Copy("copy_B", region(b, (ko * bk, bk), (bx * bn, bn)), whole(shared_b)),
                Gemm("mma", whole(shared_a), whole(shared_b), whole(acc), False, False),
            ),
        ),
        Copy("store", whole(acc), region(c, (by * bm, bm), (bx * bn, bn))),
    )
    grid = (("bx", ceildiv(n, bn)), ("by", ceildiv(m, bm)))
    buffers = (shared_a, shared_b, acc)
    params = ("block_M", "block_N", "block_K")
    return Kernel("gemm", (a, b, c), grid, const(128), buffers, body, params)


def gemm_schedule(
    kernel: Kernel,
    machine: Machine = CPU,
    *,
    depth: int = 2,
    consumers: int = 1,
    producer_warps: int = 1,
    consumer_warps: int = 1,
    staged: bool = False,
    extensions: Extensions = Extensions(),
    tile: tuple[int, int, int] = (4, 4, 2),
) -> Schedule:
    """Producer P and consumers C (or C0, C1, ... on a shared side) around ring `ab`."""
    names = ["C"] if consumers == 1 else [f"C{i}" for i in range(consumers)]
    group = machine.warps_per_group
    roles = [WSRole("P", warps_lo=0, warps_hi=producer_warps)]
    low = -(-producer_warps // group) * group
    for name in names:
        roles.append(WSRole(name, warps_lo=low, warps_hi=low + consumer_warps))
        low += consumer_warps
    store = ["store_stage", "store"] if staged else ["store"]
    root = {"P": ["loop_k"], **{name: ["clear", "loop_k", *store] for name in names}}
    inner = {
        "P": [acquire("ab"), "copy_A", "copy_B", commit("ab")],
        **{name: [wait("ab"), "mma", release("ab")] for name in names},
    }
    ws = WSSchedule(
        low,
        roles,
        [WSPipeline("ab", ["A_shared", "B_shared"], depth)],
        [WSScope(WSScope.ROOT, root), WSScope("loop_k", inner)],
    )
    if consumers > 1:
        extensions = evolve(
            extensions,
            sides=(Side("ab", False, SideMode.SHARED, tuple(names)),),
            splits=(Split(tuple(names)),),
        )
    if machine.async_copy and not extensions.routes:
        # Tiles this small would not travel by the copy engine unless they are told to.
        routes = tuple(Route(op, CopyRoute.BULK) for op in ("copy_A", "copy_B"))
        extensions = evolve(extensions, routes=routes)
    params = dict(zip(("block_M", "block_N", "block_K"), tile, strict=True))
    return Schedule(bind(kernel, machine.name, params), ws, extensions)


def gemm_program(m: int, n: int, k: int, machine: Machine = CPU, **options: Any) -> Program:
    kernel = gemm_kernel(m, n, k)
    return materialize(kernel, gemm_schedule(kernel, machine, **options), machine)


def gemm_inputs(m: int, n: int, k: int) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(m * 10007 + n * 101 + k)
    return {
        "A": random.standard_normal((m, k)).astype(np.float32),
        "B": random.standard_normal((k, n)).astype(np.float32),
    }


def meaning(kernel: Kernel, sizes: Mapping[str, int], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What the kernel itself computes."""
    return run(kernel.at(**sizes), inputs)


def relay_kernel(extents: tuple[IntLike, ...], ops: int = 1, width: int = 2) -> Kernel:
    """Loops of `extents` (loop_0 outermost) around `ops` relays through shared buffers.

    Relay j is load_j: S_j <- X_j[n], then use_j: Z_j[n] <- S_j, n the linear iteration.
    """
    rows = 1
    for extent in extents:
        rows *= extent if isinstance(extent, int) else 8
    names = [f"i{level}" for level in range(len(extents))]
    at: Expr = const(0)
    for name, extent in zip(names, extents, strict=True):
        at = at * extent + Var(name)
    tensors: list[Buffer] = []
    shared: list[Buffer] = []
    body: tuple[Stmt, ...] = ()
    for j in range(ops):
        x = Buffer(f"X_{j}", exprs(rows, width), F32, Scope.GLOBAL)
        z = Buffer(f"Z_{j}", exprs(rows, width), F32, Scope.GLOBAL)
        s = Buffer(f"S_{j}", exprs(1, width), F32, Scope.SHARED)
        tensors += [x, z]
        shared.append(s)
        body += (Copy(f"load_{j}", region(x, (at, 1), (0, width)), whole(s)),)
        body += (Copy(f"use_{j}", whole(s), region(z, (at, 1), (0, width))),)
    for level in reversed(range(len(extents))):
        extent = const(extents[level])
        body = (Loop(f"loop_{level}", names[level], const(0), extent, "serial", 0, body),)
    return Kernel("relay", tuple(tensors), (("bx", const(1)),), const(64), tuple(shared), body)


def relay_inputs(kernel: Kernel) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(7)
    return {
        t.name: random.standard_normal(tuple(map(int, t.shape))).astype(np.float32)
        for t in kernel.tensors
        if t.name.startswith("X")
    }


def program_of(
    kernel: Kernel,
    roles: Mapping[str, tuple[int, int]],
    pipelines: Mapping[str, tuple[list[str], int]],
    scopes: Mapping[str, Mapping[str, list[Any]]],
    machine: Machine = CPU,
    extensions: Extensions = Extensions(),
    sizes: Mapping[str, int] | None = None,
) -> Program:
    """A program of roles (warp ranges), pipelines (buffers, depth) and scope bodies."""
    ws = WSSchedule(
        max(high for _, high in roles.values()),
        [WSRole(name, warps_lo=low, warps_hi=high) for name, (low, high) in roles.items()],
        [WSPipeline(name, buffers, depth) for name, (buffers, depth) in pipelines.items()],
        [
            WSScope(WSScope.ROOT if scope == "root" else scope, bodies)
            for scope, bodies in scopes.items()
        ],
    )
    binding = bind(kernel, machine.name, dict(sizes or {}))
    return materialize(kernel, Schedule(binding, ws, extensions), machine)


def edit_role(program: Program, role: str, edit: Callable[[Step], list[Step]]) -> Program:
    """The program with every leaf step of a role replaced by `edit(step)`."""

    def steps(body: tuple[Step, ...]) -> tuple[Step, ...]:
        result: list[Step] = []
        for step in body:
            if isinstance(step, For | When | Repeat):
                result.append(evolve(step, body=steps(step.body)))
            else:
                result += edit(step)
        return tuple(result)

    roles = tuple(
        evolve(each, body=steps(each.body)) if each.role.name == role else each
        for each in program.roles
    )
    return evolve(program, roles=roles)
