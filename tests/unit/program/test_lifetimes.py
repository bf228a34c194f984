"""Lifetimes and handovers: which buffers may share bytes, from the steps of a program alone."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.expr import Const, Param, Var, compare, const
from explorer.ir.dtypes import dtype
from explorer.ir.nodes import Buffer, Region
from explorer.machine import CPU, H200, Machine, Scope
from explorer.memory.placement import ALWAYS, BARRIERS, Lifetime
from explorer.program.handover import after, all_after, all_before, before, exactly, least
from explorer.program.lifetimes import lifetimes, op_order
from explorer.program.nodes import Drain, Exec, For, Program, Signal, Skip, Step, Wait, When
from explorer.program.requests import requests_of
from explorer.program.sharing import Sharing, rows_of
from explorer.program.steps import executed
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixLag,
    Route,
    StagedStore,
)
from tests.support.placed import STAGING, attention_program, staged_gemm
from tests.support.programs import (
    acquire,
    commit,
    edit_role,
    gemm_program,
    program_of,
    relay_kernel,
    release,
    wait,
)


def sharing(program: Program, machine: Machine) -> dict[frozenset[str], Sharing]:
    return {frozenset((a, b)): how for a, b, how in requests_of(program, machine).sharing}


def pair(*names: str) -> frozenset[str]:
    return frozenset(names)


# ---------------------------------------------------------------- counting steps


TICK = Wait("p", True)


def is_tick(step: Step) -> bool:
    return step == TICK


def loop(start: object, stop: object, *body: Step) -> For:
    return For("i", const(start), const(stop), body)


MARK = Signal("q", True)
OPEN = Param("n")


@pytest.mark.parametrize(
    ("body", "certain", "exact"),
    [
        ((TICK, TICK), 2, 2),
        ((loop(0, 3, TICK), TICK), 4, 4),
        ((loop(2, 0, TICK),), 0, 0),
        ((loop(0, OPEN, TICK), TICK), 1, None),
        ((loop(0, OPEN, MARK), TICK), 1, 1),
        ((When(compare("<", Var("x"), 1), (TICK,)), TICK), 1, None),
    ],
)
def test_how_many_steps_a_body_makes(
    body: tuple[Step, ...], certain: int, exact: int | None
) -> None:
    assert least(body, is_tick) == certain
    assert exactly(body, is_tick) == exact


def test_steps_before_and_after_another_one() -> None:
    body = (TICK, loop(0, 3, TICK, MARK, TICK, TICK), loop(0, 2, TICK))
    mark = (1, 1)
    assert before(body, mark, is_tick) == 2
    assert after(body, mark, is_tick) == 4
    assert not all_before(body, mark, is_tick)
    assert not all_after(body, mark, is_tick)
    assert all_before(body, (2, 0), lambda step: step == MARK)
    assert all_after(body, (0,), lambda step: step == MARK)
    assert not all_before((loop(0, OPEN, TICK, MARK),), (0, 1), is_tick)  # the next iteration's


# ---------------------------------------------------------------- attention and GEMM


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
def test_two_consumers_hand_their_own_rows_over(machine: Machine) -> None:
    found = sharing(attention_program(machine, Launch(1), tokens=False), machine)
    assert found == {pair("Q_shared", STAGING): Sharing.ROWS}


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
def test_tokens_order_the_consumers(machine: Machine) -> None:
    """C0 goes first in either gemm, so that the last use of Q comes before any store."""
    found = sharing(attention_program(machine, Launch(1)), machine)
    assert found == {pair("Q_shared", STAGING): Sharing.ANY}


def test_a_release_before_the_store_hands_nothing_over() -> None:
    program = attention_program(H200, Launch(1), release_last=False)
    assert sharing(program, H200) == {}


def test_a_skipped_cycle_orders_nothing() -> None:
    program = attention_program(H200, Launch(1))
    passed = edit_role(program, "P", lambda step: [step, Skip("q", False, Const(1))])
    assert sharing(passed, H200) == {}


def test_the_ring_is_handed_over_once_all_of_it_is_read() -> None:
    found = sharing(staged_gemm(), H200)
    assert found == {
        pair("A_shared", "C_stage"): Sharing.ANY,
        pair("B_shared", "C_stage"): Sharing.ANY,
    }


def test_a_gemm_in_flight_still_reads_its_ring() -> None:
    """Without the drain nothing tells the consumer that its last gemm is done."""
    program = gemm_program(
        12,
        8,
        10,
        H200,
        depth=3,
        consumer_warps=4,
        staged=True,
        extensions=Extensions(
            lags=(MatrixLag("mma", 1),),
            routes=tuple(Route(op, CopyRoute.BULK) for op in ("copy_A", "copy_B")),
            staged=(StagedStore("store", "C_stage"),),
        ),
    )
    assert pair("A_shared", "C_stage") in sharing(program, H200)
    undrained = edit_role(program, "C", lambda s: [] if s == Drain(0) else [s])
    assert sharing(undrained, H200) == {}


def test_a_value_kept_from_tile_to_tile_is_not_shared_over() -> None:
    """Each tile reads what an earlier one left, so that no byte may be lent."""
    program = attention_program(H200, Launch(1))

    def dropped(step: Step) -> list[Step]:
        return [] if isinstance(step, Exec) and step.op.id == "copy_Q_shared" else [step]

    without_copy = edit_role(program, "P", dropped)
    assert pair("Q_shared", STAGING) not in sharing(without_copy, H200)


def two_relays(trips: int = 3) -> Program:
    """P and Q pass rows through S_0 and S_1 in every iteration, one after the other."""
    return program_of(
        relay_kernel((trips,), ops=2),
        {"P": (0, 1), "Q": (1, 2)},
        {"a": (["S_0"], 1), "b": (["S_1"], 1)},
        {
            "root": {"P": ["loop_0"], "Q": ["loop_0"]},
            "loop_0": {
                "P": [acquire("a"), "load_0", commit("a"), acquire("b"), "load_1", commit("b")],
                "Q": [wait("a"), "use_0", release("a"), wait("b"), "use_1", release("b")],
            },
        },
    )


def test_buffers_of_one_loop_may_be_loaded_ahead_of_each_other() -> None:
    assert sharing(two_relays(), CPU) == {}


def test_one_role_hands_over_inside_a_loop() -> None:
    program = program_of(
        relay_kernel((4,), ops=2),
        {"all": (0, 1)},
        {},
        {
            "root": {"all": ["loop_0"]},
            "loop_0": {"all": ["load_0", "use_0", "load_1", "use_1"]},
        },
    )
    assert sharing(program, CPU) == {pair("S_0", "S_1"): Sharing.ANY}
    crossed = program_of(
        relay_kernel((4,), ops=2),
        {"all": (0, 1)},
        {},
        {
            "root": {"all": ["loop_0"]},
            "loop_0": {"all": ["load_0", "load_1", "use_0", "use_1"]},
        },
    )
    assert sharing(crossed, CPU) == {}


# ---------------------------------------------------------------- lifetimes


def test_lifetimes_of_attention() -> None:
    program = attention_program(H200, Launch(1))
    order = op_order(program)
    times = lifetimes(program)
    assert [order.index(name) for name in ("copy_Q_shared", "gemm_S", "gemm_acc", "copy_O")] == (
        sorted(order.index(name) for name in ("copy_Q_shared", "gemm_S", "gemm_acc", "copy_O"))
    )
    assert str(times["Q_shared"]) == "copy_Q_shared .. gemm_acc"
    assert str(times[STAGING]) == "copy_O_stage .. copy_O"
    assert times["Q_shared"].end < times[STAGING].start
    assert str(ALWAYS) == "always"
    assert isinstance(times["K_shared"], Lifetime)


def test_the_order_of_ops_is_that_of_every_role() -> None:
    program = attention_program(H200, Launch(1))
    order = op_order(program)
    for role in program.roles:
        first = list(dict.fromkeys(step.op.id for step in executed(role.body)))
        assert [order.index(name) for name in first] == sorted(order.index(n) for n in first)


def test_barriers_are_held_always() -> None:
    items = requests_of(staged_gemm(), H200).items
    (barriers,) = (item for item in items if item.name == BARRIERS)
    assert barriers.lifetime == ALWAYS
    assert barriers.size_bytes == 2 * 2 * 8


@pytest.mark.parametrize(
    ("starts", "extents", "rows"),
    [
        ((0, 0), (8, 4), (0, 8)),
        ((4, 0), (4, 4), (4, 8)),
        ((2, 1), (1, 2), (2, 3)),
    ],
)
def test_rows_of_a_region(
    starts: tuple[int, ...], extents: tuple[int, ...], rows: tuple[int, int]
) -> None:
    buffer = Buffer("b", (const(8), const(4)), dtype("float32"), Scope.SHARED)
    region = Region(buffer, tuple(map(const, starts)), tuple(map(const, extents)))
    assert rows_of(region) == rows


def test_rows_that_are_not_known() -> None:
    buffer = Buffer("b", (const(8), const(4)), dtype("float32"), Scope.SHARED)
    moving = Region(buffer, (Var("i"), const(0)), (const(1), const(4)))
    assert rows_of(moving) is None
    cube = Buffer("b", (const(2), const(8), const(4)), dtype("float32"), Scope.SHARED)
    part = Region(cube, (const(0), const(2), const(0)), (const(2), const(3), const(4)))
    assert rows_of(part) is None
    plane = Region(cube, (const(1), const(2), const(0)), (const(1), const(3), const(4)))
    assert rows_of(plane) == (10, 13)
    assert evolve(plane, start=(const(0), const(0), const(0)), extent=cube.shape) is not None


def test_a_copy_lands_with_its_own_cycle() -> None:
    """With two cycles open the next signal is the older one's, and tells nothing of this copy."""
    program = staged_gemm()
    ring = pair("A_shared", "C_stage")
    assert ring in sharing(program, H200)

    def opened_twice(step: Step) -> list[Step]:
        return [step, step] if step == Wait("ab", False) else [step]

    assert ring not in sharing(edit_role(program, "P", opened_twice), H200)
