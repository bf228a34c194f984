"""What one block of a pipe machine issues: ops and flags, in order, pipe by pipe.

The scalar unit walks the kernel in the schedule's order and hands every op to its pipe. It decides
guards, loop bounds and the slots of buffers; pipes only execute.

Invariant: for every flag id, sets and waits alternate in issue order when the initial sets and the
final waits are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from attrs import define, field, frozen

from explorer.expr import Cond, evaluate, holds
from explorer.ir.annotations import IndexMode
from explorer.ir.nodes import Define, Kernel, Loop, Op
from explorer.ir.task_tree import LoopNode, PipeNode, TaskNode, task_tree, tasks
from explorer.machine import Pipe
from explorer.schedule.pipe import BufferRing, Flag, LoopSchedule, PipeSchedule


@frozen(eq=False)
class Run:
    """Execute an op with those scalars; `slots` gives the version of every ring buffer.

    An op outside every owner of its target writes `every_version`. A `fetch` only reads the
    operands in L1; the Run with the same `token` computes on what was fetched.
    """

    op: Op
    pipe: Pipe
    scalars: Mapping[str, int]
    slots: Mapping[str, int]
    every_version: bool = False
    fetch: bool = False
    token: int = -1


@frozen
class SetFlag:
    """Let the target pipe pass the wait for this id, when the source pipe gets here."""

    source: Pipe
    target: Pipe
    event: int

    @property
    def pipe(self) -> Pipe:
        """The pipe that executes it."""
        return self.source


@frozen
class WaitFlag:
    """Hold the target pipe until this id is set, and take the set back."""

    source: Pipe
    target: Pipe
    event: int

    @property
    def pipe(self) -> Pipe:
        """The pipe that executes it."""
        return self.target


@frozen
class PipeBarrier:
    """Hold a pipe until all that it was given before is finished."""

    pipe: Pipe


Issue: TypeAlias = Run | SetFlag | WaitFlag | PipeBarrier


def issue(
    kernel: Kernel,
    schedule: PipeSchedule,
    pipes: Mapping[str, tuple[Pipe, ...]],
    block: Mapping[str, int],
) -> Iterator[Issue]:
    """The instructions of one block; `pipes` gives the pipes of every op."""
    yield from _Issuer(kernel, schedule, pipes).block(block)


@define(eq=False)
class _Issuer:
    kernel: Kernel
    schedule: PipeSchedule
    pipes: Mapping[str, tuple[Pipe, ...]]
    _fetches: int = 0
    _counters: dict[str, int] = field(factory=dict)
    _rings: dict[str, BufferRing] = field(factory=dict)

    def block(self, scalars: Mapping[str, int]) -> Iterator[Issue]:
        self._rings = {ring.buffer: ring for ring in self.schedule.rings}
        self._counters = dict.fromkeys(self._rings, 0)
        crossing = [flag for flag in self.schedule.flags if flag.initial and not flag.barrier]
        for flag in crossing:
            for slot in range(flag.versions):
                yield SetFlag(flag.source, flag.target, flag.event + slot)
        nodes = task_tree(self.kernel)
        yield from self._level("", nodes, [dict(scalars)], 1, ())
        for flag in crossing:
            for slot in range(flag.versions):
                yield WaitFlag(flag.source, flag.target, flag.event + slot)

    # ------------------------------------------------------------ loops

    def _level(
        self,
        loop: str,
        nodes: tuple[PipeNode, ...],
        envs: list[dict[str, int]],
        trips: int,
        path: tuple[tuple[Loop, int], ...],
    ) -> Iterator[Issue]:
        """All iterations of one body, each node as many turns late as its stage."""
        plan = self.schedule.loop(loop)
        order = _issue_order(plan, nodes)
        depth = max((stage for _, stage in order), default=0)
        for turn in range(trips + depth):
            for node, stage in order:
                step = turn - stage
                if 0 <= step < trips:
                    yield from self._node(loop, node, nodes, envs[step], path, step)
            if 0 <= turn - depth < trips:
                self._advance(loop, nodes, envs[turn - depth])

    def _node(
        self,
        level: str,
        node: PipeNode,
        siblings: tuple[PipeNode, ...],
        env: dict[str, int],
        path: tuple[tuple[Loop, int], ...],
        step: int,
    ) -> Iterator[Issue]:
        flags = [flag for flag in self.schedule.flags if flag.loop == level]
        guards = {each.id: each.guards for each in siblings}
        clock = _flattened(path, step)
        for flag in flags:
            if flag.after == node.id and self._active(flag, guards, env):
                if flag.barrier:
                    yield PipeBarrier(flag.source)
                else:
                    yield WaitFlag(flag.source, flag.target, self._event(flag, clock))
        if all(holds(guard, env) for guard in node.guards):
            yield from self._run(node, env, (*path[:-1], (path[-1][0], step)) if path else ())
        for flag in flags:
            if flag.before == node.id and not flag.barrier and self._active(flag, guards, env):
                yield SetFlag(flag.source, flag.target, self._event(flag, clock))

    def _run(
        self, node: PipeNode, env: dict[str, int], path: tuple[tuple[Loop, int], ...]
    ) -> Iterator[Issue]:
        if isinstance(node, LoopNode):
            first = evaluate(node.loop.start, env)
            trips = max(0, evaluate(node.loop.extent, env))
            envs = [env | {node.loop.var: first + step} for step in range(trips)]
            inner = (*path, (node.loop, 0))
            yield from self._level(node.id, node.children, envs, trips, inner)
            return
        slots = {
            region.buffer.name: self._slot(region.buffer.home, node, path)
            for region in (*node.access.reads, *node.access.writes)
            if region.buffer.home in self._rings
        }
        homes = {region.buffer.home for region in (*node.access.reads, *node.access.writes)}
        outside = any(not self._inside(home, node) for home in homes & self._rings.keys())
        scalars = env if isinstance(node.op, Define) else dict(env)
        *fetching, pipe = self.pipes[node.id]
        if not fetching:
            yield Run(node.op, pipe, scalars, slots, outside)
            return
        self._fetches += 1
        yield Run(node.op, fetching[0], scalars, slots, fetch=True, token=self._fetches)
        yield SetFlag(fetching[0], pipe, -self._fetches)
        yield WaitFlag(fetching[0], pipe, -self._fetches)
        yield Run(node.op, pipe, scalars, slots, outside, token=self._fetches)

    # ------------------------------------------------------------ slots

    def _inside(self, buffer: str, node: TaskNode) -> bool:
        ring = self._rings[buffer]
        around = {loop.id for loop in node.loops}
        return not ring.owners or bool(around & set(ring.owners))

    def _slot(self, buffer: str, node: TaskNode, path: tuple[tuple[Loop, int], ...]) -> int:
        ring = self._rings[buffer]
        if ring.manual or not ring.owners or not self._inside(buffer, node):
            return 0
        if ring.mode == IndexMode.COUNTER:
            return self._counters[buffer] % ring.versions
        owner = next(at for at, (loop, _) in enumerate(path) if loop.id in ring.owners)
        return _flattened(path[: owner + 1], path[owner][1]) % ring.versions

    def _event(self, flag: Flag, clock: int) -> int:
        ring = self._rings.get(flag.ring)
        if ring is not None and ring.mode == IndexMode.COUNTER:
            clock = self._counters[flag.ring]
        return flag.event + clock % flag.versions

    def _active(
        self, flag: Flag, guards: Mapping[str, tuple[Cond, ...]], env: Mapping[str, int]
    ) -> bool:
        """Both ends of a flag execute under the guards that their nodes share."""
        shared = [guard for guard in guards[flag.before] if guard in guards[flag.after]]
        return all(holds(guard, env) for guard in shared)

    def _advance(self, loop: str, nodes: tuple[PipeNode, ...], env: Mapping[str, int]) -> None:
        """Count the epochs that ended with this iteration."""
        for ring in self._rings.values():
            if ring.mode != IndexMode.COUNTER or loop not in ring.owners:
                continue
            users = [task.guards for task in tasks(nodes) if _touches(task, ring.buffer)]
            shared = [guard for guard in users[0] if all(guard in each for each in users)]
            if all(holds(guard, env) for guard in shared):
                self._counters[ring.buffer] += 1


def _touches(task: TaskNode, buffer: str) -> bool:
    regions = (*task.access.reads, *task.access.writes)
    return any(region.buffer.home == buffer for region in regions)


def _issue_order(plan: LoopSchedule, nodes: tuple[PipeNode, ...]) -> list[tuple[PipeNode, int]]:
    """Nodes by their time within one interval; of equals, the older iteration first."""
    place = {task.node: task for task in plan.tasks}
    return sorted(
        ((node, place[node.id].stage) for node in nodes),
        key=lambda each: (
            place[each[0].id].start - each[1] * plan.interval,
            -each[1],
        ),
    )


def _flattened(path: tuple[tuple[Loop, int], ...], step: int) -> int:
    """The index of an iteration over all loops around it."""
    index = 0
    for loop, at in path[:-1]:
        index = (index + at) * _extent(path, loop)
    return index + step


def _extent(path: tuple[tuple[Loop, int], ...], loop: Loop) -> int:
    """The trip count of the loop inside `loop` on a path of loops with constant extents."""
    inner = path[[each.id for each, _ in path].index(loop.id) + 1][0]
    try:
        return evaluate(inner.extent)
    except KeyError:
        return 1
