"""While loops as scopes: run-time counters on both sides, scalars run by every role."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.errors import ScheduleError
from explorer.expr import Var, const
from explorer.ir.interpreter import run
from explorer.ir.nodes import Buffer, Copy, Define, Index, Kernel, Literal, While, whole
from explorer.machine import Scope
from explorer.program.events import role_events
from explorer.program.nodes import Program
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished
from explorer.schedule.extensions import Extensions, OpStage
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


def test_a_shifted_while_loop_is_refused() -> None:
    with pytest.raises(ScheduleError, match="R-H3: 'loop' is a while loop"):
        counting_program(counting_kernel(4), Extensions(stages=(OpStage("P", "step", 1),)))
