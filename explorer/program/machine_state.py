"""What the simulated machine holds: tensors, and per block its rings, barriers and counters.

Without data (`World.tensors` empty and `World.data` False) nothing is stored but barriers.

Invariant: barriers and on-chip memory belong to one block; events are addressed by (block, role).
A block's memory and barriers are there while any block of its cluster runs: the source lets a
cluster meet before its first step and after its last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import Factory, define

from explorer.expr import evaluate
from explorer.ir.access import access
from explorer.ir.interpreter import poisoned
from explorer.ir.nodes import Buffer
from explorer.program.barrier import Barrier, Clock, join
from explorer.program.flights import Flights
from explorer.program.memory_model import MemoryModel
from explorer.program.nodes import Program
from explorer.program.steps import executed
from explorer.program.verdict import Array, BadCount, FaultFound, OpenTickets


@define
class Tickets:
    """The numbers that the parts of one tile have drawn, and what they had done by then."""

    parts: int
    drawn: int = 0
    known: Clock = Factory(dict)

    def draw(self, clock: Clock) -> bool:
        """Draw the next number, telling and learning what was done; whether it is the last."""
        join(self.known, clock)
        join(clock, self.known)
        self.drawn += 1
        if self.drawn < self.parts:
            return False
        self.drawn = 0
        return True


class World:
    """All blocks of one run, and what they share."""

    def __init__(
        self,
        program: Program,
        tensors: dict[str, np.ndarray[Any, Any]] | None,
        scalars: dict[str, int],
    ) -> None:
        self.program = program
        self.data = tensors is not None
        self.scalars = scalars
        self.flights = Flights()
        self.memory = MemoryModel()
        self.blocks: list[BlockState] = []
        self.changed = False
        execs = [e for role in program.roles for e in executed(role.body)]
        self.written = {r.buffer.name for e in execs for r in access(e.op).writes}
        self.asynchronous = any(e.asynchronous for e in execs)
        self.tensors: dict[str, Array] = {}
        if tensors is not None:
            kept = (*program.tensors, *program.workspace)
            self.tensors = {t.name: self._tensor(t, tensors) for t in kept}
        self.tickets: dict[tuple[int, int], Tickets] = {}

    def draw(self, slot: int, share: int, parts: int, clock: Clock) -> bool:
        """Draw a ticket of a tile for one share of its rows; whether it is the last."""
        return self.tickets.setdefault((slot, share), Tickets(parts)).draw(clock)

    def close(self) -> None:
        """After a launch all numbers have started over; FaultFound for a tile's that have not."""
        for (slot, share), tickets in self.tickets.items():
            if tickets.drawn:
                raise FaultFound(OpenTickets(slot, share, tickets.drawn, tickets.parts))

    def _tensor(self, buffer: Buffer, given: dict[str, Array]) -> Array:
        if buffer.name in given:
            return given[buffer.name]
        return poisoned(self.shape(buffer), buffer.dtype)

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The shape of a buffer as ints."""
        return tuple(evaluate(extent, self.scalars) for extent in buffer.shape)

    def add_block(self, block: BlockState) -> None:
        """Launch one more block."""
        self.blocks.append(block)


class BlockState:
    """Shared memory and barriers of one block."""

    def __init__(self, program: Program, number: int, world: World) -> None:
        self.program = program
        self.number = number
        self.world = world
        self.depths = {b.pipeline: b.depth for b in program.barriers}
        self.barriers = {
            (b.pipeline, full, at): Barrier(b.full_count if full else b.empty_count)
            for b in program.barriers
            for full in (True, False)
            for at in range(b.depth)
        }
        self.rings = {ring.buffer.name: ring for ring in program.rings}
        self.arrays: dict[str, Array] = {}
        if world.data:
            for ring in program.rings:
                depths = tuple(depth for _, depth in ring.levels)
                shape = (*depths, *world.shape(ring.buffer))
                self.arrays[ring.buffer.name] = poisoned(shape, ring.buffer.dtype)

    def cluster(self, blocks: int) -> list[BlockState]:
        """The `blocks` of this block's cluster; itself alone for 1."""
        first = self.number - self.number % blocks
        return self.world.blocks[first : first + blocks]

    def arrive(
        self,
        role: str,
        pipeline: str,
        full: bool,
        cycle: int,
        arrivals: int,
        arrived_bytes: int,
        clock: dict[str, int],
    ) -> None:
        """Arrivals and bytes for one cycle; FaultFound if the barrier does not expect them."""
        depth = self.depths[pipeline]
        at = cycle % depth
        barrier = self.barriers[(pipeline, full, at)]
        if barrier.phase != cycle // depth or arrivals > barrier.pending:
            raise FaultFound(
                BadCount(
                    self.number,
                    role,
                    pipeline,
                    full,
                    at,
                    cycle,
                    arrivals,
                    barrier.pending,
                    barrier.count,
                    barrier.phase,
                )
            )
        if barrier.arrive(arrivals, arrived_bytes, clock):
            self.world.changed = True

    def private_arrays(self, buffers: tuple[Buffer, ...]) -> dict[str, Array]:
        """Fresh, poisoned copies of private buffers."""
        if not self.world.data:
            return {}
        return {b.name: poisoned(self.world.shape(b), b.dtype) for b in buffers}
