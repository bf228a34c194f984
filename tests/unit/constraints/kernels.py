"""Small kernels and schedules that the rule tests vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import explorer.lang as T
from explorer.constraints import Report, check_parts
from explorer.ir.nodes import Kernel
from explorer.machine import H200, Machine
from explorer.schedule.extensions import Extensions
from explorer.schedule.ws import WSInstr, WSPipeline, WSRole, WSSchedule, WSScope, WSSync

A, C, W, R = (
    WSSync.producer_acquire,
    WSSync.producer_commit,
    WSSync.consumer_wait,
    WSSync.consumer_release,
)
Body = Sequence[WSInstr | str]


def copy_pipeline(trips: int = 4, num_stages: int = 8) -> Kernel:
    """The rulebook's base kernel: a ring buffer filled from global memory and drained to it."""

    @T.prim_func
    def base(
        src: T.Tensor((64 * max(trips, 1), 64), T.float16),
        dst: T.Tensor((64 * max(trips, 1), 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            frag = T.alloc_fragment((64, 64), T.float16)
            for lk in T.Pipelined(trips, num_stages=num_stages, annotations={T.WSID: "lk"}):
                T.copy(src[lk * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, frag, annotations={T.WSID: "cfr"})
                T.copy(frag, dst[lk * 64, 0], annotations={T.WSID: "cout"})

    return base


def gemm_loop(trips: int = 4) -> Kernel:
    """A 64 x 64 x 64 gemm a trip, its operands in two shared buffers."""

    @T.prim_func
    def gemm(
        a: T.Tensor((64, 64 * max(trips, 1)), T.bfloat16),
        b: T.Tensor((64 * max(trips, 1), 64), T.bfloat16),
        c: T.Tensor((64, 64), T.float32),
    ):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.bfloat16)
            Bs = T.alloc_shared((64, 64), T.bfloat16)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.clear(acc, annotations={T.WSID: "clear"})
            for lk in T.Pipelined(trips, num_stages=8, annotations={T.WSID: "lk"}):
                T.copy(a[0, lk * 64], As, annotations={T.WSID: "copy_A"})
                T.copy(b[lk * 64, 0], Bs, annotations={T.WSID: "copy_B"})
                T.gemm(As, Bs, acc, annotations={T.WSID: "mma"})
            T.copy(acc, c, annotations={T.WSID: "store"})

    return gemm


PRODUCER: Body = [A("buf"), "cin", C("buf")]
CONSUMER: Body = [W("buf"), "cfr", R("buf"), "cout"]
ROOT: Mapping[str, Body] = {"P": ["lk"], "C": ["lk"]}
ROLES = (
    WSRole("P", warps_lo=0, warps_hi=1, max_nreg=40),
    WSRole("C", warps_lo=4, warps_hi=8, max_nreg=224),
)


def base_schedule(
    *,
    num_warps: int = 8,
    roles: Sequence[WSRole] = ROLES,
    pipelines: Sequence[WSPipeline] = (WSPipeline("buf", ["As"], 2),),
    producer: Body = PRODUCER,
    consumer: Body = CONSUMER,
    root: Mapping[str, Body] = ROOT,
    scopes: Sequence[WSScope] | None = None,
) -> WSSchedule:
    """BASE of the rulebook, with parts replaced."""
    if scopes is None:
        scopes = [
            WSScope("lk", {"P": producer, "C": consumer}),
            WSScope(WSScope.ROOT, root),
        ]
    return WSSchedule(num_warps, roles, pipelines, scopes)


def report(
    schedule: WSSchedule,
    kernel: Kernel | None = None,
    extensions: Extensions = Extensions(),
    machine: Machine = H200,
) -> Report:
    """The checker's report on a schedule of the base kernel."""
    return check_parts(kernel or copy_pipeline(), schedule, extensions, machine)


def rules(found: Report) -> set[str]:
    """Ids of the broken rules."""
    return {violation.rule for violation in found.violations}
