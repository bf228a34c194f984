"""A loop body as tasks on hardware pipes: what the loop scheduler is asked, and what it answers.

The model is that of tilelang 0.1.15's Ascend scheduler. A task starts at `k * interval + r`: stage
k of the software pipeline, phase r within one interval. Times are cycles, sizes are bytes, tasks
and rings are referred to by their index.

Invariant: a problem is well formed (indices in range, times not negative). With times that are not
negative a schedule stays legal when the interval grows, so that the least interval is the least
for which one exists.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from attrs import field, frozen

from explorer.errors import ScheduleError
from explorer.machine import Pipe


def _times(instance: Any, attribute: Any, value: int) -> None:
    if value < 0:
        raise ScheduleError(
            f"{type(instance).__name__}.{attribute.name} is {value}: a time is at least 0 cycles"
        )


@frozen
class LoopTask:
    """One task: its result exists `latency` cycles after its start; its pipes are free again after
    `interval`.

    `shares` names further resources that one task at a time may use. `stage` fixes its stage.
    """

    name: str
    latency: int = field(validator=_times)
    interval: int = field(validator=_times)
    pipes: tuple[Pipe, ...] = ()
    shares: tuple[str, ...] = ()
    stage: int | None = None

    @property
    def resources(self) -> frozenset[str]:
        """Its pipes and its other shared resources."""
        return frozenset((*self.pipes, *self.shares))


@frozen
class LoopDependence:
    """`after` of iteration i + distance starts `latency` cycles after `before` of iteration i.

    With a `ring`, the distance is the number of versions of that ring.
    """

    before: int
    after: int
    latency: int = field(validator=_times)
    distance: int = field(default=0, validator=_times)
    ring: int | None = None


@frozen
class OwnerExclusion:
    """Two tasks under different owners of one storage, in either order.

    `second` starts `forward` cycles after `first`, or `first` `backward` cycles after `second`,
    and so on around the interval.
    """

    first: int
    second: int
    forward: int = field(validator=_times)
    backward: int = field(validator=_times)


@frozen
class VersionRing:
    """A buffer whose versions the scheduler chooses; `version_bytes` is the size of one."""

    name: str
    version_bytes: int


@frozen
class MemoryGroup:
    """Rings that share a memory, and the bytes that are left for them there."""

    name: str
    capacity_bytes: int
    rings: tuple[int, ...]


@frozen
class LoopProblem:
    """A loop body to be scheduled.

    Each ring has 1 to `num_stages` versions. Pairs of `pipe_order` keep the order of their phases,
    pairs of `stage_order` (u, w) the order of their stages: u's is at most w's. Without `offset`
    all tasks of a pipe start within one interval.
    """

    tasks: tuple[LoopTask, ...]
    dependences: tuple[LoopDependence, ...] = ()
    exclusions: tuple[OwnerExclusion, ...] = ()
    rings: tuple[VersionRing, ...] = ()
    groups: tuple[MemoryGroup, ...] = ()
    num_stages: int = 1
    offset: bool = False
    pipe_order: tuple[tuple[int, int], ...] = ()
    stage_order: tuple[tuple[int, int], ...] = ()

    def __attrs_post_init__(self) -> None:
        if not self.tasks:
            raise ScheduleError("loop schedule: the body has no tasks")
        if self.num_stages < 1:
            raise ScheduleError(f"loop schedule: num_stages {self.num_stages} is less than 1")
        self._verify_stages()
        used = [each for d in self.dependences for each in (d.before, d.after)]
        used += [each for x in self.exclusions for each in (x.first, x.second)]
        used += [each for pair in (*self.pipe_order, *self.stage_order) for each in pair]
        _in_range(used, len(self.tasks), "task")
        rings = [d.ring for d in self.dependences if d.ring is not None]
        rings += [ring for group in self.groups for ring in group.rings]
        _in_range(rings, len(self.rings), "ring")

    def _verify_stages(self) -> None:
        fixed = [task.stage for task in self.tasks if task.stage is not None]
        if not fixed:
            return
        if len(fixed) != len(self.tasks):
            raise ScheduleError(
                f"manual stages: {len(fixed)} stages for {len(self.tasks)} tasks; give one to each"
            )
        if min(fixed) < 0:
            raise ScheduleError(f"manual stages: {min(fixed)} is negative; stages start at 0")
        if not self.offset and max(fixed) > 0:
            raise ScheduleError(
                f"manual stages: stage {max(fixed)} needs enable_offset=True on the loop"
            )


def _in_range(indices: list[int], count: int, what: str) -> None:
    for index in indices:
        if not 0 <= index < count:
            raise ScheduleError(f"loop schedule: no {what} {index}; there are {count}")


class SolveStatus(StrEnum):
    """How far an answer goes.

    OPTIMAL: a schedule, and none has a smaller interval. FEASIBLE: a schedule that was not proven
    least. INFEASIBLE: there is none. UNKNOWN: none was found, and none was excluded.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@frozen
class LoopSolution:
    """The answer: `starts` per task and `versions` per ring, the least that the starts need.

    No schedule has an interval below `bound`. `reason` says why there is no schedule, or what
    could not be decided.
    """

    status: SolveStatus
    interval: int = 0
    starts: tuple[int, ...] = ()
    versions: tuple[int, ...] = ()
    bound: int = 0
    reason: str = ""

    @property
    def found(self) -> bool:
        """Whether it holds a schedule."""
        return self.status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)

    @property
    def stages(self) -> tuple[int, ...]:
        """The stage of every task."""
        return tuple(start // self.interval for start in self.starts)

    def __str__(self) -> str:
        if not self.found:
            return f"{self.status}: {self.reason}"
        proof = "" if self.status == SolveStatus.OPTIMAL else f" (not proven; >= {self.bound})"
        return f"interval {self.interval}{proof}, starts {list(self.starts)}"


@frozen
class LineProblem:
    """Tasks that run once, to be finished as early as possible; distances and rings are unused."""

    tasks: tuple[LoopTask, ...]
    dependences: tuple[LoopDependence, ...] = ()
    exclusions: tuple[OwnerExclusion, ...] = ()
    pipe_order: tuple[tuple[int, int], ...] = ()

    def __attrs_post_init__(self) -> None:
        if not self.tasks:
            raise ScheduleError("straight-line schedule: there are no tasks")
