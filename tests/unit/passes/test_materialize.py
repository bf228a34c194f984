"""The passes: rulebook examples, numbers of the field cases, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.errors import ScheduleError
from explorer.expr import IntLike, Var
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import CPU, H200
from explorer.program.events import Event, parity, role_events, slot
from explorer.program.nodes import Program
from explorer.program.printer import show_events
from explorer.program.simulator import simulate, trace
from explorer.program.verdict import BadCount, Finished, Hang, Race
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixLag,
    OpStage,
    Route,
    Side,
    SideMode,
)
from tests.support.nested import carried_kernel, guarded_kernel
from tests.support.programs import (
    acquire,
    commit,
    gemm_program,
    program_of,
    relay_inputs,
    relay_kernel,
    release,
    wait,
)

SEEDS = range(8)


def assert_right(program: Program, kernel: Kernel) -> None:
    inputs = relay_inputs(kernel)
    expected = run(kernel, inputs)
    for seed in SEEDS:
        verdict = simulate(program, inputs, seed)
        assert isinstance(verdict, Finished), str(verdict)
        for name, value in expected.items():
            np.testing.assert_array_equal(verdict.output(name), value)


def two_rings(extent: IntLike, depth: int, stage: int) -> tuple[Kernel, Program]:
    """Rulebook W7's hole: P loads a at stage 0 and c at `stage`, C uses a, then c."""
    kernel = relay_kernel((extent,), ops=2)
    p = [acquire("a"), "load_0", commit("a")]
    p += [acquire("c", stage), "load_1", commit("c", stage)]
    c = [wait("a"), "use_0", release("a"), wait("c"), "use_1", release("c")]
    program = program_of(
        kernel,
        {"P": (0, 1), "C": (1, 2)},
        {"a": (["S_0"], depth), "c": (["S_1"], depth)},
        {"root": {"P": ["loop_0"], "C": ["loop_0"]}, "loop_0": {"P": p, "C": c}},
    )
    return kernel, program


def events(program: Program, role: str, pipeline: str, kind: str) -> list[Event]:
    found = role_events(program, role)
    return [event for event in found if (event.pipeline, event.kind) == (pipeline, kind)]


def numbers(found: list[Event]) -> list[tuple[int, int]]:
    return [(event.slot, event.parity) for event in found]


# ---------------------------------------------------------------- stages


def order(program: Program, role: str) -> list[str]:
    return [f"{event.kind} {event.pipeline}{event.cycle}" for event in role_events(program, role)]


def test_w8_prologue_steady_loop_and_epilogue() -> None:
    kernel, program = two_rings(4, depth=2, stage=1)
    assert order(program, "P") == [
        "acquire a0",
        "commit a0",
        *(
            f"{kind} {pipeline}"
            for i in (1, 2, 3)
            for pipeline in (f"a{i}", f"c{i - 1}")
            for kind in ("acquire", "commit")
        ),
        "acquire c3",
        "commit c3",
    ]
    first = next(role_events(program, "P"))
    assert (first.slot, first.parity) == (0, 1)
    assert numbers(events(program, "P", "c", "acquire")) == [(0, 1), (1, 1), (0, 0), (1, 0)]
    assert_right(program, kernel)


def test_w8_extent_one_folds_to_one_cycle_of_each_without_a_loop() -> None:
    kernel, program = two_rings(1, depth=2, stage=1)
    assert order(program, "P") == ["acquire a0", "commit a0", "acquire c0", "commit c0"]
    assert "for" not in "".join(type(step).__name__.lower() for step in program.roles[0].body)
    assert_right(program, kernel)


@pytest.mark.parametrize("extent", range(7))
@pytest.mark.parametrize("stage", range(4))
def test_every_iteration_runs_once_for_extents_below_and_above_the_shift(
    extent: int, stage: int
) -> None:
    kernel, program = two_rings(extent, depth=4, stage=stage)
    assert [e.cycle for e in events(program, "P", "c", "acquire")] == list(range(extent))
    if extent:
        assert_right(program, kernel)


@pytest.mark.parametrize("trips", range(6))
def test_a_run_time_extent_is_guarded_at_prologue_and_epilogue(trips: int) -> None:
    _, program = two_rings(Var("trips"), depth=4, stage=2)
    for seed in SEEDS:
        assert isinstance(trace(program, seed, {"trips": trips}), Finished)
    found = list(role_events(program, "P", scalars={"trips": trips}))
    assert len(found) == 4 * trips


@pytest.mark.parametrize(
    ("depth", "stage", "extent"),
    [(1, 2, 3), (1, 3, 8), (2, 3, 4), (2, 5, 16), (3, 4, 5), (4, 5, 16)],
)
def test_w7_a_stage_above_the_depth_hangs_from_depth_plus_two_iterations(
    depth: int, stage: int, extent: int
) -> None:
    assert isinstance(trace(two_rings(extent, depth, stage)[1]), Hang)
    assert isinstance(trace(two_rings(depth + 2, depth, stage)[1]), Hang)
    for below in range(depth + 2):
        assert isinstance(trace(two_rings(below, depth, stage)[1]), Finished)


def test_w7_the_blocked_barriers_of_the_hole() -> None:
    verdict = trace(two_rings(4, depth=2, stage=3)[1])
    assert isinstance(verdict, Hang)
    where = {each.role: (each.pipeline, each.full, each.slot) for each in verdict.blocked}
    assert where == {"P": ("a", False, 1), "C": ("c", True, 0)}


def test_w7_crossed_waits_hang_at_any_depth_and_ordered_ones_do_not() -> None:
    kernel = relay_kernel((5,), ops=2)
    forward = [acquire("x"), "load_0", commit("x")]
    back = [wait("y"), "use_1", release("y")]
    other = [wait("x"), "use_0", release("x")]
    answer = [acquire("y"), "load_1", commit("y")]

    def program(first: list[object]) -> Program:
        return program_of(
            kernel,
            {"X": (0, 1), "Y": (1, 2)},
            {"x": (["S_0"], 4), "y": (["S_1"], 4)},
            {
                "root": {"X": ["loop_0"], "Y": ["loop_0"]},
                "loop_0": {"X": first, "Y": [*other, *answer]},
            },
        )

    assert_right(program([*forward, *back]), kernel)
    assert isinstance(trace(program([*back, *forward])), Hang)


# ---------------------------------------------------------------- slots, parities, tiles


def test_c06_slots_and_parities_of_rings() -> None:
    assert [parity(n, 1, full=True) for n in range(6)] == [0, 1, 0, 1, 0, 1]
    assert [slot(n, 3) for n in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [parity(n, 3, full=True) for n in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [parity(n, 4, full=True) for n in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize(("depth", "expected"), [(1, [0, 1] * 3), (3, [0, 0, 0, 1, 1, 1])])
def test_c06_in_a_program(depth: int, expected: list[int]) -> None:
    program = gemm_program(4, 4, 12, depth=depth)
    assert [e.parity for e in events(program, "C", "ab", "wait")] == expected


@pytest.mark.parametrize("depth", [1, 3])
def test_c01_events_of_one_trip(depth: int) -> None:
    program = gemm_program(4, 4, 2, H200, depth=depth, consumer_warps=8)
    assert [str(event) for event in role_events(program, "P")] == [
        "acquire ab cycle 0 slot 0 parity 1",
        "commit ab cycle 0 slot 0 parity 0",
    ]
    assert [str(event) for event in role_events(program, "C")] == [
        "wait ab cycle 0 slot 0 parity 0",
        "release ab cycle 0 slot 0 parity 0",
    ]
    assert show_events(program, "C").count("\n") == 2


def test_c07_phases_run_on_across_persistent_tiles() -> None:
    one_block = Extensions(launch=Launch(blocks=1))
    program = gemm_program(4, 12, 6, depth=2, extensions=one_block)
    waits = events(program, "C", "ab", "wait")
    assert [event.slot for event in waits] == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert [event.parity for event in waits] == [0, 0, 1, 1, 0, 0, 1, 1, 0]
    acquires = events(program, "P", "ab", "acquire")
    assert [event.parity for event in acquires] == [1, 1, 0, 0, 1, 1, 0, 0, 1]


def guarded(loop_inside: bool) -> tuple[Kernel, Program]:
    kernel = guarded_kernel(tiles=2, trips=4, limit=2, loop_inside=loop_inside)
    bodies = {
        "P": [acquire("x"), "load", commit("x")],
        "C": [wait("x"), "use", release("x")],
    }
    inner = {"loop_k": {"P": ["loop_g"], "C": ["loop_g"]}, "loop_g": bodies}
    scopes = inner if loop_inside else {"loop_k": bodies}
    program = program_of(
        kernel,
        {"P": (0, 1), "C": (1, 2)},
        {"x": (["S"], 2)},
        {"root": {"P": ["loop_k"], "C": ["loop_k"]}, **scopes},
        extensions=Extensions(launch=Launch(blocks=1)),
    )
    return kernel, program


def test_c07_a_guarded_scope_counts_executed_epochs_across_tiles() -> None:
    _, program = guarded(loop_inside=True)
    waits = events(program, "C", "x", "wait")
    assert [event.cycle for event in waits] == [0, 1, 2, 3]
    assert [event.parity for event in waits] == [0, 0, 1, 1]
    assert isinstance(trace(program), Finished)


def test_c07_a_guarded_op_keeps_its_barriers_unconditional() -> None:
    kernel, program = guarded(loop_inside=False)
    assert len(events(program, "C", "x", "wait")) == 8
    inputs = {"X": np.arange(16, dtype=np.float32).reshape(8, 2), "Z": np.zeros((8, 2), "f4")}
    for seed in SEEDS:
        verdict = simulate(program, inputs, seed)
        assert isinstance(verdict, Finished), str(verdict)
        np.testing.assert_array_equal(verdict.output("Z"), run(kernel, inputs)["Z"])


def test_w6_a_two_level_nest_counts_on() -> None:
    kernel = relay_kernel((3, 4))
    program = nested_relay(kernel, depth=2)
    assert [e.cycle for e in events(program, "C", "x", "wait")] == list(range(12))
    assert_right(program, kernel)


def nested_relay(kernel: Kernel, depth: int) -> Program:
    return program_of(
        kernel,
        {"P": (0, 1), "C": (1, 2)},
        {"x": (["S_0"], depth)},
        {
            "root": {"P": ["loop_0"], "C": ["loop_0"]},
            "loop_0": {"P": ["loop_1"], "C": ["loop_1"]},
            "loop_1": {
                "P": [acquire("x"), "load_0", commit("x")],
                "C": [wait("x"), "use_0", release("x")],
            },
        },
    )


def test_a_triangular_nest_counts_executed_cycles() -> None:
    kernel = relay_kernel((4, Var("i0") + 1))
    program = nested_relay(kernel, depth=3)
    assert [e.cycle for e in events(program, "P", "x", "acquire")] == list(range(10))
    assert isinstance(trace(program), Finished)


# ---------------------------------------------------------------- sides, tokens, routes


def alternating(extent: int, depth: int) -> tuple[Kernel, Program]:
    kernel = relay_kernel((extent,))
    body = [wait("x"), "use_0", release("x")]
    program = program_of(
        kernel,
        {"P": (0, 1), "C0": (1, 2), "C1": (2, 3)},
        {"x": (["S_0"], depth)},
        {
            "root": {"P": ["loop_0"], "C0": ["loop_0"], "C1": ["loop_0"]},
            "loop_0": {"P": [acquire("x"), "load_0", commit("x")], "C0": body, "C1": body},
        },
        extensions=Extensions(sides=(Side("x", False, SideMode.ALTERNATING, ("C0", "C1")),)),
    )
    return kernel, program


@pytest.mark.parametrize("extent", [1, 2, 3, 6])
@pytest.mark.parametrize("depth", [2, 3])
def test_alternating_roles_take_turns(extent: int, depth: int) -> None:
    kernel, program = alternating(extent, depth)
    assert program.barriers[0].empty_count == 1
    assert [e.cycle for e in events(program, "C1", "x", "wait")] == list(range(1, extent, 2))
    assert_right(program, kernel)


def test_an_alternating_side_of_more_roles_than_slots_waits_for_the_wrong_phase() -> None:
    """The second role's first wait is for the second phase, which a fresh parity bit mimics."""
    found = [trace(alternating(2, depth=1)[1], seed) for seed in SEEDS]
    assert any(isinstance(verdict, Race | BadCount) for verdict in found)


def test_an_alternating_side_in_the_root_is_refused() -> None:
    with pytest.raises(ScheduleError, match="neither a counted loop nor the root of a persistent"):
        kernel = relay_kernel(())
        body = [wait("x"), "use_0", release("x")]
        program_of(
            kernel,
            {"P": (0, 1), "C0": (1, 2), "C1": (2, 3)},
            {"x": (["S_0"], 1)},
            {"root": {"P": [acquire("x"), "load_0", commit("x")], "C0": body, "C1": body}},
            extensions=Extensions(sides=(Side("x", False, SideMode.ALTERNATING, ("C0", "C1")),)),
        )


def test_an_order_token_orders_sections_of_two_roles() -> None:
    kernel = relay_kernel((4,), ops=2)
    program = program_of(
        kernel,
        {"A": (0, 1), "B": (1, 2)},
        {"turn": ([], 1)},
        {
            "root": {"A": ["loop_0"], "B": ["loop_0"]},
            "loop_0": {
                "A": [acquire("turn"), "load_0", "use_0", commit("turn")],
                "B": [wait("turn"), "load_1", "use_1", release("turn")],
            },
        },
    )
    assert (program.barriers[0].full_count, program.barriers[0].empty_count) == (1, 1)
    assert_right(program, kernel)


@pytest.mark.parametrize(
    ("warps", "routes", "expected"),
    [
        (1, ("bulk", "bulk"), 1),
        (4, ("bulk", "bulk"), 1),
        (1, ("element", "bulk"), 32),
        (1, ("bulk", "element"), 32),
        (1, ("async", "async"), 32),
        (1, ("element", "async"), 64),
        (4, ("element", "element"), 128),
    ],
)
def test_w2_full_counts_follow_the_routes(
    warps: int, routes: tuple[str, str], expected: int
) -> None:
    chosen = tuple(
        Route(op, CopyRoute(route)) for op, route in zip(("copy_A", "copy_B"), routes, strict=True)
    )
    program = gemm_program(
        4,
        4,
        8,
        H200,
        producer_warps=warps,
        consumer_warps=4,
        extensions=Extensions(routes=chosen),
    )
    assert program.barriers[0].full_count == expected
    assert isinstance(trace(program), Finished)


@pytest.mark.parametrize(
    ("consumers", "warps", "expected"), [(1, 4, 128), (1, 8, 256), (2, 4, 256)]
)
def test_w2_empty_counts_are_the_threads_of_all_consumers(
    consumers: int, warps: int, expected: int
) -> None:
    program = gemm_program(8, 4, 8, H200, consumers=consumers, consumer_warps=warps)
    assert program.barriers[0].empty_count == expected


def test_an_empty_second_cycle_keeps_the_arrive_of_every_thread() -> None:
    kernel = relay_kernel((4,))
    program = program_of(
        kernel,
        {"P": (0, 1), "C": (4, 8)},
        {"x": (["S_0"], 2)},
        {
            "root": {"P": ["loop_0"], "C": ["loop_0"]},
            "loop_0": {
                "P": [acquire("x"), "load_0", commit("x"), acquire("x"), commit("x")],
                "C": [wait("x"), "use_0", release("x"), wait("x"), release("x")],
            },
        },
        H200,
    )
    assert program.barriers[0].full_count == 32
    assert isinstance(trace(program), Finished)


# ---------------------------------------------------------------- nested rings


def test_nested_rings_take_the_product_of_depths_and_the_adjacent_version_outside() -> None:
    kernel = carried_kernel(3, 4)
    program = program_of(
        kernel,
        {"P": (0, 1), "C": (1, 2)},
        {"o": (["S"], 2), "i": (["S"], 3)},
        {
            "root": {"P": ["loop_w"], "C": ["loop_w"]},
            "loop_w": {
                "P": [acquire("o"), "loop_k", commit("o")],
                "C": ["loop_k", wait("o"), "read_last", release("o")],
            },
            "loop_k": {
                "P": [acquire("i"), "load", commit("i")],
                "C": [wait("i"), "read", release("i")],
            },
        },
    )
    ring = program.ring("S")
    assert (ring.levels, ring.versions) == ((("o", 2), ("i", 3)), 6)
    assert_right(program, kernel)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ([acquire("x"), "ghost", commit("x")], "R-C2: the kernel has no op or loop 'ghost'"),
        ([acquire("x", 1), "load_0", commit("x")], "R-H1"),
        ([acquire("x"), "load_0"], "R-D3"),
        (["load_0", acquire("x"), commit("x"), commit("x")], "R-D2"),
        ([acquire("x"), "loop_0", commit("x")], "R-C2: 'loop_0' is not directly in scope"),
    ],
)
def test_malformed_bodies_are_refused_with_their_rule(body: list[object], rule: str) -> None:
    kernel = relay_kernel((4,))
    with pytest.raises(Exception, match=rule) as refused:
        program_of(
            kernel,
            {"P": (0, 1), "C": (1, 2)},
            {"x": (["S_0"], 2)},
            {
                "root": {"P": ["loop_0"], "C": ["loop_0"]},
                "loop_0": {"P": body, "C": [wait("x"), "use_0", release("x")]},
            },
        )
    assert "\n" not in str(refused.value)


def test_a_lag_on_an_alternating_side_is_refused() -> None:
    with pytest.raises(ScheduleError, match="alternating side"):
        sides = (Side("ab", False, SideMode.ALTERNATING, ("C", "D")),)
        gemm_program(4, 4, 8, extensions=Extensions(sides=sides, lags=(MatrixLag("mma", 1),)))


def test_an_op_at_a_stage_of_its_own_runs_that_much_later() -> None:
    kernel = relay_kernel((4,), ops=1)
    program = program_of(
        kernel,
        {"A": (0, 1)},
        {},
        {"root": {"A": ["loop_0"]}, "loop_0": {"A": ["load_0", "use_0"]}},
        extensions=Extensions(stages=(OpStage("A", "load_0", 0), OpStage("A", "use_0", 0))),
    )
    assert_right(program, kernel)


def test_one_role_without_scopes_is_the_kernel_as_written() -> None:
    kernel = relay_kernel((2, 3))
    program = program_of(kernel, {"A": (0, 2)}, {}, {})
    assert not program.barriers
    assert_right(program, kernel)
    assert CPU.name == program.machine
