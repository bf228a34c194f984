"""How long the checker takes. Limits are twice or three times the figures: CI is shared.

Asked for: 5 ms in the median for GEMM and attention, 100 ms for a proof over 4 roles and 6 rings.
Other processes only ever add to a time, so the least of several medians is compared, and the
rounds end with the first one that keeps to the figure.
"""

from __future__ import annotations

import random
import time
from statistics import median

import pytest

from explorer.constraints import FeasibleModel, check, check_parts
from explorer.constraints.deadlock import deadlock, hanging
from explorer.ir.nodes import Kernel
from explorer.machine import CPU, H200
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import Extensions
from explorer.schedule.plan import open_plan
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from explorer.space import build_space
from tests.kernels.attention import attention
from tests.kernels.gemm import gemm
from tests.unit.constraints.kernels import A, C, R, W

TILES = {"block_M": (64, 128), "block_N": (64, 128), "block_K": (32, 64)}
ASKED_MS = 5.0
ROUNDS = 20
KERNELS = {
    "gemm": gemm(4096, 4096, 4096, "bfloat16"),
    "attention": attention(1, 8, 2, 4096, 4096, 64, causal=True),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_median_check(name: str) -> None:
    kernel = KERNELS[name]
    tiles = {tile: values for tile, values in TILES.items() if tile in kernel.params}
    space = build_space(kernel, H200, tiles)
    model, rng = FeasibleModel(space), random.Random(1)
    schedules = []
    for _ in range(15):
        wish = {choice.name: rng.choice(choice.domain) for choice in space.choices}
        schedules.append(space.candidate(dict(model.project(wish).assignment)))
    assert all(check(kernel, schedule, H200).ok for schedule in schedules)
    best = float("inf")
    for _ in range(ROUNDS):
        best = min(best, median(_spent_ms(kernel, schedule) for schedule in schedules))
        if best <= ASKED_MS:
            break
    assert best <= 2 * ASKED_MS


def _spent_ms(kernel: Kernel, schedule: Schedule) -> float:
    started = time.process_time()
    check(kernel, schedule, H200)
    return (time.process_time() - started) * 1e3


def woven(depth: int, stages: tuple[int, ...] = (0, 1, 2, 0, 1, 2)) -> tuple[Kernel, WSSchedule]:
    """Four roles and six rings, each role on three of them, all in one loop."""
    import explorer.lang as T  # noqa: PLC0415

    @T.prim_func
    def loops(z: T.Tensor((64, 64), T.float32)):
        with T.Kernel(1, threads=128) as bx:
            f = T.alloc_fragment((64, 64), T.float32)
            for l in T.Pipelined(1000, num_stages=8, annotations={T.WSID: "l"}):
                T.clear(f, annotations={T.WSID: "nothing"})

    pairs = [("X", "Y"), ("Y", "Z"), ("Z", "U"), ("X", "Z"), ("Y", "U"), ("X", "U")]
    bodies: dict[str, list[object]] = {role: [] for role in "XYZU"}
    for number, (make, take) in enumerate(pairs):
        stage = stages[number]
        bodies[make] += [A(f"r{number}", stage), C(f"r{number}", stage)]
        bodies[take] += [W(f"r{number}"), R(f"r{number}")]
    bodies["X"].insert(0, "nothing")
    ws = WSSchedule(
        4,
        [WSRole(role, warps_lo=n, warps_hi=n + 1) for n, role in enumerate("XYZU")],
        [WSPipeline(f"r{number}", [], depth) for number in range(6)],
        [WSScope("l", bodies), WSScope(WSScope.ROOT, {role: ["l"] for role in "XYZU"})],
    )
    return loops, ws


@pytest.mark.parametrize(("depth", "legal"), [(4, True), (1, False)])
def test_a_proof_over_four_roles_and_six_rings(depth: int, legal: bool) -> None:
    kernel, ws = woven(depth)
    plan, env = open_plan(kernel, ws, Extensions())
    started = time.process_time()
    found = list(hanging(plan, env, CPU))
    spent = time.process_time() - started
    assert (not found) == legal
    assert spent <= 0.1 * 3
    assert check_parts(kernel, ws, Extensions(), CPU).ok == legal


def test_the_solvers_inequalities_agree_with_the_shortest_path() -> None:
    """One inequality per simple cycle, or one computation under numbers: the same answer."""
    from explorer.expr import holds  # noqa: PLC0415

    for depth in (1, 2, 3, 4):
        for stages in ((0,) * 6, (0, 1, 2, 0, 1, 2), (2, 1, 0, 0, 0, 1), (0, 0, 3, 0, 0, 0)):
            kernel, ws = woven(depth, stages)
            plan, env = open_plan(kernel, ws, Extensions())
            every = all(holds(each.holds, env) for each in deadlock(plan, CPU))
            assert every == (not list(hanging(plan, env, CPU)))
