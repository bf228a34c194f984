"""Random loop bodies, and the same bodies in the form that TileLang's loop scheduler takes."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

from explorer.machine import Pipe
from explorer.schedule.loop import (
    LoopDependence,
    LoopProblem,
    LoopTask,
    MemoryGroup,
    OwnerExclusion,
    VersionRing,
)

BITS = {
    Pipe.MTE1: 1,
    Pipe.MTE2: 2,
    Pipe.MTE3: 4,
    Pipe.CUBE: 8,
    Pipe.VECTOR: 16,
    Pipe.FIXPIPE: 32,
    Pipe.SCALAR: 64,
}


def random_problem(seed: int, count: int) -> LoopProblem:
    """A loop of `count` tasks: values that flow forward, rings that are reused, carried values."""
    draw = random.Random(seed)
    pipes = draw.sample(list(Pipe)[:6], draw.randint(2, 5))
    tasks = []
    for index in range(count):
        latency = draw.randint(10, 200)
        interval = draw.choice((latency, draw.randint(1, latency)))
        tasks.append(LoopTask(f"t{index}", latency, interval, (draw.choice(pipes),)))
    edges: list[LoopDependence] = []
    rings: list[VersionRing] = []
    for index in range(1, count):
        if draw.random() < 0.8:
            _add_flow(draw, tasks, edges, rings, draw.randint(max(0, index - 6), index - 1), index)
        if draw.random() < 0.35:
            _add_flow(draw, tasks, edges, rings, draw.randrange(index), index)
    for index in range(count):
        if draw.random() < 0.1:
            edges.append(LoopDependence(index, index, tasks[index].latency, draw.randint(1, 2)))
        elif index and draw.random() < 0.1:
            before = draw.randrange(index)
            edges.append(LoopDependence(index, before, tasks[index].latency, draw.randint(1, 3)))
    return _finish(draw, tasks, edges, rings)


def _add_flow(
    draw: random.Random,
    tasks: list[LoopTask],
    edges: list[LoopDependence],
    rings: list[VersionRing],
    before: int,
    after: int,
) -> None:
    """`after` reads what `before` writes; the next write waits for it, in a ring or not at all."""
    edges.append(LoopDependence(before, after, tasks[before].latency))
    if draw.random() < 0.7:
        ring = len(rings)
        rings.append(VersionRing(f"b{ring}", draw.randint(1, 16) * 1024))
        edges.append(LoopDependence(after, before, tasks[after].latency, ring=ring))
    elif draw.random() < 0.5:
        edges.append(LoopDependence(after, before, tasks[after].latency, draw.randint(1, 2)))


def _finish(
    draw: random.Random,
    tasks: list[LoopTask],
    edges: list[LoopDependence],
    rings: list[VersionRing],
) -> LoopProblem:
    stages = draw.randint(1, 4)
    half = len(rings) // 2
    groups = []
    for name, members in (("ub", range(half)), ("l1", range(half, len(rings)))):
        least = sum(rings[ring].version_bytes for ring in members)
        groups.append(MemoryGroup(name, int(least * draw.uniform(1.0, stages)), tuple(members)))
    exclusions = []
    if draw.random() < 0.3:
        a, b = draw.sample(range(len(tasks)), 2)
        forward, backward = tasks[a].latency, tasks[b].latency
        exclusions.append(OwnerExclusion(min(a, b), max(a, b), forward, backward))
    order = []
    if draw.random() < 0.15:
        order.append(tuple(sorted(draw.sample(range(len(tasks)), 2), reverse=True)))
    return LoopProblem(
        tuple(tasks),
        tuple(edges),
        tuple(exclusions),
        tuple(rings),
        tuple(groups),
        stages,
        offset=draw.random() < 0.5,
        stage_order=tuple(order),
    )


def tilelang_arguments(problem: LoopProblem) -> dict[str, Any]:
    """The arguments of tilelang.ascend.transform.z3_scheduler.z3_schedule_loop_python."""
    tasks = problem.tasks
    return {
        "num_stages": problem.num_stages,
        "latencies": [task.latency for task in tasks],
        "iis": [task.interval for task in tasks],
        "resource_flags": [sum(BITS[pipe] for pipe in task.pipes) for task in tasks],
        "data_deps": [
            (d.before, d.after, d.distance if d.ring is None else -d.ring - 1, d.latency)
            for d in problem.dependences
        ],
        "resource_deps": [
            (a, b)
            for a, b in combinations(range(len(tasks)), 2)
            if tasks[a].resources & tasks[b].resources
        ],
        "owner_exclusion_deps": [
            (x.first, x.second, x.forward, x.backward) for x in problem.exclusions
        ],
        "pipe_order_deps": list(problem.pipe_order),
        "buffer_sizes": [ring.version_bytes for ring in problem.rings],
        "memory_groups": [[g.capacity_bytes, *g.rings] for g in problem.groups],
        "stage_order_deps": list(problem.stage_order),
        "enable_offset": problem.offset,
    }
