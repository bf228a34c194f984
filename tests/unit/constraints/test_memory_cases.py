"""Field cases of memory, C15 to C23, through the rules: kernels, schedules, and their numbers."""

from __future__ import annotations

import pytest
from attrs import evolve

import explorer.lang as T
from explorer.constraints import Violation, check_parts
from explorer.expr import const
from explorer.ir.dtypes import dtype
from explorer.ir.nodes import Buffer, Copy, Fill, Kernel, Literal, whole
from explorer.machine import B200, H200, Machine, MemoryScope, Scope
from explorer.memory.packing import separate_columns
from explorer.passes.memory import place_buffers
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import Extensions
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.support.programs import acquire, commit, relay_kernel, release, wait


def capacity(found: tuple[Violation, ...], rule: str = "smem-capacity") -> list[str]:
    return [str(each) for each in found if each.rule == rule]


def with_capacity(machine: Machine, capacity_bytes: int) -> Machine:
    memory = machine.memory(Scope.SHARED)
    assert memory is not None
    smaller = MemoryScope(Scope.SHARED, capacity_bytes, memory.alignment_bytes)
    others = tuple(m for m in machine.memories if m.scope != Scope.SHARED)
    return evolve(machine, memories=(smaller, *others))


# ---------------------------------------------------------------- C15


def dequantised() -> Kernel:
    """X and W of 8 bits are pipelined, the bf16 copy of W is not."""

    @T.prim_func
    def dequantised(
        X: T.Tensor((64, 512), T.bfloat16),
        W: T.Tensor((256, 512), "float8_e4m3"),
        C: T.Tensor((64, 256), T.float32),
    ):
        with T.Kernel(1, threads=256) as bx:
            Xs = T.alloc_shared((64, 128), T.bfloat16)
            Ws = T.alloc_shared((256, 128), "float8_e4m3")
            Wb = T.alloc_shared((256, 128), T.bfloat16)
            acc = T.alloc_fragment((64, 256), T.float32)
            T.clear(acc, annotations={T.WSID: "clear"})
            for k in T.Pipelined(4, num_stages=4, annotations={T.WSID: "loop"}):
                T.copy(X[0, k * 128], Xs, annotations={T.WSID: "cx"})
                T.copy(W[0, k * 128], Ws, annotations={T.WSID: "cw"})
                T.copy(Ws, Wb, annotations={T.WSID: "widen"})
                T.gemm(Xs, Wb, acc, transpose_B=True, annotations={T.WSID: "mma"})
            T.copy(acc, C, annotations={T.WSID: "out"})

    return dequantised


@pytest.mark.parametrize(("depth", "total", "fits"), [(4, 262144, False), (3, 212992, True)])
def test_c15_a_dequantised_copy_counts_once(depth: int, total: int, fits: bool) -> None:
    ws = WSSchedule(
        8,
        [WSRole("P", warps_lo=0, warps_hi=1), WSRole("C", warps_lo=4, warps_hi=8)],
        [WSPipeline("xw", ["Xs", "Ws"], depth)],
        [
            WSScope(WSScope.ROOT, {"P": ["loop"], "C": ["clear", "loop", "out"]}),
            WSScope(
                "loop",
                {
                    "P": [acquire("xw"), "cx", "cw", commit("xw")],
                    "C": [wait("xw"), "widen", "mma", release("xw")],
                },
            ),
        ],
    )
    kernel = dequantised()
    found = capacity(check_parts(kernel, ws, Extensions(), H200).violations)
    assert bool(found) == (not fits)
    if not fits:
        assert f"Xs {depth} x 16384 B + Ws {depth} x 32768 B + Wb 1 x 65536 B" in found[0]
        assert f"= {total + 16 * depth} B > 232448 B; depth of xw 3 fits" in found[0]
        return
    placement = place_buffers(kernel, Schedule(bind(kernel, "h200", {}), ws))
    assert placement.footprint(Scope.SHARED).total_bytes == total + 16 * depth


# ---------------------------------------------------------------- C16


def ring_of(sizes: dict[str, int], depth: int) -> tuple[Kernel, WSSchedule]:
    """Buffers of so many bytes in one ring."""
    kernel = relay_kernel((4,), ops=len(sizes), width=1)
    buffers = tuple(
        Buffer(name, (const(1), const(size)), dtype("uint8"), Scope.SHARED)
        for name, size in sizes.items()
    )
    names = [f"load_{k}" for k in range(len(sizes))], [f"use_{k}" for k in range(len(sizes))]
    ws = WSSchedule(
        8,
        [WSRole("P", warps_lo=0, warps_hi=4), WSRole("C", warps_lo=4, warps_hi=8)],
        [WSPipeline("ring", list(sizes), depth)],
        [
            WSScope(WSScope.ROOT, {"P": ["loop_0"], "C": ["loop_0"]}),
            WSScope(
                "loop_0",
                {
                    "P": [acquire("ring"), *names[0], commit("ring")],
                    "C": [wait("ring"), *names[1], release("ring")],
                },
            ),
        ],
    )
    old = {buffer.name: new for buffer, new in zip(kernel.buffers, buffers, strict=True)}
    (loop,) = kernel.body

    def changed(op: Copy) -> Copy:
        inward = op.src.buffer.scope == Scope.GLOBAL
        tile = whole(old[(op.dst if inward else op.src).buffer.name])
        return evolve(op, dst=tile) if inward else evolve(op, src=tile)

    body = tuple(changed(op) for op in loop.body)
    return evolve(kernel, buffers=buffers, body=(evolve(loop, body=body),)), ws


@pytest.mark.parametrize(("depth", "fits"), [(2, True), (3, False)])
def test_c16_padding_counts_in_every_slot(depth: int, fits: bool) -> None:
    """Unpadded, three slots of 13824 B would fit 42000 B; padded they take 43008 B."""
    kernel, ws = ring_of({"A": 4096, "B": 8192, "scales": 1536}, depth)
    small = with_capacity(H200, 42000)
    found = capacity(check_parts(kernel, ws, Extensions(), small).violations)
    assert bool(found) == (not fits)
    assert fits or f"= {43008 + 48} B > 42000 B; depth of ring 2 fits" in found[0]


@pytest.mark.parametrize(("limit", "fits"), [(232448, True), (101376, False)])
def test_c16_the_capacity_is_that_of_the_device(limit: int, fits: bool) -> None:
    kernel, ws = ring_of({"tile": 102400 - 16}, 1)
    found = capacity(check_parts(kernel, ws, Extensions(), with_capacity(H200, limit)).violations)
    assert bool(found) == (not fits)


# ---------------------------------------------------------------- C17


@pytest.mark.parametrize(("limit", "rows"), [(48 * 1024, []), (232448, [1, 2])])
def test_c17_rows_of_16384_elements(limit: int, rows: list[int]) -> None:
    legal = []
    for block_m in (1, 2, 4, 8):
        kernel, ws = ring_of({"x": 32768 * block_m, "y": 32768 * block_m}, 1)
        found = capacity(
            check_parts(kernel, ws, Extensions(), with_capacity(H200, limit)).violations
        )
        if found:
            assert f"{65536 * block_m + 16} B > {limit} B" in found[0]
        else:
            legal.append(block_m)
    assert legal == rows


# ---------------------------------------------------------------- C23


def columns_kernel(columns: tuple[int, ...]) -> tuple[Kernel, WSSchedule]:
    """Buffers of tensor memory that are all filled before any is read."""
    buffers = tuple(
        Buffer(f"t{k}", (const(128), const(count)), dtype("float32"), Scope.TMEM)
        for k, count in enumerate(columns)
    )
    fills = tuple(Fill(f"fill_{b.name}", whole(b), Literal(0.0)) for b in buffers)
    taken = tuple(evolve(b, name=f"f{k}", scope=Scope.FRAGMENT) for k, b in enumerate(buffers))
    takes = tuple(
        Copy(f"take_{b.name}", whole(b), whole(f)) for b, f in zip(buffers, taken, strict=True)
    )
    ops = (*fills, *takes)
    held = (*buffers, *taken)
    kernel = Kernel("columns", (), (("bx", const(1)),), const(128), held, ops)
    body = [op.id for op in ops]
    ws = WSSchedule(
        4, [WSRole("all", warps_lo=0, warps_hi=4)], [], [WSScope(WSScope.ROOT, {"all": body})]
    )
    return kernel, ws


@pytest.mark.parametrize(
    ("columns", "used", "allocated", "separate"),
    [
        ((384, 4, 4, 4), 396, 512, 608),
        ((384, 4, 8), 396, 512, 576),
        ((20,), 20, 32, 32),
        ((33,), 33, 64, 64),
    ],
)
def test_c23_buffers_share_one_allocation(
    columns: tuple[int, ...], used: int, allocated: int, separate: int
) -> None:
    kernel, ws = columns_kernel(columns)
    report = check_parts(kernel, ws, Extensions(), B200)
    assert capacity(report.violations, "tensor-capacity") == []
    footprint = place_buffers(kernel, Schedule(bind(kernel, "b200", {}), ws), B200).footprint(
        Scope.TMEM
    )
    assert footprint.proven
    # A column of all lanes is 512 B.
    assert (footprint.total_bytes, footprint.allocated_bytes) == (used * 512, allocated * 512)
    memory = B200.tensor_memory
    assert memory is not None
    assert separate_columns(columns, memory).__index__() == separate


def test_c23_too_many_columns_are_refused_with_their_sum() -> None:
    kernel, ws = columns_kernel((256, 256, 4))
    (found,) = capacity(check_parts(kernel, ws, Extensions(), B200).violations, "tensor-capacity")
    assert "t0 1 x 256 + t1 1 x 256 + t2 1 x 4 = 516 columns of tensor memory > 512" in found


def test_tensor_memory_has_128_lanes() -> None:
    kernel, ws = columns_kernel((4,))
    tall = evolve(kernel.buffers[0], shape=(const(129), const(4)))
    fill = Fill("fill_t0", whole(tall), Literal(0.0))
    kernel = evolve(kernel, buffers=(tall,), body=(fill,))
    ws = evolve(ws, scopes=(WSScope(WSScope.ROOT, {"all": ["fill_t0"]}),))
    (found,) = capacity(check_parts(kernel, ws, Extensions(), B200).violations, "tensor-capacity")
    assert "129 rows, tensor memory has 128 lanes" in found
