"""Schedules of pipe machines: intervals, stages, versions of buffers, and flags.

A kernel's loops and conditions form a tree of *nodes* (`ir.task_tree`): ops and loops, each
named by its statement id. Hardware pipes run their ops in issue order; a set_flag on one pipe lets
a wait_flag on another go on.

Invariant: an object holds what was chosen; the flags of a schedule are derived from its stages and
versions (`program.pipe_flags`) and stored with it, so that a reader needs no analysis.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.data import digest
from explorer.ir.annotations import IndexMode
from explorer.machine import Pipe
from explorer.schedule.bound import Binding


@frozen
class TaskPlace:
    """Where one node of a loop body stands: its start, and how many iterations late it is issued.

    In-order pipes overlap iterations by themselves, so that a node may run in a later stage than
    that in which it is issued (`LoopSchedule.stage`).
    """

    node: str
    start: int
    stage: int


@frozen
class LoopSchedule:
    """The order of one loop's body, or of the kernel's outermost statements (`loop` is empty).

    An iteration starts every `interval` cycles; `proven` says that fewer are impossible, `bound`
    how few were not excluded. `latency` is the predicted time of the whole loop.
    """

    loop: str
    interval: int
    bound: int
    proven: bool
    latency: int
    tasks: tuple[TaskPlace, ...]

    def stage(self, task: TaskPlace) -> int:
        """The stage of the software pipeline in which a node runs: whole intervals ahead of it."""
        return task.start // max(1, self.interval)


@frozen
class BufferRing:
    """The versions of one buffer and how one is chosen.

    `owners` are the loops whose every iteration writes it first. `manual` rings are indexed by the
    kernel itself. One version without owners is a plain buffer.
    """

    buffer: str
    versions: int
    mode: IndexMode
    owners: tuple[str, ...] = ()
    manual: bool = False


@frozen
class NodeDependence:
    """`consumer` of iteration i + distance follows `producer` of iteration i of `loop`.

    Both are ops; the nodes of `loop`'s body that hold them are `before` and `after`. With
    `carried` the distance is the number of versions of `buffer`.
    """

    loop: str
    buffer: str
    producer: str
    consumer: str
    before: str
    after: str
    distance: int
    carried: bool = False


@frozen
class Flag:
    """A set_flag on `source` after `before`, a wait_flag on `target` ahead of `after`.

    There are `versions` flags from id `event` on; an iteration uses the one of its slot. Where
    `initial` holds, the set is for a later iteration: all flags are set before the outermost loop
    and waited for after it. Flags of one pipe are a barrier on it.
    """

    loop: str
    source: Pipe
    target: Pipe
    before: str
    after: str
    event: int
    versions: int
    initial: bool
    ring: str = ""

    @property
    def barrier(self) -> bool:
        """Whether both ends are one pipe."""
        return self.source == self.target


@frozen
class PipeSchedule:
    """The complete schedule of a kernel on a pipe machine."""

    binding: Binding
    loops: tuple[LoopSchedule, ...]
    rings: tuple[BufferRing, ...]
    flags: tuple[Flag, ...] = ()

    @property
    def digest(self) -> str:
        """Twelve hex digits that identify the schedule by content."""
        return digest(self)

    def loop(self, loop_id: str) -> LoopSchedule:
        """The schedule of a loop body; KeyError where there is none."""
        for each in self.loops:
            if each.loop == loop_id:
                return each
        raise KeyError(loop_id)

    def ring(self, buffer: str) -> BufferRing | None:
        """The ring of a buffer, or None."""
        return next((ring for ring in self.rings if ring.buffer == buffer), None)


def show_pipe_schedule(schedule: PipeSchedule) -> str:
    """The schedule as indented text; all times are predicted."""
    return "\n".join(_lines(schedule)) + "\n"


def _lines(schedule: PipeSchedule) -> Iterator[str]:
    binding = schedule.binding
    sizes = "".join(f" {name}={value}" for name, value in binding.params)
    yield f"pipe schedule {schedule.digest} of {binding.kernel} on {binding.machine}{sizes}"
    for loop in schedule.loops:
        what = f"loop {loop.loop}" if loop.loop else "kernel"
        proof = "proven" if loop.proven else f"not proven, at least {loop.bound}"
        yield f"  {what}: interval {loop.interval} ({proof}), {loop.latency} cycles (predicted)"
        for task in loop.tasks:
            late = f", issued {task.stage} iterations late" if task.stage else ""
            yield f"    {task.node}: start {task.start}, stage {loop.stage(task)}{late}"
    for ring in schedule.rings:
        if ring.manual:
            how = "indexed by the kernel"
        elif ring.owners:
            how = f"by {ring.mode} of {', '.join(ring.owners)}"
        else:
            how = "no owner"
        yield f"  buffer {ring.buffer}: {ring.versions} version(s), {how}"
    for flag in schedule.flags:
        what = "barrier" if flag.barrier else "flag"
        ids = f"{flag.event}" + (f"..{flag.event + flag.versions - 1}" * (flag.versions > 1))
        start = ", set at start" if flag.initial else ""
        yield (
            f"  {what} {flag.source} -> {flag.target} [{ids}] in {flag.loop or 'kernel'}: "
            f"after {flag.before}, ahead of {flag.after}{start}"
        )
