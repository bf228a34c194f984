"""While loops as scopes: run-time counters on both sides, scalars run by every role."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

from explorer.codegen.cuda import generate
from explorer.constraints import check_parts
from explorer.cost import NoPrediction, predict
from explorer.expr import TRUE, Var, const
from explorer.ir.dtypes import dtype
from explorer.ir.interpreter import run
from explorer.ir.nodes import (
    Buffer,
    Copy,
    Define,
    Element,
    Fill,
    Gemm,
    Index,
    Kernel,
    Literal,
    Map,
    Store,
    While,
    whole,
)
from explorer.machine import CPU, H200, Machine, Scope
from explorer.program.events import role_events
from explorer.program.nodes import Program
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished
from explorer.runtime.cuda.compile import compile_source
from explorer.schedule.extensions import Extensions, MatrixLag, OpStage
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.support.cpu_candidates import run_program
from tests.support.programs import (
    F32,
    acquire,
    commit,
    exprs,
    program_of,
    region,
    release,
    wait,
)

INT32 = dtype("int32")


def counting_kernel(trips: int) -> Kernel:
    """x = 0; while x < trips: { load: S <- X[x]; use: Z[x] <- S; step: x = x + 1 }."""
    x = Var("x")
    source = Buffer("X", exprs(8, 2), F32, Scope.GLOBAL)
    target = Buffer("Z", exprs(8, 2), F32, Scope.GLOBAL)
    shared = Buffer("S", exprs(1, 2), F32, Scope.SHARED)
    body = (
        Copy("load", region(source, (x, 1), (0, 2)), whole(shared)),
        Copy("use", whole(shared), region(target, (x, 1), (0, 2))),
        Define("step", "x", Index(x + 1)),
    )
    loop = While("loop", x < trips, body)
    grid = (("bx", const(1)),)
    return Kernel(
        "count",
        (source, target),
        grid,
        const(64),
        (shared,),
        (Define("start", "x", Literal(0)), loop),
    )


def counting_program(kernel: Kernel, extensions: Extensions = Extensions()) -> Program:
    return program_of(
        kernel,
        {"P": (0, 1), "C": (1, 2)},
        {"x": (["S"], 3)},
        {
            "root": {"P": ["start", "loop"], "C": ["start", "loop"]},
            "loop": {
                "P": [acquire("x"), "load", commit("x"), "step"],
                "C": [wait("x"), "use", release("x"), "step"],
            },
        },
        extensions=extensions,
    )


@pytest.mark.parametrize("trips", [0, 1, 3, 7])
def test_a_while_loop_counts_its_trips(trips: int) -> None:
    kernel = counting_kernel(trips)
    program = counting_program(kernel)
    inputs = {"X": np.arange(16, dtype=np.float32).reshape(8, 2), "Z": np.zeros((8, 2), "f4")}
    expected = run(kernel, inputs)["Z"]
    for seed in range(8):
        verdict = simulate(program, inputs, seed)
        assert isinstance(verdict, Finished), str(verdict)
        np.testing.assert_array_equal(verdict.output("Z"), expected)


def test_events_of_a_while_loop_follow_its_scalars() -> None:
    events = list(role_events(counting_program(counting_kernel(4)), "C"))
    assert [event.cycle for event in events if event.kind == "wait"] == [0, 1, 2, 3]


# ---------------------------------------------------------------- offsets


def shifted_kernel(rows: int = 1, width: int = 2) -> Kernel:
    """while x < N[0]: { load: S <- X[x]; take: F <- S; put: Z[y] <- F; x, y = x + 1, y + 1 }.

    With `y` apart from `x`, the last op can follow iterations behind the loads.
    """
    x, y = Var("x"), Var("y")
    source = Buffer("X", exprs(8 * rows, width), F32, Scope.GLOBAL)
    target = Buffer("Z", exprs(8 * rows, width), F32, Scope.GLOBAL)
    count = Buffer("N", exprs(1), INT32, Scope.GLOBAL)
    shared = Buffer("S", exprs(rows, width), F32, Scope.SHARED)
    kept = Buffer("F", exprs(rows, width), F32, Scope.FRAGMENT)
    lane = Var("i"), Var("j")
    taken = Store(kept, lane, Element(shared, lane))
    body = (
        Copy("load", region(source, (x * rows, rows), (0, width)), whole(shared)),
        Map("take", (("i", const(rows)), ("j", const(width))), (taken,), (TRUE,)),
        Copy("put", whole(kept), region(target, (y * rows, rows), (0, width))),
        Define("step_x", "x", Index(x + 1)),
        Define("step_y", "y", Index(y + 1)),
    )
    start = (
        Define("start_x", "x", Literal(0)),
        Define("start_y", "y", Literal(0)),
        Define("read_n", "n", Element(count, exprs(0))),
    )
    return Kernel(
        "shifted",
        (source, target, count),
        (("bx", const(1)),),
        const(64),
        (shared, kept),
        (*start, While("loop", x < Var("n"), body)),
    )


SHIFTED_SCOPES = {
    "root": {"P": ["start_x", "read_n", "loop"], "C": ["start_x", "start_y", "read_n", "loop"]},
    "loop": {
        "P": [acquire("x"), "load", commit("x"), "step_x"],
        "C": [wait("x"), "take", release("x"), "put", "step_x", "step_y"],
    },
}


def later(shift: int, *ops: str) -> Extensions:
    return Extensions(stages=tuple(OpStage("C", op, shift) for op in ops))


def shifted_program(shift: int, depth: int, machine: Machine = CPU) -> Program:
    group = machine.warps_per_group
    return program_of(
        shifted_kernel() if machine is CPU else shifted_kernel(64, 8),
        {"P": (0, group), "C": (group, 2 * group)},
        {"x": (["S"], depth)},
        SHIFTED_SCOPES,
        machine,
        later(shift, "put", "step_y"),
    )


def shifted_inputs(trips: int) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "X": np.arange(16, dtype=np.float32).reshape(8, 2) + 1,
        "Z": np.zeros((8, 2), "f4"),
        "N": np.array([trips], dtype=np.int32),
    }


def shifted_schedule() -> WSSchedule:
    return WSSchedule(
        2,
        [WSRole("P", warps_lo=0, warps_hi=1), WSRole("C", warps_lo=1, warps_hi=2)],
        [WSPipeline("x", ["S"], 2)],
        [
            WSScope(WSScope.ROOT if name == "root" else name, bodies)
            for name, bodies in SHIFTED_SCOPES.items()
        ],
    )


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_offsets_in_a_while_loop(shift: int, depth: int) -> None:
    """Prologue under the condition, epilogue as far as the loop ran, copies of the fragment."""
    kernel, program = shifted_kernel(), shifted_program(shift, depth)
    copies = next(role.private for role in program.roles if role.role.name == "C")
    assert len(copies) == shift + 1
    for trips in range(8):
        inputs = shifted_inputs(trips)
        expected = run(kernel, inputs)["Z"]
        for seed in range(3):
            verdict = simulate(program, inputs, seed)
            assert isinstance(verdict, Finished), f"{trips}: {verdict}"
            np.testing.assert_array_equal(verdict.output("Z"), expected)


def test_emitted_code_shifts_a_while_loop_too() -> None:
    kernel = shifted_kernel()
    for shift in (1, 2):
        program = shifted_program(shift, 2)
        for trips in (0, 1, 2, 3, 7):
            inputs = shifted_inputs(trips)
            found = run_program(program, CPU, inputs)["Z"]
            np.testing.assert_array_equal(found, run(kernel, inputs)["Z"])


def test_the_cuda_source_of_a_shifted_while_loop_compiles() -> None:
    pytest.importorskip("cuda.bindings")
    kernel = generate(shifted_program(2, 2, H200), H200)
    assert "while ((v_x < v_n))" in kernel.source
    compile_source(kernel.source, kernel.plan.arch)


def test_a_while_loop_has_no_predicted_time() -> None:
    for shift in (0, 1):
        with pytest.raises(NoPrediction, match="trip count is known at run time only"):
            predict(shifted_program(shift, 2, H200), H200)


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        (Extensions(), set()),
        (later(1, "put", "step_y"), set()),
        (later(1, "put"), {"scalar-definition"}),
        (later(1, "step_y"), {"scalar-definition"}),
        (later(1, "put", "step_y", "step_x"), {"scalar-definition"}),
        (later(-1, "put", "step_y"), {"stage-form", "program-order"}),
        (later(10**9, "put", "step_y"), {"stage-form"}),
    ],
)
def test_rules_of_offsets_in_a_while_loop(extensions: Extensions, expected: set[str]) -> None:
    """What the condition reads belongs to the smallest stage, any scalar to that of its uses."""
    found = check_parts(shifted_kernel(), shifted_schedule(), extensions, CPU)
    assert {violation.rule for violation in found.violations} == expected


@pytest.mark.parametrize("role", ["P", "C"])
def test_every_role_runs_what_ends_its_loop(role: str) -> None:
    """A role that never steps the scalar of its condition would go round for ever."""
    schedule = shifted_schedule()
    loop = {name: [e for e in body if (name, getattr(e, "id", "")) != (role, "step_x")]
            for name, body in schedule.scope("loop").bodies}  # fmt: skip
    scopes = [scope for scope in schedule.scopes if scope.id != "loop"]
    broken = evolve(schedule, scopes=(*scopes, WSScope("loop", loop)))
    found = check_parts(shifted_kernel(), broken, Extensions(), CPU)
    assert {violation.rule for violation in found.violations} == {"scalar-definition"}
    assert "does not run step_x, which changes it" in str(found)


def test_a_scalar_of_another_iteration_gives_another_result() -> None:
    """The witness of what the rule refuses."""
    program = program_of(
        shifted_kernel(),
        {"P": (0, 1), "C": (1, 2)},
        {"x": (["S"], 2)},
        SHIFTED_SCOPES,
        extensions=later(1, "put"),
    )
    inputs = shifted_inputs(4)
    verdict = simulate(program, inputs, 0)
    assert isinstance(verdict, Finished)
    assert not np.array_equal(verdict.output("Z"), run(shifted_kernel(), inputs)["Z"])


def lagging_kernel() -> Kernel:
    """acc = 0; while x < N[0]: { A[x] B[x] into shared memory; acc += A B; x = x + 1 }; store."""
    x = Var("x")
    a, b = (Buffer(name, exprs(8 * 64, 64), F32, Scope.GLOBAL) for name in "AB")
    c = Buffer("C", exprs(64, 64), F32, Scope.GLOBAL)
    count = Buffer("N", exprs(1), INT32, Scope.GLOBAL)
    left, right = (Buffer(f"{n}_shared", exprs(64, 64), F32, Scope.SHARED) for n in "AB")
    acc = Buffer("acc", exprs(64, 64), F32, Scope.FRAGMENT)
    body = (
        Copy("copy_A", region(a, (x * 64, 64), (0, 64)), whole(left)),
        Copy("copy_B", region(b, (x * 64, 64), (0, 64)), whole(right)),
        Gemm("mma", whole(left), whole(right), whole(acc), False, False),
        Define("step", "x", Index(x + 1)),
    )
    return Kernel(
        "lagging",
        (a, b, c, count),
        (("bx", const(1)),),
        const(256),
        (left, right, acc),
        (
            Define("start", "x", Literal(0)),
            Define("read_n", "n", Element(count, exprs(0))),
            Fill("clear", whole(acc), Literal(0.0)),
            While("loop", x < Var("n"), body),
            Copy("store", whole(acc), whole(c)),
        ),
    )


def test_gemms_that_lag_in_a_while_loop() -> None:
    """The releases that the loop did not come to follow it: min(lag, trips) of them."""
    kernel = lagging_kernel()
    scopes = {
        "root": {
            "P": ["start", "read_n", "loop"],
            "C": ["start", "read_n", "clear", "loop", "store"],
        },
        "loop": {
            "P": [acquire("ab"), "copy_A", "copy_B", commit("ab"), "step"],
            "C": [wait("ab"), "mma", release("ab"), "step"],
        },
    }
    program = program_of(
        kernel,
        {"P": (0, 1), "C": (4, 8)},
        {"ab": (["A_shared", "B_shared"], 3)},
        scopes,
        H200,
        Extensions(lags=(MatrixLag("mma", 2),)),
    )
    random = np.random.default_rng(3)
    data = {n: random.standard_normal((512, 64)).astype(np.float32) for n in "AB"}
    for trips in (0, 1, 2, 3, 6):
        inputs = data | {"N": np.array([trips], dtype=np.int32)}
        verdict = simulate(program, inputs, trips)
        assert isinstance(verdict, Finished), f"{trips}: {verdict}"
        np.testing.assert_allclose(
            verdict.output("C"), run(kernel, inputs)["C"], rtol=1e-4, atol=1e-3
        )
