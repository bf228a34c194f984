"""The verifier refuses programs that break their own invariants, and points at the step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from explorer.expr import Const
from explorer.program.nodes import Exec, Signal, Skip, Step, Use, Wait
from explorer.program.verify import MalformedProgram, verify_program
from explorer.schedule.extensions import Extensions, MatrixLag
from tests.support.programs import edit_role, gemm_program


def without(kind: type[Step]) -> Callable[[Step], list[Step]]:
    return lambda step: [] if isinstance(step, kind) else [step]


def twice(step: Step) -> list[Step]:
    return [step, step] if isinstance(step, Signal) else [step]


def elsewhere(step: Step) -> list[Step]:
    return [evolve(step, pipeline="ghost")] if isinstance(step, Wait) else [step]


def skipping(step: Step) -> list[Step]:
    skip = Skip("ab", True, Const(1))
    return [step, skip] if isinstance(step, Wait) else [step]


def of_ghost(step: Step) -> list[Step]:
    return [evolve(step, uses=(Use("A_shared", "ghost"),))] if isinstance(step, Exec) else [step]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without(Signal), "R-D3: 4 cycles of 'ab' stay open after wait"),
        (without(Wait), "R-D5: 'mma' touches 'A_shared' outside an open span"),
        (twice, "R-D2: 'ab' is closed without being open"),
        (elsewhere, "R-B3: there is no pipeline 'ghost'"),
        (skipping, "skip of 'ab' while a cycle is open"),
        (of_ghost, "R-B3: there is no pipeline 'ghost'"),
    ],
)
def test_faults_name_their_step(edit: Callable[[Step], list[Step]], message: str) -> None:
    broken = edit_role(gemm_program(4, 4, 8), "C", edit)
    with pytest.raises(MalformedProgram, match=message) as found:
        verify_program(broken)
    assert "\n" not in str(found.value)
    assert found.value.listing.startswith("program gemm on cpu")
    assert ("<-- here" in found.value.listing) == ("stay open" not in message)


def test_long_loops_with_a_lag_are_balanced() -> None:
    extensions = Extensions(lags=(MatrixLag("mma", 3),))
    verify_program(gemm_program(4, 4, 20000, depth=5, extensions=extensions))


def test_a_side_that_nobody_signals_is_refused() -> None:
    program = gemm_program(4, 4, 8)
    silent = evolve(program, barriers=(evolve(program.barriers[0], empty_count=0),))
    with pytest.raises(MalformedProgram, match="R-B5: nobody signals the empty side"):
        verify_program(silent)
