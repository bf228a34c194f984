"""A barrier-level simulator: executes a program under one interleaving and looks for faults.

Roles are actors that a seeded scheduler moves one step at a time, among them bulk copies, cp.async
copies and asynchronous matrix ops that complete at a time of the scheduler's choice. Barriers are
those of the hardware (`program.barrier`); races are found by happens-before
(`program.memory_model`), so that a missing barrier shows whatever order the run took.

Invariant: no rule of `constraints` is consulted; a verdict follows from the program's steps alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.program.launch import block_count
from explorer.program.machine_state import BlockState, World
from explorer.program.nodes import Program
from explorer.program.policy import Policy
from explorer.program.role_actor import RoleActor
from explorer.program.verdict import FaultFound, Finished, Hang, Verdict


def simulate(
    program: Program,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    seed: int = 0,
    scalars: Mapping[str, int] | None = None,
) -> Verdict:
    """Run a program on `inputs` (by tensor name) under the interleaving of `seed`.

    Tensors that are not given start poisoned. `scalars` gives run-time integers. Finished carries
    all tensors as they are after the run; `inputs` are not modified.
    """
    tensors = {name: np.array(array) for name, array in inputs.items()}
    return _run(program, World(program, tensors, dict(scalars or {})), seed)


def trace(program: Program, seed: int = 0, scalars: Mapping[str, int] | None = None) -> Verdict:
    """The same without data: barriers, counts and races only.

    KeyError if a condition depends on data.
    """
    return _run(program, World(program, None, dict(scalars or {})), seed)


def _run(program: Program, world: World, seed: int) -> Verdict:
    try:
        for block in range(block_count(program, world.scalars)):
            world.add_block(BlockState(program, block, world))
        _Scheduler(world, Policy(seed)).run()
        world.close()
    except FaultFound as found:
        return found.fault
    inner = {buffer.name for buffer in program.workspace}
    return Finished(tuple((k, v) for k, v in sorted(world.tensors.items()) if k not in inner))


class _Scheduler:
    """Moves roles and asynchronous work until all roles are done or none can go on."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.world = world
        self.policy = policy
        self.ready: list[RoleActor] = [
            RoleActor(world, block, role) for block in world.blocks for role in block.program.roles
        ]
        self.waiting: list[RoleActor] = []

    def run(self) -> None:
        flights = self.world.flights
        while self.ready or flights.completable():
            choices = flights.completable()
            if not self.ready or (choices and self.policy.completes(len(self.ready))):
                flights.complete(self.policy.pick(choices))
            else:
                self.move(self.policy.actor(self.ready))
            self.wake()
        if self.waiting:
            blocked = tuple(actor.blocked() for actor in self.waiting)
            raise FaultFound(Hang(blocked))

    def move(self, actor: RoleActor) -> None:
        state = actor.step()
        if state == "done":
            self.ready.remove(actor)
        elif state == "blocked":
            self.ready.remove(actor)
            self.waiting.append(actor)

    def wake(self) -> None:
        if not self.world.changed:
            return
        self.world.changed = False
        still: list[RoleActor] = []
        for actor in self.waiting:
            (self.ready if actor.can_go() else still).append(actor)
        self.waiting = still


__all__ = ["simulate", "trace"]
