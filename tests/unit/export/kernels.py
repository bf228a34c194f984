"""A GEMM kernel built from IR nodes, and schedules for it, without the surface language."""

from __future__ import annotations

from attrs import evolve

from explorer.expr import Expr, Param, Var, ceildiv, const
from explorer.ir.dtypes import dtype
from explorer.ir.nodes import Buffer, Copy, Fill, Gemm, Kernel, Literal, Loop, Region, whole
from explorer.machine import Scope
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import Extensions, StagedStore
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope, WSSync

M, N, K = 512, 1024, 512
PLAIN = Extensions()


def _tensor(name: str, *shape: int) -> Buffer:
    return Buffer(name, tuple(map(const, shape)), dtype("bfloat16"), Scope.GLOBAL)


def _tile(buffer: Buffer, tile: Buffer, *index: Expr) -> Region:
    start = tuple(i * size for i, size in zip(index, tile.shape, strict=True))
    return Region(buffer, start, tile.shape)


def gemm(transpose_a: bool = False, transpose_b: bool = True) -> Kernel:
    """C = op(A) op(B) in bfloat16, tiles block_M x block_N x block_K open."""
    bm, bn, bk = Param("block_M"), Param("block_N"), Param("block_K")
    bx, by, k = Var("bx"), Var("by"), Var("k")
    a = _tensor("A", K, M) if transpose_a else _tensor("A", M, K)
    b = _tensor("B", N, K) if transpose_b else _tensor("B", K, N)
    c = _tensor("C", M, N)
    kind = dtype("bfloat16")
    a_shared = Buffer("A_shared", (bk, bm) if transpose_a else (bm, bk), kind, Scope.SHARED)
    b_shared = Buffer("B_shared", (bn, bk) if transpose_b else (bk, bn), kind, Scope.SHARED)
    acc = Buffer("acc", (bm, bn), dtype("float32"), Scope.FRAGMENT)
    a_index = (k, by) if transpose_a else (by, k)
    b_index = (bx, k) if transpose_b else (k, bx)
    loop = Loop(
        id="loop_k",
        var="k",
        start=const(0),
        extent=ceildiv(K, bk),
        kind="pipelined",
        num_stages=3,
        body=(
            Copy("copy_A", _tile(a, a_shared, *a_index), whole(a_shared)),
            Copy("copy_B", _tile(b, b_shared, *b_index), whole(b_shared)),
            Gemm("mma", whole(a_shared), whole(b_shared), whole(acc), transpose_a, transpose_b),
        ),
    )
    return Kernel(
        name="gemm",
        tensors=(a, b, c),
        grid=(("bx", ceildiv(N, bn)), ("by", ceildiv(M, bm))),
        threads=const(128),
        buffers=(a_shared, b_shared, acc),
        body=(
            Fill("clear_acc", whole(acc), Literal(0)),
            loop,
            Copy("store", whole(acc), _tile(c, acc, by, bx)),
        ),
        params=("block_M", "block_N", "block_K"),
    )


def producer_consumer(
    kernel: Kernel,
    depth: int = 3,
    warps: int = 8,
    staged: bool = False,
    tile: tuple[int, int, int] = (128, 128, 64),
    machine: str = "h200",
    extensions: Extensions = PLAIN,
) -> Schedule:
    """One bulk-copy producer warp, one consumer role of `warps`, a ring of `depth` slots."""
    tail = ["store_stage", "store"] if staged else ["store"]
    ws = WSSchedule(
        num_warps=4 + warps,
        roles=[
            WSRole("producer", warps_lo=0, warps_hi=1, max_nreg=40),
            WSRole("consumer", warps_lo=4, warps_hi=4 + warps, max_nreg=232),
        ],
        pipelines=[WSPipeline("A_B", ["A_shared", "B_shared"], depth)],
        scopes=[
            WSScope(
                WSScope.ROOT,
                {"producer": ["loop_k"], "consumer": ["clear_acc", "loop_k", *tail]},
            ),
            WSScope(
                "loop_k",
                {
                    "producer": [
                        WSSync.producer_acquire("A_B"),
                        "copy_A",
                        "copy_B",
                        WSSync.producer_commit("A_B"),
                    ],
                    "consumer": [
                        WSSync.consumer_wait("A_B"),
                        "mma",
                        WSSync.consumer_release("A_B"),
                    ],
                },
            ),
        ],
    )
    if staged:
        extensions = evolve(extensions, staged=(StagedStore("store", "C_staging"),))
    sizes = dict(zip(kernel.params, tile, strict=True))
    return Schedule(bind(kernel, machine, sizes), ws, extensions)
