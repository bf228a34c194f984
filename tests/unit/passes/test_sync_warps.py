"""Barriers inside a role stand exactly where one thread's data meets another's."""

from __future__ import annotations

from explorer.machine import CPU, H200
from explorer.passes import materialize
from explorer.program.printer import show_steps
from explorer.program.simulator import trace
from explorer.program.steps import executed
from explorer.program.verdict import Finished
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import CopyRoute
from explorer.schedule.ws import WSRole, WSSchedule
from tests.support.programs import gemm_kernel, gemm_program


def names(lines: list[str]) -> list[str]:
    return [line.strip().split(":")[0].split(" ")[0] for line in lines]


def single_role(warps: int) -> list[str]:
    kernel = gemm_kernel(8, 8, 8)
    ws = WSSchedule(warps, [WSRole("all", warps_lo=0, warps_hi=warps)], [], [])
    sizes = {"block_M": 4, "block_N": 4, "block_K": 2}
    program = materialize(kernel, Schedule(bind(kernel, "cpu", sizes), ws), CPU)
    return names(list(show_steps(program.roles[0].body, warps)))


def test_one_thread_needs_none() -> None:
    assert single_role(1) == ["clear", "for", "copy_A", "copy_B", "mma", "store"]


def test_many_threads_meet_between_copy_and_gemm_and_before_the_next_copy() -> None:
    expected = ["clear", "for", "sync", "copy_A", "copy_B", "sync", "mma", "store"]
    assert single_role(2) == expected


def test_one_role_copies_with_its_own_threads_where_no_pipeline_counts_bytes() -> None:
    kernel = gemm_kernel(8, 8, 8)
    ws = WSSchedule(4, [WSRole("all", warps_lo=0, warps_hi=4)], [], [])
    sizes = {"block_M": 4, "block_N": 4, "block_K": 2}
    program = materialize(kernel, Schedule(bind(kernel, "h200", sizes), ws), H200)
    routes = {step.route for step in executed(program.roles[0].body)}
    assert routes == {None, CopyRoute.ELEMENT}
    assert isinstance(trace(program), Finished)


def test_a_wait_orders_the_buffers_of_its_pipeline() -> None:
    program = gemm_program(8, 8, 8, producer_warps=2, consumer_warps=2)
    for role in program.roles:
        assert "sync" not in names(list(show_steps(role.body, 2)))
