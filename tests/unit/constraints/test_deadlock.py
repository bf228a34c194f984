"""Deadlock freedom: the rulebook's W7, its over-rejection and its hole, and the lemma's claim."""

from __future__ import annotations

import itertools

import pytest

import explorer.lang as T
from explorer.constraints import Report, check_parts
from explorer.constraints.hang import run
from explorer.ir.nodes import Kernel
from explorer.machine import H200
from explorer.schedule.extensions import Extensions
from explorer.schedule.plan import open_plan
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.unit.constraints.kernels import A, Body, C, R, W, rules

P = WSRole("P", warps_lo=0, warps_hi=4)
Q = WSRole("C", warps_lo=4, warps_hi=8)


def two_rings(extent: int) -> Kernel:
    @T.prim_func
    def rings(
        x: T.Tensor((64 * max(extent, 1), 64), T.float16),
        y: T.Tensor((64 * max(extent, 1), 64), T.float16),
        z: T.Tensor((64 * max(extent, 1), 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            a = T.alloc_shared((64, 64), T.float16)
            c = T.alloc_shared((64, 64), T.float16)
            fa = T.alloc_fragment((64, 64), T.float16)
            fc = T.alloc_fragment((64, 64), T.float16)
            for lk in T.Pipelined(extent, num_stages=16, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], a, annotations={T.WSID: "ca"})
                T.copy(y[lk * 64, 0], c, annotations={T.WSID: "cc"})
                T.copy(a, fa, annotations={T.WSID: "ra"})
                T.copy(c, fc, annotations={T.WSID: "rc"})
                T.copy(fc, z[lk * 64, 0], annotations={T.WSID: "out"})

    return rings


def staged(depth: int, stage: int) -> WSSchedule:
    return WSSchedule(
        8,
        [P, Q],
        [WSPipeline("a", ["a"], depth), WSPipeline("c", ["c"], depth)],
        [
            WSScope(
                "lk",
                {
                    "P": [A("a"), "ca", C("a"), A("c", stage), "cc", C("c", stage)],
                    "C": [W("a"), "ra", R("a"), W("c"), "rc", R("c"), "out"],
                },
            ),
            WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
        ],
    )


def check(kernel: Kernel, schedule: WSSchedule) -> Report:
    return check_parts(kernel, schedule, Extensions(), H200)


HOLE = [(1, 2, 3), (1, 3, 8), (2, 3, 4), (2, 5, 16), (3, 4, 5), (4, 5, 16)]


@pytest.mark.parametrize(("depth", "stage", "extent"), HOLE)
def test_stage_above_the_depth_hangs(depth: int, stage: int, extent: int) -> None:
    """Accepted by TileLang 0.1.15; every one hangs, from extent depth + 2 on."""
    found = check(two_rings(extent), staged(depth, stage))
    assert rules(found) == {"deadlock"}
    message = found.violations[0].message
    assert f"hangs at extent lk {depth + 2}: " in message
    assert "P at the empty barrier of a" in message and "C at the full barrier of c" in message


def test_the_hole_names_slots_and_parities() -> None:
    """d=2, s=3: extent 4 blocks P at a-empty slot 1 and C at c-full slot 0."""
    message = check(two_rings(4), staged(2, 3)).violations[0].message
    assert "P at the empty barrier of a, slot 1, parity 0" in message
    assert "C at the full barrier of c, slot 0, parity 0" in message


@pytest.mark.parametrize(("depth", "stage", "extent"), HOLE)
def test_a_loop_too_short_to_hang_is_legal(depth: int, stage: int, extent: int) -> None:
    assert check(two_rings(depth + 1), staged(depth, stage)).ok
    assert check(two_rings(extent), staged(depth, depth)).ok


def test_the_rule_agrees_with_the_runs_for_every_extent() -> None:
    """The inequality of the periodic graph holds exactly where no extent up to 24 hangs."""
    for depth, stage in itertools.product(range(1, 5), range(0, 7)):
        schedule = staged(depth, stage)
        plan, env = open_plan(two_rings(24), schedule, Extensions())
        hangs = [extent for extent in range(25) if run(plan, env, {"lk": extent})]
        assert check(two_rings(24), schedule).ok == (not hangs)
        assert not hangs or hangs == list(range(depth + 2, 25))


def crossed(consumer: Body) -> WSSchedule:
    return WSSchedule(
        8,
        [P, Q],
        [WSPipeline("a", ["a"], 4), WSPipeline("c", ["c"], 4)],
        [
            WSScope(
                "lk", {"P": [A("a"), "ca", C("a"), W("c"), "rc", R("c"), "out"], "C": consumer}
            ),
            WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
        ],
    )


def test_roles_that_wait_for_each_other() -> None:
    """W7: legal where one commits before it waits; refused at any depth where both wait first."""
    legal: Body = [W("a"), "ra", A("c"), "cc", C("c"), R("a")]
    assert check(two_rings(8), crossed(legal)).ok
    plan = crossed(legal)
    both_wait = WSSchedule(
        8,
        [P, Q],
        plan.pipelines,
        [
            WSScope("lk", {"P": [W("c"), "rc", R("c"), "out", A("a"), "ca", C("a")], "C": legal}),
            plan.scopes[1],
        ],
    )
    found = check(two_rings(8), both_wait)
    assert rules(found) == {"deadlock"}


def two_loops(extent: int) -> Kernel:
    @T.prim_func
    def loops(
        x: T.Tensor((64 * max(extent, 1), 64), T.float16),
        y: T.Tensor((64 * max(extent, 1), 64), T.float16),
        z: T.Tensor((64 * max(extent, 1), 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            a = T.alloc_shared((64, 64), T.float16)
            c = T.alloc_shared((64, 64), T.float16)
            fa = T.alloc_fragment((64, 64), T.float16)
            fc = T.alloc_fragment((64, 64), T.float16)
            for l1 in T.serial(extent, annotations={T.WSID: "l1"}):
                T.copy(x[l1 * 64, 0], a, annotations={T.WSID: "ca"})
                T.copy(a, fa, annotations={T.WSID: "ra"})
            for l2 in T.serial(extent, annotations={T.WSID: "l2"}):
                T.copy(y[l2 * 64, 0], c, annotations={T.WSID: "cc"})
                T.copy(c, fc, annotations={T.WSID: "rc"})
                T.copy(fc, z[l2 * 64, 0], annotations={T.WSID: "out"})

    return loops


def reversed_loops(depth: int, order: list[str]) -> WSSchedule:
    return WSSchedule(
        8,
        [P, Q],
        [WSPipeline("a", ["a"], depth), WSPipeline("c", ["c"], depth)],
        [
            WSScope("l1", {"P": [A("a"), "ca", C("a")], "C": [W("a"), "ra", R("a")]}),
            WSScope("l2", {"P": [A("c"), "cc", C("c")], "C": [W("c"), "rc", R("c"), "out"]}),
            WSScope(WSScope.ROOT, {"P": ["l1", "l2"], "C": order}),
        ],
    )


def test_loops_in_one_order_are_legal() -> None:
    assert check(two_loops(16), reversed_loops(2, ["l1", "l2"])).ok


def test_loops_in_reversed_order_hang_once_longer_than_the_ring() -> None:
    """Extent 2 at depth 2 completes, though TileLang 0.1.15 rejects it; extent 3 hangs."""
    schedule = reversed_loops(2, ["l2", "l1"])
    assert check(two_loops(2), schedule).ok
    found = check(two_loops(3), schedule)
    assert rules(found) == {"deadlock"}
    assert "hangs at extent l1 3, l2 3" in found.violations[0].message


def test_huge_extents_and_depths_answer_at_once() -> None:
    assert check(two_rings(10**9), staged(2, 2)).ok
    assert rules(check(two_rings(10**9), staged(2, 3))) == {"deadlock"}
