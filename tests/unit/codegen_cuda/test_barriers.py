"""Arrive counts as the source initialises barriers: one arrival a warp."""

from __future__ import annotations

from attrs import evolve

from explorer.codegen.cuda.roles import barrier_counts
from explorer.machine import H200
from explorer.program.nodes import Barriers, Program, RoleProgram, Signal
from explorer.schedule.extensions import CopyRoute, Launch
from explorer.schedule.ws import WSRole
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    ONE_CONSUMER,
    SMALL,
    candidate,
    gemm_space,
    one_arrival_too_many,
    program_of,
    with_routes,
)


def test_eight_consumer_warps_arrive_eight_times() -> None:
    """C03: 256 threads, one elected lane a warp: 8."""
    space = gemm_space("gemm", (256, 256, 256))
    program = program_of(space, candidate(space, DIRECT, **(GOOD | {"depth_A_B": 4})))
    assert program.barriers[0].empty_count == 256
    assert barrier_counts(program, H200) == {("A_B", True): 1, ("A_B", False): 8}
    one_more = one_arrival_too_many(program)
    assert barrier_counts(one_more, H200)[("A_B", True)] == 2


def test_counts_follow_the_routes() -> None:
    space = gemm_space("gemm_nt", (250, 250, 250))
    schedule = candidate(space, ONE_CONSUMER, **(SMALL | {"warps_producer": 4}), depth_A_B=2)
    copies = ("copy_A_shared", "copy_B_shared")
    element = program_of(space, with_routes(schedule, dict.fromkeys(copies, CopyRoute.ELEMENT)))
    assert barrier_counts(element, H200)[("A_B", True)] == 4
    landed = program_of(space, with_routes(schedule, dict.fromkeys(copies, CopyRoute.ASYNC)))
    assert barrier_counts(landed, H200)[("A_B", True)] == 128
    mixed = program_of(space, with_routes(schedule, {copies[0]: CopyRoute.ASYNC}))
    assert barrier_counts(mixed, H200)[("A_B", True)] == 132


def test_an_alternating_side_counts_one_role() -> None:
    roles = tuple(
        RoleProgram(WSRole(name, warps_lo=low, warps_hi=low + 4), (Signal("p", full=False),))
        for name, low in (("a", 0), ("b", 4))
    )
    program = Program(
        "k", "h200", (), (), Launch(), 8, (), (Barriers("p", 2, 1, 128),), roles,
        threads_per_warp=32,
    )  # fmt: skip
    assert barrier_counts(program, H200)[("p", False)] == 4
    shared = evolve(program, barriers=(Barriers("p", 2, 1, 256),))
    assert barrier_counts(shared, H200)[("p", False)] == 8


def test_eight_consumer_warps_of_two_blocks_arrive_sixteen_times() -> None:
    """C03: one elected lane a warp, at the barriers of both blocks of a cluster: 16."""
    space = gemm_space("gemm", (256, 512, 256))
    choices = GOOD | {"depth_A_B": 4, "cluster": 2}
    program = program_of(space, candidate(space, DIRECT, **choices))
    assert program.barriers[0].empty_count == 512
    assert barrier_counts(program, H200) == {("A_B", True): 1, ("A_B", False): 16}
