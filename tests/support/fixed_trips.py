"""Schedules of the kernels of a fixed number of iterations: every trip count around the depths.

A case names its kernel's trips, its ring's depth and the features that it takes: how copies
travel, how many consumers share the rows, lag, staged store, persistent blocks, streamed tiles.

Invariant: all cases are legal, and the sample is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy as np
from attrs import evolve, frozen

from explorer.constraints import check
from explorer.ir.nodes import Kernel
from explorer.machine import H200, Machine
from explorer.passes import materialize
from explorer.program.nodes import Program
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixLag,
    Route,
    Side,
    SideMode,
    Split,
    StagedStore,
)
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.kernels.copy_pipeline import copy_pipeline, fragment_pipeline, gemm_trips
from tests.support.programs import acquire, commit, release, wait

DEPTHS = (1, 2, 3)


@frozen
class Features:
    """What a schedule takes besides a producer, a consumer and a ring."""

    through: str = "shared"
    route: CopyRoute | None = None
    consumers: int = 1
    lag: int = 0
    staged: bool = False
    persistent: int = 0
    stream: bool = False


COPIES = (
    Features(),
    Features("fragment"),
    Features(route=CopyRoute.ASYNC),
    Features("fragment", persistent=1),
    Features(route=CopyRoute.ELEMENT),
    Features(route=CopyRoute.BULK, persistent=1),
    Features("fragment", route=CopyRoute.ASYNC),
)
GEMMS = (
    Features(),
    Features(lag=1),
    Features(consumers=2, staged=True),
    Features(persistent=1),
    Features(consumers=2, lag=1, persistent=1),
    Features(route=CopyRoute.ASYNC),
    Features(staged=True, persistent=1),
    Features(route=CopyRoute.ELEMENT, consumers=2),
    Features(consumers=2, lag=1, staged=True, persistent=2, stream=True),
)


@frozen
class Case:
    """One kernel of so many trips under one schedule."""

    kind: str
    trips: int
    depth: int
    features: Features

    @property
    def title(self) -> str:
        """The case in one line."""
        return f"{self.kind} of {self.trips} trips, depth {self.depth}, {self.features}"

    @property
    def kernel(self) -> Kernel:
        """The kernel, traced anew."""
        if self.kind == "gemm":
            return gemm_trips(self.trips, tiles=3 if self.features.stream else 2)
        made = copy_pipeline if self.features.through == "shared" else fragment_pipeline
        return made(self.trips)

    def program(self, machine: Machine = H200) -> Program:
        """The materialized schedule, which the rules accept."""
        kernel = self.kernel
        build = gemm_schedule if self.kind == "gemm" else copy_schedule
        schedule = build(kernel, machine, self.depth, self.features)
        report = check(kernel, schedule, machine)
        assert report.ok, f"{self.title}: {report}"
        return materialize(kernel, schedule, machine)


def cases(count: int) -> Iterator[Case]:
    """The first of an endless sample: trips 0 .. depth + 3 of every depth, features in turn."""
    around = [(trips, depth) for depth in DEPTHS for trips in range(depth + 4)]
    kinds = cycle((("copy", cycle(COPIES)), ("gemm", cycle(GEMMS))))
    for number in range(count):
        kind, features = next(kinds)
        trips, depth = around[number // 2 % len(around)]
        given = next(features)
        if given.lag >= depth:
            depth = given.lag + 1
        # Tiles of one iteration cannot be cut.
        given = evolve(given, stream=given.stream and trips > 1)
        yield Case(kind, trips, depth, given)


def inputs(kernel: Kernel) -> dict[str, np.ndarray]:
    """Small whole numbers, which every order of additions sums up alike."""
    random = np.random.default_rng(len(kernel.name))
    return {
        tensor.name: random.integers(-4, 5, tuple(map(int, tensor.shape))).astype(
            tensor.dtype.numpy
        )
        for tensor in kernel.tensors[:-1]
    }


def _extensions(features: Features, copies: tuple[str, ...], roles: tuple[str, ...]) -> Extensions:
    stated = features.route
    several = len(roles) > 1
    return Extensions(
        sides=(Side("ring", False, SideMode.SHARED, roles),) if several else (),
        splits=(Split(roles),) if several else (),
        lags=(MatrixLag("mma", features.lag),) if features.lag else (),
        launch=Launch(features.persistent, stream=features.stream),
        routes=tuple(Route(op, stated) for op in copies) if stated else (),
        staged=(StagedStore("store", "C_staging"),) if features.staged else (),
    )


def _roles(machine: Machine, names: tuple[str, ...]) -> tuple[WSRole, ...]:
    """A producer of one warp, and consumers of a warp group each."""
    group = machine.warps_per_group
    return (
        WSRole("P", warps_lo=0, warps_hi=1),
        *(
            WSRole(name, warps_lo=group * (number + 1), warps_hi=group * (number + 2))
            for number, name in enumerate(names)
        ),
    )


def copy_schedule(kernel: Kernel, machine: Machine, depth: int, features: Features) -> Schedule:
    """A producer that loads and a consumer that stores."""
    (role,) = names = ("C",)
    taken = ["store"] if features.through == "shared" else ["take", "store"]
    body = [wait("ring"), taken[0], release("ring"), *taken[1:]]
    ws = WSSchedule(
        2 * machine.warps_per_group,
        _roles(machine, names),
        [WSPipeline("ring", ["S"], depth)],
        [
            WSScope(WSScope.ROOT, {"P": ["k"], role: ["k"]}),
            WSScope("k", {"P": [acquire("ring"), "load", commit("ring")], role: body}),
        ],
    )
    extensions = _extensions(features, ("load",), names)
    return Schedule(bind(kernel, machine.name, {}), ws, extensions)


def gemm_schedule(kernel: Kernel, machine: Machine, depth: int, features: Features) -> Schedule:
    """A producer that loads, and consumers that multiply and store."""
    names = tuple(f"C{number}" for number in range(features.consumers))
    stores = ["store_stage", "store"] if features.staged else ["store"]
    ws = WSSchedule(
        (1 + features.consumers) * machine.warps_per_group,
        _roles(machine, names),
        [WSPipeline("ring", ["A_shared", "B_shared"], depth)],
        [
            WSScope(
                WSScope.ROOT, {"P": ["k"], **{name: ["clear", "k", *stores] for name in names}}
            ),
            WSScope(
                "k",
                {
                    "P": [acquire("ring"), "copy_A", "copy_B", commit("ring")],
                    **{name: [wait("ring"), "mma", release("ring")] for name in names},
                },
            ),
        ],
    )
    extensions = _extensions(features, ("copy_A", "copy_B"), names)
    return Schedule(bind(kernel, machine.name, {}), ws, extensions)
