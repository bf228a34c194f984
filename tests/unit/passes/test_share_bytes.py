"""Meetings of a role's threads where bytes change hands."""

from __future__ import annotations

import pytest

from explorer.machine import CPU, H200, Machine
from explorer.passes.memory import place_buffers
from explorer.passes.share_bytes import share_bytes
from explorer.program.nodes import Exec, For, Program, RoleSync, Step
from explorer.program.steps import every_step
from explorer.schedule.extensions import Launch
from tests.support.cuda_candidates import SMALL, STORER, candidate, gemm_space
from tests.support.placed import (
    attention_program,
    moved,
    staged_attention,
    staged_gemm,
    unplaced,
)


def syncs(body: tuple[Step, ...]) -> int:
    return sum(isinstance(step, RoleSync) for step in every_step(body))


def body_of(program: Program, role: str) -> tuple[Step, ...]:
    return next(each.body for each in program.roles if each.role.name == role)


def test_threads_meet_before_the_staging_takes_the_bytes_of_q() -> None:
    plain = attention_program(H200, Launch(1))
    placed = share_bytes(plain, H200)
    for role in ("C0", "C1"):
        body = body_of(placed, role)
        at = next(
            k for k, s in enumerate(body) if isinstance(s, Exec) and s.op.id == "copy_O_stage"
        )
        assert isinstance(body[at - 1], RoleSync)
        loops = [step for step in every_step(body) if isinstance(step, For)]
        assert not any(syncs(loop.body) for loop in loops)


def test_the_wait_for_the_next_queries_orders_the_store_before_it() -> None:
    """No meeting of a role between its wait for Q and its first gemm."""
    placed = share_bytes(attention_program(H200, Launch(1)), H200)
    for role in ("C0", "C1"):
        assert syncs(body_of(placed, role)) == 2  # before the staging, and before its store


def test_a_ring_under_the_staging_asks_for_one_meeting() -> None:
    """A role that hands its staging to another needs none for that buffer alone."""
    space = gemm_space("gemm", (512, 512, 512))
    plain = unplaced(space.kernel, candidate(space, STORER, **SMALL), H200)
    placed = share_bytes(plain, H200)
    assert placed.sharers("C_staging")
    assert (syncs(body_of(plain, "consumer")), syncs(body_of(placed, "consumer"))) == (0, 1)
    assert body_of(placed, "producer") == body_of(plain, "producer")


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
def test_without_common_bytes_the_steps_stay(machine: Machine) -> None:
    plain = staged_gemm(machine, Launch(2))
    placed = share_bytes(plain, machine)
    assert placed.roles == plain.roles
    assert placed.placement is not None


def test_a_role_of_one_thread_needs_no_meeting() -> None:
    placed = share_bytes(attention_program(CPU, Launch(1)), CPU)
    assert placed.sharers("Q_shared")
    assert not any(syncs(role.body) for role in placed.roles)


def test_a_given_placement_is_taken_as_it_is() -> None:
    plain = staged_gemm()
    chosen = share_bytes(plain, H200).placement
    assert chosen is not None
    apart = moved(chosen, "C_stage", "C_stage")
    assert share_bytes(plain, H200, apart).placement == apart


def test_placing_twice_changes_nothing() -> None:
    once = share_bytes(staged_gemm(), H200)
    assert share_bytes(once, H200) == once


def test_the_placement_of_a_schedule() -> None:
    draft = staged_attention(H200, Launch(1))
    assert place_buffers(draft.kernel, draft.schedule).sharers("Q_shared") == {"O_stage"}
