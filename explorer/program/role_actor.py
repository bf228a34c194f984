"""One role of one block as an actor of the simulator.

Invariant: `step` performs at most one step of the role's program; a role that waits is blocked
until `can_go`, and its counters are those of the program's law of cycles (`program.events`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial

from explorer.expr import evaluate, holds
from explorer.ir.interpreter import execute
from explorer.ir.nodes import Copy, Define
from explorer.program.barrier import Barrier, join
from explorer.program.counts import arrivals
from explorer.program.events import Leaf, RoleCycles, leaves, parity, slot
from explorer.program.flights import Flight
from explorer.program.launch import tiles_of
from explorer.program.machine_state import BlockState, World
from explorer.program.nodes import (
    Cycle,
    Drain,
    Exec,
    RoleProgram,
    Signal,
    Skip,
    Ticket,
    Use,
    Wait,
)
from explorer.program.touches import Toucher
from explorer.program.verdict import Array, Blocked, FaultFound, Unbalanced
from explorer.schedule.extensions import CopyRoute


class RoleActor:
    """A role on its way through its program."""

    def __init__(self, world: World, block: BlockState, role: RoleProgram) -> None:
        self.world = world
        self.block = block
        self.role = role
        self.name = role.role.name
        self.actor = f"{block.number}.{self.name}"
        self.threads = role.role.warps * block.program.threads_per_warp
        self.cycles = RoleCycles()
        self.clock: dict[str, int] = {}
        self.scalars: dict[str, int] = {}
        self.private = block.private_arrays(role.private)
        self.steps = self._steps()
        self.waiting: tuple[Wait, int, Barrier, int] | None = None
        self.issued: dict[str, int] = {}
        self.matrix: deque[tuple[Flight, dict[str, int]]] = deque()
        self.deferred: list[tuple[Flight, dict[str, int]]] = []
        self.touchers: dict[int, Toucher] = {}

    def _steps(self) -> Iterator[Leaf]:
        for tile in tiles_of(self.block.program, self.block.number, self.world.scalars):
            self.scalars.clear()
            self.scalars.update(self.world.scalars)
            self.scalars.update(tile)
            self.private = self.block.private_arrays(self.role.private)
            yield from leaves(self.role.body, self.scalars)

    def step(self) -> str:
        """Make one step: "moved", "blocked" or "done"."""
        if self.waiting is not None:
            if not self.can_go():
                return "blocked"
            self._pass_wait()
            return "moved"
        step = next(self.steps, None)
        match step:
            case None:
                return "done"
            case Wait():
                return self._wait(step)
            case Signal():
                self._signal(step)
            case Skip(pipeline, full, count):
                self.cycles.side(pipeline, full).next += evaluate(count, self.scalars)
            case Drain(pending):
                self._drain(pending)
            case Ticket(last):
                alone = not holds(step.shared, self.scalars)
                self.scalars[last] = int(alone or self._draw(step))
            case Exec():
                self._exec(step)
        return "moved"

    def _draw(self, step: Ticket) -> bool:
        slot, share = evaluate(step.slot, self.scalars), self.role.share[0]
        return self.world.draw(slot, share, step.parts, self.clock)

    # ------------------------------------------------------------ waits and signals

    def _wait(self, step: Wait) -> str:
        depth = self.block.depths[step.pipeline]
        cycle = self.cycles.side(step.pipeline, step.full).open()
        barrier = self.block.barriers[(step.pipeline, step.full, slot(cycle, depth))]
        self.waiting = (step, cycle, barrier, parity(cycle, depth, step.full))
        if not self.can_go():
            return "blocked"
        self._pass_wait()
        return "moved"

    def can_go(self) -> bool:
        """Whether the barrier that the role waits for lets it through."""
        assert self.waiting is not None
        _, _, barrier, at = self.waiting
        return barrier.passes(at)

    def _pass_wait(self) -> None:
        assert self.waiting is not None
        join(self.clock, self.waiting[2].known)
        self.waiting = None

    def blocked(self) -> Blocked:
        """Where the role waits."""
        assert self.waiting is not None
        step, cycle, _, at = self.waiting
        where = slot(cycle, self.block.depths[step.pipeline])
        return Blocked(self.block.number, self.name, step.pipeline, step.full, where, at, cycle)

    def _signal(self, step: Signal) -> None:
        side = self.cycles.side(step.pipeline, not step.full)
        if not side.unclosed:
            raise FaultFound(self._unbalanced(step.pipeline, "commit" if step.full else "release"))
        cycle = side.close()
        count = arrivals(step, self.threads)
        if step.deferred:
            count -= self.threads
            self._arrive_behind(step, cycle, self.threads, self.deferred)
            self.deferred = []
        if step.matrix:
            count -= 1
            self._arrive_behind(step, cycle, 1, self.matrix)
        if not count:
            return
        self._arrive(step.pipeline, step.full, cycle, count, 0, self.clock)
        for other in self.block.cluster(step.blocks):
            if other is not self.block:
                clock = dict(self.clock)
                arrive = partial(
                    other.arrive, self.name, step.pipeline, step.full, cycle, count, 0, clock
                )
                self.world.flights.add(arrive)

    def _arrive_behind(
        self, step: Signal, cycle: int, count: int, work: Iterable[tuple[Flight, dict[str, int]]]
    ) -> None:
        """Arrive when asynchronous work that was issued before is done."""
        flights = tuple(flight for flight, _ in work)
        clocks = [clock for _, clock in work]
        late = partial(self._arrive_late, step, cycle, count, dict(self.clock), clocks)
        self.world.flights.add(late, flights)

    def _arrive_late(
        self,
        step: Signal,
        cycle: int,
        count: int,
        clock: dict[str, int],
        copies: list[dict[str, int]],
    ) -> None:
        for each in copies:
            join(clock, each)
        self._arrive(step.pipeline, step.full, cycle, count, 0, clock)

    def _arrive(
        self,
        pipeline: str,
        full: bool,
        cycle: int,
        count: int,
        landed: int,
        clock: dict[str, int],
    ) -> None:
        self.block.arrive(self.name, pipeline, full, cycle, count, landed, clock)

    def _tick(self) -> int:
        tick = self.clock.get(self.actor, 0) + 1
        self.clock[self.actor] = tick
        return tick

    def _unbalanced(self, pipeline: str, step: str) -> Unbalanced:
        return Unbalanced(self.block.number, self.name, pipeline, step)

    # ------------------------------------------------------------ ops

    def _exec(self, step: Exec) -> None:
        cycles = {(use.buffer, use.pipeline): self._cycle(use, step) for use in step.uses}
        if step.route in (CopyRoute.BULK, CopyRoute.ASYNC):
            self._send_copy(step, cycles)
        elif step.asynchronous:
            self._send_matrix(step, cycles)
        else:
            tick = self._tick()
            self._toucher(self.block).touch(
                step, cycles, self.actor, tick, self.clock, self.scalars
            )
            self._run(step, cycles, self.scalars)

    def _toucher(self, block: BlockState) -> Toucher:
        """What checks and records this role's accesses to a block's memory, and outside it."""
        number = block.number
        if number not in self.touchers:
            self.touchers[number] = Toucher(self.world, number, self.name)
        return self.touchers[number]

    def _cycle(self, use: Use, step: Exec) -> int:
        side = self.cycles.standing(use.pipeline)
        if use.cycle == Cycle.NEXT:
            return side.next if side else 0
        if use.cycle == Cycle.LAST:
            return side.last_closed if side else -1
        if side is None or not side.unclosed:
            raise FaultFound(self._unbalanced(use.pipeline, f"op '{step.op.id}'"))
        return side.unclosed[-1]

    def _run(
        self,
        step: Exec,
        cycles: dict[tuple[str, str], int],
        scalars: dict[str, int],
        block: BlockState | None = None,
    ) -> None:
        """The op's effect, on the shared memory of its own or another block."""
        if not self.world.data and not isinstance(step.op, Define):
            return
        where = block or self.block
        execute(step.op, scalars, lambda name: self._view(name, cycles, where))

    def _view(self, name: str, cycles: dict[tuple[str, str], int], block: BlockState) -> Array:
        if name in self.private:
            return self.private[name]
        ring = block.rings.get(name)
        if ring is None or not self.world.data:
            return self.world.tensors[name]
        at = tuple(cycles[(name, pipeline)] % depth for pipeline, depth in ring.levels)
        array: Array = block.arrays[name][at]
        return array

    # ------------------------------------------------------------ asynchronous work

    def _send_copy(self, step: Exec, cycles: dict[tuple[str, str], int]) -> None:
        assert isinstance(step.op, Copy)
        scalars = dict(self.scalars)
        slots = tuple(cycle % self.block.depths[name] for (_, name), cycle in cycles.items())
        engine = f"{self.actor}.{step.op.id}.{slots}"
        if step.route == CopyRoute.ASYNC:
            tick = self._issue(engine)
            self._toucher(self.block).touch(step, cycles, engine, tick, self.clock, scalars)
            flight = self.world.flights.add(partial(self._run, step, cycles, scalars))
            self.deferred.append((flight, {engine: tick}))
            return
        target = self._counted(step, cycles)
        size = _bytes_of(step.op, scalars)
        if target is not None:
            pipeline, cycle = target
            at = slot(cycle, self.block.depths[pipeline])
            self.block.barriers[(pipeline, True, at)].expect(size * step.multicast)
        for block in self.block.cluster(step.multicast):
            # What has landed in one block says nothing about the others.
            landing = f"{engine}>{block.number}"
            tick = self._issue(landing)
            self._toucher(block).touch(step, cycles, landing, tick, self.clock, scalars)
            clock = {**self.clock, landing: tick}
            self.world.flights.add(
                partial(self._land, block, step, cycles, scalars, target, size, clock)
            )

    def _land(
        self,
        block: BlockState,
        step: Exec,
        cycles: dict[tuple[str, str], int],
        scalars: dict[str, int],
        target: tuple[str, int] | None,
        size: int,
        clock: dict[str, int],
    ) -> None:
        """A bulk copy, or its part for another block of the cluster, arrives there."""
        self._run(step, cycles, scalars, block)
        if target is not None:
            block.arrive(self.name, target[0], True, target[1], 0, size, clock)

    def _issue(self, engine: str) -> int:
        self.issued[engine] = self.issued.get(engine, 0) + 1
        return self.issued[engine]

    def _counted(self, step: Exec, cycles: dict[tuple[str, str], int]) -> tuple[str, int] | None:
        """The innermost pipeline that counts a bulk copy, and the cycle: one the role produces."""
        assert isinstance(step.op, Copy)
        for use in reversed(step.uses):
            producing = (use.pipeline, False) in self.cycles.sides
            if use.buffer == step.op.dst.buffer.name and use.cycle == Cycle.OPEN and producing:
                return use.pipeline, cycles[(use.buffer, use.pipeline)]
        return None

    def _send_matrix(self, step: Exec, cycles: dict[tuple[str, str], int]) -> None:
        scalars = dict(self.scalars)
        engine = f"{self.actor}.matrix"
        tick = self._issue(engine)
        clock = {**self.clock, engine: tick}
        self._toucher(self.block).touch(step, cycles, engine, tick, clock, scalars)
        before = (self.matrix[-1][0],) if self.matrix else ()
        flight = self.world.flights.add(partial(self._run, step, cycles, scalars), before)
        self.matrix.append((flight, {engine: tick}))

    def _drain(self, pending: int) -> None:
        """Let all but the last `pending` matrix ops complete, oldest first."""
        while len(self.matrix) > pending:
            flight, clock = self.matrix.popleft()
            if not flight.landed:
                self.world.flights.complete(flight)
            join(self.clock, clock)


def _bytes_of(op: Copy, scalars: dict[str, int]) -> int:
    elements = 1
    for extent in op.dst.extent:
        elements *= evaluate(extent, scalars)
    return -(-elements * op.dst.buffer.dtype.bits // 8)
