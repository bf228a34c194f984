"""Gemms into tensor memory: the matrix unit arrives when they complete."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

import explorer.lang as T
from explorer.codegen import emit_c
from explorer.codegen.cuda import generate
from explorer.constraints import check_parts
from explorer.errors import ExplorerError
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import B200, CPU, H200
from explorer.passes import materialize
from explorer.program.counts import SideWork, arrivals, side_signal
from explorer.program.nodes import Program, Signal, Step
from explorer.program.printer import show_program
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished, Verdict
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import Extensions, Launch, MatrixLag
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.support.programs import acquire, commit, edit_role, release, wait


def tensor_gemm(tiles: int = 2, trips: int = 5) -> Kernel:
    """Loads, gemms into tensor memory, and an epilogue through a fragment."""

    @T.prim_func
    def tensor(
        a: T.Tensor((16 * tiles, 16 * trips), T.float32),
        b: T.Tensor((16 * trips, 16), T.float32),
        c: T.Tensor((16 * tiles, 16), T.float32),
    ):
        with T.Kernel(tiles, threads=256) as bx:
            As = T.alloc_shared((16, 16), T.float32)
            Bs = T.alloc_shared((16, 16), T.float32)
            acc = T.alloc_tmem((16, 16), T.float32)
            f = T.alloc_fragment((16, 16), T.float32)
            for k in T.Pipelined(trips, num_stages=4, annotations={T.WSID: "k"}):
                T.copy(a[bx * 16, k * 16], As, annotations={T.WSID: "copy_A"})
                T.copy(b[k * 16, 0], Bs, annotations={T.WSID: "copy_B"})
                T.gemm(As, Bs, acc, clear_accum=k == 0, annotations={T.WSID: "mma"})
            T.copy(acc, f, annotations={T.WSID: "take"})
            T.copy(f, c[bx * 16, 0], annotations={T.WSID: "store"})

    return tensor


def tensor_schedule(depth: int = 2, accumulators: int = 2) -> WSSchedule:
    return WSSchedule(
        8,
        [
            WSRole("L", warps_lo=0, warps_hi=1),
            WSRole("M", warps_lo=1, warps_hi=2),
            WSRole("E", warps_lo=4, warps_hi=8),
        ],
        [WSPipeline("ab", ["As", "Bs"], depth), WSPipeline("acc", ["acc"], accumulators)],
        [
            WSScope(
                "k",
                {
                    "L": [acquire("ab"), "copy_A", "copy_B", commit("ab")],
                    "M": [wait("ab"), "mma", release("ab")],
                },
            ),
            WSScope(
                WSScope.ROOT,
                {
                    "L": ["k"],
                    "M": [acquire("acc"), "k", commit("acc")],
                    "E": [wait("acc"), "take", release("acc"), "store"],
                },
            ),
        ],
    )


def tensor_program(kernel: Kernel) -> Program:
    persistent = Extensions(launch=Launch(1))
    schedule = Schedule(bind(kernel, B200.name, {}), tensor_schedule(), persistent)
    return materialize(kernel, schedule, B200)


def inputs(kernel: Kernel) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        t.name: random.standard_normal(tuple(map(int, t.shape))).astype(np.float32)
        for t in kernel.tensors[:2]
    }


# Work of a side of 1 warp unless said, and its arrive count.
TABLE = [
    ("bulk copies alone", True, SideWork(bulk=True, carried=True), 1, 1),
    ("bulk copies of 4 warps", True, SideWork(bulk=True, carried=True), 4, 1),
    ("a guarded bulk copy", True, SideWork(bulk=True), 1, 32),
    ("a fill and a bulk copy", True, SideWork(bulk=True, threads=True, carried=True), 1, 32),
    ("cp.async alone", True, SideWork(deferred=True), 1, 32),
    ("a fill and cp.async", True, SideWork(deferred=True, threads=True), 1, 64),
    ("cp.async and a bulk copy", True, SideWork(bulk=True, deferred=True, carried=True), 1, 64),
    ("element-wise, 4 warps", True, SideWork(threads=True), 4, 128),
    ("nothing", True, SideWork(), 1, 32),
    ("a tensor-memory gemm", False, SideWork(matrix=True), 1, 1),
    ("a tensor-memory gemm commits", True, SideWork(matrix=True), 1, 1),
    ("a gemm and the threads", False, SideWork(matrix=True, threads=True), 1, 33),
    ("a gemm and cp.async", True, SideWork(matrix=True, deferred=True), 1, 33),
    ("a gemm and a bulk copy", True, SideWork(matrix=True, bulk=True, carried=True), 1, 33),
    ("fragment reads, 4 warps", False, SideWork(threads=True), 4, 128),
    ("register accumulators, 8 warps", False, SideWork(threads=True), 8, 256),
]


@pytest.mark.parametrize(
    ("full", "work", "warps", "count"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_arrive_counts_by_the_work_of_a_side(
    full: bool, work: SideWork, warps: int, count: int
) -> None:
    assert arrivals(side_signal("p", full, work), warps * 32) == count


def test_counts_of_a_tensor_memory_gemm() -> None:
    program = tensor_program(tensor_gemm())
    counts = {b.pipeline: (b.full_count, b.empty_count) for b in program.barriers}
    assert counts == {"ab": (1, 1), "acc": (1, 128)}
    assert "arrive ab.empty x1 when gemms complete" in show_program(program)


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("trips", [1, 2, 5])
def test_slots_are_freed_when_the_gemm_has_completed(tiles: int, trips: int) -> None:
    kernel = tensor_gemm(tiles, trips)
    assert check_parts(kernel, tensor_schedule(), Extensions(launch=Launch(1)), B200).ok
    program, data = tensor_program(kernel), inputs(kernel)
    expected = run(kernel, data)["c"]
    for seed in range(6):
        verdict = simulate(program, data, seed)
        assert isinstance(verdict, Finished), str(verdict)
        np.testing.assert_allclose(verdict.output("c"), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pipeline", ["ab", "acc"])
def test_an_arrival_that_does_not_wait_for_the_gemm_is_found(pipeline: str) -> None:
    kernel = tensor_gemm()

    def at_once(step: Step) -> list[Step]:
        mine = isinstance(step, Signal) and step.pipeline == pipeline
        return [evolve(step, matrix=False)] if mine else [step]

    program = edit_role(tensor_program(kernel), "M", at_once)
    found: list[Verdict] = [simulate(program, inputs(kernel), seed) for seed in range(20)]
    assert not all(isinstance(verdict, Finished) for verdict in found)


def test_a_lag_is_refused() -> None:
    kernel, late = tensor_gemm(), Extensions(lags=(MatrixLag("mma", 1),))
    found = check_parts(kernel, tensor_schedule(), late, B200)
    assert "tensor-memory" in {violation.rule for violation in found.violations}


def test_no_emitter_prints_it() -> None:
    program = tensor_program(tensor_gemm())
    with pytest.raises(ExplorerError, match="tensor memory"):
        generate(program, H200)
    with pytest.raises(ExplorerError, match="matrix arrivals"):
        emit_c(program, CPU)
