"""What the simulated machine holds: tensors, and per block its rings, barriers and counters.

Without data (`World.tensors` empty and `World.data` False) nothing is stored but barriers.

Invariant: barriers and on-chip memory belong to one block; events are addressed by (block, role).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from explorer.expr import evaluate
from explorer.ir.access import access
from explorer.ir.interpreter import poisoned
from explorer.ir.nodes import Buffer
from explorer.program.barrier import Barrier
from explorer.program.flights import Flights
from explorer.program.memory_model import MemoryModel
from explorer.program.nodes import Program
from explorer.program.steps import executed
from explorer.program.verdict import Array, BadCount, FaultFound


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
            self.tensors = {t.name: self._tensor(t, tensors) for t in program.tensors}

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
