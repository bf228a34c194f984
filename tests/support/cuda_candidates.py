"""Schedules for the h200: the known good one, random legal ones, and their sources."""

from __future__ import annotations

import random
from collections.abc import Iterator

from attrs import evolve

from explorer.codegen.cuda import CudaKernel, generate
from explorer.constraints import check
from explorer.machine import H200
from explorer.passes import materialize
from explorer.program.nodes import Program
from explorer.runtime import load_workload
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import CopyRoute, Route
from explorer.space import SearchSpace, space_of

LAYOUTS = ("gemm", "gemm_nt", "gemm_tn", "gemm_tt")
STAGED = "roles producer+consumer_0+consumer_1; rings A_shared+B_shared; staged epilogue"
THREE_STAGED = "roles producer+consumer; rings A_shared+B_shared; staged epilogue"
DIRECT = "roles producer+consumer_0+consumer_1; rings A_shared+B_shared; direct epilogue"
ONE_CONSUMER = "roles producer+consumer; rings A_shared+B_shared; direct epilogue"
TWO_RINGS = "roles producer+consumer; rings A_shared B_shared; direct epilogue"
STORER = "roles producer+storer+consumer; rings A_shared+B_shared C_staging; staged epilogue"
TURNS = "roles producer+consumer_0/consumer_1; rings A_shared+B_shared; direct epilogue"
TURNS_STAGED = "roles producer+consumer_0/consumer_1; rings A_shared+B_shared; staged epilogue"
WORKER = "roles worker; rings none; direct epilogue"

# 128 x 256 x 64, two consumer warp groups, one producer warp, lag 1, 132 resident blocks.
GOOD = {
    "block_M": 128,
    "block_N": 256,
    "block_K": 64,
    "blocks": 132,
    "depth_A_B": 3,
    "raster": 2,
    "group": 8,
    "lag_gemm_C_local": 1,
    "nreg_producer": 40,
    "nreg_consumer": 232,
    "warps_producer": 1,
    "warps_consumer": 4,
}
# Small tiles for the odd skeletons.
SMALL = {
    "block_M": 128,
    "block_N": 128,
    "block_K": 64,
    "blocks": 0,
    "lag_gemm_C_local": 0,
    "nreg_producer": 88,
    "nreg_consumer": 168,
    "warps_producer": 1,
    "warps_consumer": 4,
    "warps_storer": 1,
    "warps_worker": 4,
}


def gemm_space(layout: str, sizes: tuple[int, int, int], kind: str = "bfloat16") -> SearchSpace:
    workload = load_workload(layout)
    problem = workload.problem(dict(zip("MNK", sizes, strict=True)), kind)
    return space_of(workload, problem, H200)


def candidate(space: SearchSpace, title: str, **choices: int) -> Schedule:
    """The schedule of a skeleton under choices; all others at their first value."""
    index = [skeleton.title for skeleton in space.skeletons].index(title)
    values = {choice.name: choice.domain[0] for choice in space.choices} | choices
    schedule = space.candidate(values | {"skeleton": index})
    report = check(space.kernel, schedule, H200)
    assert report.ok, report
    return schedule


def draw(
    space: SearchSpace, count: int, seed: int, share_of_roles: float = 0.8
) -> Iterator[tuple[str, Schedule]]:
    """(title of its skeleton, a legal schedule) drawn at random, mostly with several roles."""
    chosen = random.Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        values = {choice.name: chosen.choice(choice.domain) for choice in space.choices}
        title = space.skeletons[values["skeleton"]].title
        if "worker" in title and chosen.random() < share_of_roles:
            continue
        schedule = space.candidate(values)
        if schedule.digest not in seen and check(space.kernel, schedule, H200).ok:
            seen.add(schedule.digest)
            yield title, schedule


def with_routes(schedule: Schedule, stated: dict[str, CopyRoute]) -> Schedule:
    """The schedule with the routes of some copies stated."""
    routes = tuple(Route(op, route) for op, route in stated.items())
    return evolve(schedule, extensions=evolve(schedule.extensions, routes=routes))


def program_of(space: SearchSpace, schedule: Schedule) -> Program:
    return materialize(space.kernel, schedule, H200)


def source_of(space: SearchSpace, schedule: Schedule, bound_ns: int | None = None) -> CudaKernel:
    return generate(program_of(space, schedule), H200, bound_ns)


def one_arrival_too_many(program: Program) -> Program:
    """The program with the full barriers of its first pipeline waiting for one arrival more."""
    first, *rest = program.barriers
    return evolve(program, barriers=(evolve(first, full_count=first.full_count + 1), *rest))
