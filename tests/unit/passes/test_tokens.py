"""A token that follows a loop with matrix ops in flight is given back before they complete."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from explorer.program.nodes import Drain, Exec, Signal, Step, Wait
from explorer.program.steps import every_step
from tests.support.cuda_candidates import (
    GOOD,
    TURNS,
    TURNS_STAGED,
    candidate,
    gemm_space,
    program_of,
)

SPACE = gemm_space("gemm", (512, 512, 512))


def story(lag: int, title: str, role: str) -> list[str]:
    """What a role does around its main loop, in order."""
    choices = GOOD | {"block_N": 128, "lag_gemm_C_local": lag}
    program = program_of(SPACE, candidate(SPACE, title, **choices))
    body = next(each.body for each in program.roles if each.role.name == role)
    return list(_words(body))


def _words(body: tuple[Step, ...]) -> Iterator[str]:
    for step in every_step(body):
        match step:
            case Wait("order_ko") | Signal("order_ko"):
                yield "take" if isinstance(step, Wait) else "give"
            case Drain(0):
                yield "complete"
            case Exec() if step.op.id.startswith("copy_C"):
                yield step.op.id


@pytest.mark.parametrize("role", ["consumer_0", "consumer_1"])
def test_the_next_role_multiplies_while_the_last_gemms_complete(role: str) -> None:
    assert story(1, TURNS, role) == ["take", "give", "complete", "copy_C"]
    assert story(1, TURNS_STAGED, role) == ["take", "give", "complete", "copy_C_stage", "copy_C"]


def test_gemms_that_complete_in_place_have_nothing_to_wait_for() -> None:
    assert story(0, TURNS, "consumer_0") == ["take", "give", "copy_C"]
