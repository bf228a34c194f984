"""Stand-ins for the slow parts: an enumerated model, a fake device, a small workload.

None of them is random: the same calls give the same answers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from attrs import frozen

from explorer.machine import CPU, Machine
from explorer.records import CompileFailed, Measured, Outcome
from explorer.schedule.bound import Schedule
from explorer.search import Prepared
from explorer.space import Assignment, Choice, Problem, Workload
from explorer.tune.request import Request
from explorer.tune.run import Silent, Tuner
from tests.kernels.gemm import gemm

CHOICES = (
    Choice("skeleton", (0, 1, 2)),
    Choice("block_M", (16, 32, 64, 128, 256)),
    Choice("block_N", (16, 32, 64, 128, 256)),
    Choice("depth", (1, 2, 3, 4)),
    Choice("raster", (0, 1, 2)),
)


@frozen
class FakeProjection:
    status: str
    assignment: tuple[tuple[str, int], ...] = ()


class FakeModel:
    """Enumerates the legal assignments and hands out the nearest one left."""

    def __init__(
        self,
        choices: Sequence[Choice] = CHOICES,
        legal: Callable[[Assignment], bool] = lambda a: a["block_M"] * a["depth"] <= 256,
    ) -> None:
        self.choices = choices
        self.seconds = 0.0
        names = [choice.name for choice in choices]
        points = itertools.product(*(choice.domain for choice in choices))
        self.left = [dict(zip(names, point, strict=True)) for point in points]
        self.left = [each for each in self.left if legal(each)]

    def project(self, target: Mapping[str, int]) -> FakeProjection:
        self.seconds += 0.001
        if not self.left:
            return FakeProjection("exhausted")

        def distance(point: Assignment) -> int:
            return sum(
                abs(
                    choice.domain.index(point[choice.name])
                    - choice.domain.index(target[choice.name])
                )
                for choice in self.choices
            )

        return FakeProjection("found", tuple(min(self.left, key=distance).items()))

    def forbid(self, assignment: Mapping[str, int]) -> None:
        if dict(assignment) in self.left:
            self.left.remove(dict(assignment))


def fake_time_us(point: Mapping[str, int]) -> float:
    """A smooth bowl with its bottom at skeleton 1, 64 x 128, depth 1."""
    distance = abs(math.log2(point["block_M"] / 64)) + abs(math.log2(point["block_N"] / 128))
    return 100.0 * (1.0 + distance) + 10.0 * point["depth"] + 50.0 * (point["skeleton"] != 1)


class FakeEvaluator:
    """Times points by a formula; `fail` may give a point another outcome."""

    def __init__(self, fail: Callable[[Assignment], Outcome | None] = lambda _: None) -> None:
        self.fail = fail
        self.measured: list[Assignment] = []

    def prepare(self, assignment: Assignment) -> Prepared:
        failure = self.fail(assignment)
        built = isinstance(failure, CompileFailed)
        return Prepared(str(sorted(assignment.items())), assignment, failure if built else None)

    def measure(self, prepared: Prepared) -> Outcome:
        point: Any = prepared.artifact
        self.measured.append(point)
        time_us = fake_time_us(point)
        return self.fail(point) or Measured(time_us, (time_us, time_us * 1.01), 1e-7)


def draw(problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    shape = {"A": (problem["M"], problem["K"]), "B": (problem["K"], problem["N"])}
    return {name: rng.standard_normal(size) for name, size in shape.items()}


def multiply(
    problem: Problem, arrays: dict[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    return {"C": arrays["A"] @ arrays["B"]}


def trace(problem: Problem) -> Any:
    return gemm(problem["M"], problem["N"], problem["K"], problem.dtype.name)


def small_workload(**changes: Any) -> Workload:
    """A GEMM with few tile sizes."""
    tiles = {"block_M": (32, 64, 128), "block_N": (32, 64, 128), "block_K": (64, 128)}
    fields: dict[str, Any] = {
        "name": "toy",
        "sizes": {"M": 256, "N": 256, "K": 256},
        "kernel": trace,
        "tiles": {"cpu": tiles, "h200": tiles},
        "inputs": draw,
        "reference": multiply,
        "work": lambda problem: 2.0 * problem["M"] * problem["N"] * problem["K"],
        "tolerance": {"float32": 1e-5, "bfloat16": 1e-2},
        "dtypes": ("float32", "bfloat16"),
    }
    return Workload(**{**fields, **changes})


@frozen
class FakeBuilt:
    schedule: Schedule
    source: str


class FakeDevice:
    """A device session without a device; every build and measurement is logged."""

    peer_name = "numpy"
    device = "fake device"
    toolchain = "fake cc 1.0"

    def __init__(self, *arguments: Any, fail: Callable[[Schedule], Outcome | None]) -> None:
        self.arguments = arguments
        self.fail = fail
        self.measured = 0
        self.races: list[tuple[int, int, bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def build(self, schedule: Schedule) -> FakeBuilt | CompileFailed:
        failure = self.fail(schedule)
        if isinstance(failure, CompileFailed):
            return failure
        return FakeBuilt(schedule, f"/* {schedule.digest} */\n")

    def measure(self, built: FakeBuilt, repeats: int) -> Outcome:
        self.measured += 1
        time_us = self.time_us(built.schedule)
        samples = tuple(time_us * (1.0 + 0.01 * (turn % 3)) for turn in range(repeats))
        return self.fail(built.schedule) or Measured(
            sorted(samples)[len(samples) // 2], samples, 1e-7
        )

    def race(
        self, builts: Sequence[FakeBuilt], rounds: int, with_peer: bool
    ) -> list[tuple[float, ...] | None]:
        self.races.append((len(builts), rounds, with_peer))
        times = [self.time_us(built.schedule) for built in builts] + [5000.0] * with_peer
        return [
            tuple(each * (1.0 + 0.01 * (turn % 3)) for turn in range(rounds)) for each in times
        ]

    @staticmethod
    def time_us(schedule: Schedule) -> float:
        sizes = schedule.params
        distance = abs(math.log2(sizes["block_M"] / 64)) + abs(math.log2(sizes["block_N"] / 128))
        return 1000.0 * (1.0 + distance) + 10.0 * sum(ring.depth for ring in schedule.ws.pipelines)


def fake_session(
    fail: Callable[[Schedule], Outcome | None] = lambda _: None,
    opened: list[FakeDevice] | None = None,
) -> Callable[..., FakeDevice]:
    """A factory of fake devices, as `tune` takes one; `opened` collects them."""

    def factory(*arguments: Any, **_: Any) -> FakeDevice:
        device = FakeDevice(*arguments, fail=fail)
        if opened is not None:
            opened.append(device)
        return device

    return factory


def tune_fake(
    out: Path | None,
    workload: Workload | None = None,
    machine: Machine = CPU,
    session: Callable[..., FakeDevice] | None = None,
    **options: Any,
) -> Any:
    """`tune` on a fake device."""
    watcher = options.pop("watcher", None) or Silent()
    request = Request("toy", out=out, **options)
    return Tuner(
        request, workload or small_workload(), machine, session or fake_session(), watcher
    ).run()
