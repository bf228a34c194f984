"""The schedule of a kernel on a pipe machine: owners, dependences, intervals, versions, flags.

Loops are scheduled from the inside out; an inner loop is one task of the loop around it. The
annotations of the kernel are consumed: the result's rings replace them.

Invariant: every figure here is predicted; nothing was run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define, field, frozen

from explorer.constraints.loop_schedule import schedule_line, schedule_loop
from explorer.derive.distances import LoopDependences, loop_dependences
from explorer.derive.eligibility import Ownership, index_mode, ownership, unlimited
from explorer.derive.pipe_costs import OpCost, op_cost
from explorer.derive.ranges import constant
from explorer.errors import ExplorerError, IllegalSchedule, InputError, KernelError
from explorer.expr import evaluate
from explorer.ir.annotations import BufferVersions, IndexMode
from explorer.ir.nodes import Buffer, Kernel, Loop, Map, Reduce, ops
from explorer.ir.task_tree import LoopNode, PipeNode, TaskNode, task_tree, tasks
from explorer.machine import Machine, Pipe, Scope
from explorer.program.pipe_flags import Level, PipeEdge, Site, derive_flags
from explorer.schedule.bound import bind
from explorer.schedule.loop import (
    LineProblem,
    LoopDependence,
    LoopProblem,
    LoopSolution,
    LoopTask,
    MemoryGroup,
    OwnerExclusion,
    SolveStatus,
    VersionRing,
)
from explorer.schedule.pipe import (
    BufferRing,
    LoopSchedule,
    NodeDependence,
    PipeSchedule,
    TaskPlace,
)

_UNLIMITED_BYTES = 1 << 40


@frozen
class PipeResult:
    """A schedule, and what is predicted of it.

    `pipes` gives the pipes of every op, the one that computes last. `bytes_used` are
    (scope, bytes) with all versions counted. `predicted_cycles` is the time of one block.
    `proven` says that every loop's interval is the least possible.
    """

    schedule: PipeSchedule
    pipes: tuple[tuple[str, tuple[Pipe, ...]], ...]
    predicted_cycles: int
    bytes_used: tuple[tuple[Scope, int], ...]
    proven: bool

    @property
    def kernel_annotations(self) -> tuple[BufferVersions, ...]:
        """What replaces the kernel's annotations: the versions selected, modes fixed."""
        return tuple(
            BufferVersions(ring.buffer, ring.versions, ring.mode, not ring.owners)
            for ring in self.schedule.rings
            if not ring.manual
        )


def schedule_pipes(
    kernel: Kernel, machine: Machine, params: Mapping[str, int] | None = None
) -> PipeResult:
    """The schedule of least predicted time of a kernel on a pipe machine.

    `params` fixes the kernel's Params. InputError for a machine with warps; KernelError for an op
    that no pipe runs; IllegalSchedule where the buffers do not fit or no order is legal;
    ExplorerError where that could not be decided.
    """
    sizes = dict(params or {})
    return PipeScheduler(kernel, concrete(kernel, machine, sizes), machine, sizes).run()


def concrete(kernel: Kernel, machine: Machine, sizes: Mapping[str, int]) -> Kernel:
    """The kernel at those sizes, for a pipe machine; an error where it cannot be one."""
    if machine.family != "pipe":
        raise InputError(f"machine '{machine.name}' has no pipes: use explorer tune")
    if kernel.pools:
        raise KernelError(
            f"kernel '{kernel.name}' places buffers in pool '{kernel.pools[0].name}': buffers of "
            f"{machine.name} are placed by its compiler; use T.alloc_shared"
        )
    fixed = kernel.at(**sizes)
    if fixed.params:
        names = ", ".join(fixed.params)
        raise KernelError(f"kernel '{kernel.name}' has open Params {names}: give them sizes")
    return fixed


@define(eq=False)
class PipeScheduler:
    """One kernel: `solve` decides a body, everything else follows."""

    original: Kernel
    kernel: Kernel
    machine: Machine
    sizes: dict[str, int]
    owned: dict[str, Ownership] = field(factory=dict)
    costs: dict[str, OpCost] = field(factory=dict)
    loops: list[LoopSchedule] = field(factory=list)
    levels: list[tuple[str, tuple[PipeNode, ...], LoopDependences]] = field(factory=list)
    versions: dict[str, int] = field(factory=dict)
    cycles: dict[str, int] = field(factory=dict)

    def run(self) -> PipeResult:
        """Schedule all bodies, then derive rings and flags."""
        nodes = task_tree(self.kernel)
        for buffer in self.kernel.buffers:
            if buffer.scope.private and any(True for _ in tasks(nodes)):
                raise KernelError(
                    f"buffer '{buffer.name}': a pipe machine has no {buffer.scope} memory; "
                    "use T.alloc_shared or an L0 buffer"
                )
        self.owned = {item.buffer.name: item for item in ownership(self.kernel, nodes)}
        self.costs = {task.id: op_cost(task.op) for task in tasks(nodes)}
        self._level(None, nodes)
        rings = tuple(self._rings())
        table = {ring.buffer: ring for ring in rings}
        flags = derive_flags(self._flag_levels(), table, self.machine)
        binding = bind(self.original, self.machine.name, self.sizes)
        schedule = PipeSchedule(binding, tuple(reversed(self.loops)), rings, flags)
        return PipeResult(
            schedule,
            tuple((name, cost.pipes) for name, cost in self.costs.items()),
            self.loops[-1].latency,
            self._bytes(table),
            all(loop.proven for loop in self.loops),
        )

    # ------------------------------------------------------------ levels

    def _level(self, loop: Loop | None, nodes: tuple[PipeNode, ...]) -> None:
        """Schedule a body after the bodies inside it."""
        for node in nodes:
            if isinstance(node, LoopNode):
                self._level(node.loop, node.children)
        found = loop_dependences(self.kernel, loop, nodes, self.owned)
        self.levels.append((loop.id if loop else "", nodes, found))
        if not nodes:
            raise KernelError(f"loop '{loop.var if loop else ''}' has an empty body")
        solution = self.solve(loop, nodes, found)
        if not solution.found:
            where = f"loop '{loop.var}'" if loop else "the kernel"
            if solution.status == SolveStatus.UNKNOWN:
                raise ExplorerError(f"{where}: not decided, {solution.reason}")
            raise IllegalSchedule(f"{where}: {solution.reason}")
        self._record(loop, nodes, solution)

    def solve(
        self, loop: Loop | None, nodes: tuple[PipeNode, ...], found: LoopDependences
    ) -> LoopSolution:
        """The schedule of one body."""
        problem = self.problem(loop, nodes, found)
        if isinstance(problem, LineProblem):
            return schedule_line(problem)
        return schedule_loop(problem)

    def problem(
        self, loop: Loop | None, nodes: tuple[PipeNode, ...], found: LoopDependences
    ) -> LoopProblem | LineProblem:
        """What is asked of the loop scheduler for one body."""
        index = {node.id: at for at, node in enumerate(nodes)}
        work = tuple(self._task(node) for node in nodes)
        exclusions = tuple(
            OwnerExclusion(
                index[each.first],
                index[each.second],
                work[index[each.first]].latency,
                work[index[each.second]].latency,
            )
            for each in found.exclusions
        )
        if loop is None:
            edges = tuple(
                LoopDependence(index[e.before], index[e.after], work[index[e.before]].latency)
                for e in found.edges
            )
            return LineProblem(work, edges, exclusions)
        rings, groups, names = self.memory(loop, nodes)
        edges = tuple(self._edge(each, index, work, names) for each in _scheduled(found.edges))
        return LoopProblem(work, edges, exclusions, rings, groups, max(1, loop.num_stages))

    def _task(self, node: PipeNode) -> LoopTask:
        if isinstance(node, TaskNode):
            cost = self.costs[node.id]
            return LoopTask(node.id, cost.latency, cost.interval, cost.pipes, cost.ports)
        inside = [self.costs[task.id] for task in tasks((node,))]
        pipes = tuple(dict.fromkeys(pipe for cost in inside for pipe in cost.pipes))
        ports = tuple(dict.fromkeys(port for cost in inside for port in cost.ports))
        return LoopTask(node.id, self.cycles[node.id], self.cycles[node.id], pipes, ports)

    def _edge(
        self,
        edge: NodeDependence,
        index: Mapping[str, int],
        work: tuple[LoopTask, ...],
        names: Mapping[str, int],
    ) -> LoopDependence:
        before, after = index[edge.before], index[edge.after]
        latency = work[before].latency
        if not edge.carried:
            return LoopDependence(before, after, latency, edge.distance)
        if edge.buffer in names:
            return LoopDependence(before, after, latency, ring=names[edge.buffer])
        return LoopDependence(before, after, latency, self.versions[edge.buffer])

    def memory(
        self, loop: Loop, nodes: tuple[PipeNode, ...]
    ) -> tuple[tuple[VersionRing, ...], tuple[MemoryGroup, ...], dict[str, int]]:
        """The rings that this loop may choose, and what is left of every memory for them."""
        touched = [self.kernel.buffer(name) for name in _homes(nodes)]
        free = {memory.scope: self._capacity(memory.scope) for memory in self.machine.memories}
        rings: list[VersionRing] = []
        scopes: list[Scope] = []
        for buffer in touched:
            item, size = self.owned[buffer.name], _version_bytes(buffer)
            fixed = item.request.versions
            if not any(owner.loop == loop for owner in item.owners):
                free[buffer.scope] -= size
            elif fixed is not None:
                self.versions[buffer.name] = fixed
                free[buffer.scope] -= size * fixed
            else:
                rings.append(VersionRing(buffer.name, size))
                scopes.append(buffer.scope)
        groups = tuple(
            MemoryGroup(scope, left, tuple(i for i, s in enumerate(scopes) if s == scope))
            for scope, left in free.items()
        )
        for group in groups:
            if group.rings and group.capacity_bytes < 0:
                raise IllegalSchedule(
                    f"pipe-memory: buffers without versions and fixed versions take "
                    f"{-group.capacity_bytes} B more than {group.name} has; use smaller tiles, "
                    f'fewer versions, or T.annotate_unlimit_memory("{group.name}")'
                )
        return tuple(rings), groups, {ring.name: at for at, ring in enumerate(rings)}

    def _capacity(self, scope: Scope) -> int:
        memory = self.machine.memory(scope)
        if memory is None or scope in unlimited(self.kernel):
            return _UNLIMITED_BYTES
        threads = any(isinstance(op, Map | Reduce) for op in ops(self.kernel.body))
        reserved = self.machine.simt_reserved_bytes if scope == Scope.SHARED and threads else 0
        return memory.capacity_bytes - reserved

    # ------------------------------------------------------------ results

    def _record(
        self, loop: Loop | None, nodes: tuple[PipeNode, ...], solution: LoopSolution
    ) -> None:
        first = min(solution.starts)
        places = tuple(
            TaskPlace(node.id, start - first, 0)
            for node, start in zip(nodes, solution.starts, strict=True)
        )
        work = {node.id: self._task(node).latency for node in nodes}
        once = max(place.start + work[place.node] for place in places)
        trips = max(1, constant(loop.extent, 1)) if loop else 1
        latency = once + solution.interval * (trips - 1)
        name = loop.id if loop else ""
        self.cycles[name] = max(1, latency)
        proven = solution.status == SolveStatus.OPTIMAL
        self.loops.append(
            LoopSchedule(name, solution.interval, solution.bound, proven, latency, places)
        )
        if loop is not None:
            rings, _, _ = self.memory(loop, nodes)
            for ring, count in zip(rings, solution.versions, strict=True):
                self.versions[ring.name] = max(self.versions.get(ring.name, 1), count)

    def _rings(self) -> Iterator[BufferRing]:
        for name, item in self.owned.items():
            manual = item.request.manual
            if manual is not None:
                yield BufferRing(name, manual, IndexMode.ITERATION, manual=True)
            elif item.owners:
                mode = index_mode(self.kernel, item)
                owners = tuple(owner.id for owner in item.owners)
                yield BufferRing(name, self.versions.get(name, 1), mode, owners)
            else:
                yield BufferRing(name, 1, IndexMode.ITERATION)

    def _flag_levels(self) -> Iterator[Level]:
        for (name, nodes, found), plan in zip(self.levels, self.loops, strict=True):
            places = {place.node: place for place in plan.tasks}
            sites = [
                Site(
                    task.id,
                    node.id,
                    pipe,
                    (places[node.id].start - places[node.id].stage * plan.interval, at, inside),
                    places[node.id].stage,
                )
                for at, node in enumerate(nodes)
                for inside, task in enumerate(tasks((node,)))
                for pipe in self.costs[task.id].pipes
            ]
            sites.sort(key=lambda site: site.place)
            edges = (*found.edges, *_turns(name, found, places))
            yield Level(name, tuple(sites), tuple(self._pipe_edge(edge) for edge in edges))

    def _pipe_edge(self, edge: NodeDependence) -> PipeEdge:
        return PipeEdge(
            edge, self._pipe(edge.producer, edge.buffer), self._pipe(edge.consumer, edge.buffer)
        )

    def _pipe(self, op: str, buffer: str) -> Pipe:
        """The pipe on which an op touches a buffer: operands in L1 are fetched first."""
        pipes = self.costs[op].pipes
        fetched = self.owned[buffer].buffer.scope == Scope.L1 if buffer in self.owned else False
        return pipes[0] if fetched else pipes[-1]

    def _bytes(self, rings: Mapping[str, BufferRing]) -> tuple[tuple[Scope, int], ...]:
        used: dict[Scope, int] = {}
        for buffer in self.kernel.buffers:
            if buffer.storage:
                continue
            ring = rings[buffer.name]
            count = 1 if ring.manual else ring.versions
            aligned = -(-_version_bytes(buffer) // 32) * 32
            used[buffer.scope] = used.get(buffer.scope, 0) + aligned * count
        return tuple(used.items())


def _scheduled(edges: tuple[NodeDependence, ...]) -> Iterator[NodeDependence]:
    """One edge for every pair of nodes, buffer and distance."""
    seen = set()
    for edge in edges:
        key = (edge.before, edge.after, edge.buffer, edge.distance, edge.carried)
        if key not in seen:
            seen.add(key)
            yield edge


def _turns(
    loop: str, found: LoopDependences, start: Mapping[str, TaskPlace]
) -> Iterator[NodeDependence]:
    """Owners of one buffer take turns in the order that the schedule chose."""
    for each in found.exclusions:
        ahead = start[each.first].start <= start[each.second].start
        for one, two in each.pairs:
            ends = (one, two, each.first, each.second)
            if not ahead:
                ends = (two, one, each.second, each.first)
            yield NodeDependence(loop, each.buffer, *ends, distance=0)
            if loop:
                back = (ends[1], ends[0], ends[3], ends[2])
                yield NodeDependence(loop, each.buffer, *back, distance=1)


def _homes(nodes: tuple[PipeNode, ...]) -> tuple[str, ...]:
    """The buffers on the chip whose bytes are touched, in order of first use."""
    found: dict[str, None] = {}
    for task in tasks(nodes):
        for region in (*task.access.reads, *task.access.writes):
            if region.buffer.scope != Scope.GLOBAL:
                found.setdefault(region.buffer.home)
    return tuple(found)


def _version_bytes(buffer: Buffer) -> int:
    return -(-evaluate(buffer.bits) // 8)
