"""Executes a pipe schedule on NumPy arrays, pipes running at random speeds.

An op reads when it starts and writes when it ends. The scalar, vector and matrix pipes finish an
op before they start the next; the others may overlap their ops. What a missing flag lets through
is a stale value in the result, a flag that is set twice, or pipes that wait for ever.

Invariant: the interleaving is a function of the seed; nothing of the analysis that placed the
flags is used here.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from attrs import define, field, frozen

from explorer.errors import KernelError
from explorer.expr import evaluate
from explorer.ir.access import access, outputs
from explorer.ir.interpreter import execute, grid_points, poisoned, seen
from explorer.ir.nodes import Kernel
from explorer.machine import Pipe, Scope
from explorer.program.pipe_flags import ORDERED
from explorer.program.pipe_issue import Issue, PipeBarrier, Run, SetFlag, WaitFlag, issue
from explorer.schedule.pipe import PipeSchedule

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@frozen(eq=False)
class PipeOutcome:
    """The tensors that were written, and the problem that stopped the run, if any."""

    outputs: dict[str, Array]
    problem: str | None = None


def simulate_pipes(
    kernel: Kernel,
    schedule: PipeSchedule,
    pipes: Mapping[str, tuple[Pipe, ...]],
    inputs: Mapping[str, Array],
    seed: int = 0,
) -> PipeOutcome:
    """Run a concrete kernel under a schedule; `inputs` are not modified."""
    tensors: dict[str, Array] = {}
    written = outputs(kernel)
    for tensor in kernel.tensors:
        shape = tuple(evaluate(size) for size in tensor.shape)
        given = inputs.get(tensor.name)
        if given is None and tensor not in written:
            raise KernelError(f"kernel '{kernel.name}': no array for tensor '{tensor.name}'")
        start = poisoned(shape, tensor.dtype)
        tensors[tensor.name] = start if given is None else np.asarray(given, start.dtype).copy()
    draw = random.Random(seed)
    for block in grid_points(kernel, {}):
        run = _Block(_memory(kernel, schedule, tensors), draw)
        problem = run.execute(list(issue(kernel, schedule, pipes, block)))
        if problem is not None:
            return PipeOutcome({}, problem)
    return PipeOutcome({tensor.name: tensors[tensor.name] for tensor in written})


def _memory(
    kernel: Kernel, schedule: PipeSchedule, tensors: Mapping[str, Array]
) -> dict[str, list[Array]]:
    memory = {name: [array] for name, array in tensors.items()}
    for buffer in kernel.buffers:
        ring = schedule.ring(buffer.name)
        count = ring.versions if ring is not None and not ring.manual else 1
        shape = tuple(evaluate(size) for size in buffer.shape)
        if buffer.storage:
            memory[buffer.name] = [seen(each, buffer, shape) for each in memory[buffer.storage]]
        else:
            memory[buffer.name] = [poisoned(shape, buffer.dtype) for _ in range(count)]
    return memory


@frozen(eq=False)
class _Flight:
    """An op that has started: what it will write when it ends."""

    writes: tuple[tuple[Array, Array, Array], ...]

    def land(self) -> None:
        for target, mask, values in self.writes:
            target[mask] = values[mask]


@define(eq=False)
class _Lane:
    queue: deque[Issue] = field(factory=deque)
    flying: list[_Flight] = field(factory=list)


@define(eq=False)
class _Block:
    memory: dict[str, list[Array]]
    draw: random.Random
    flags: set[tuple[Pipe, Pipe, int]] = field(factory=set)
    lanes: dict[Pipe, _Lane] = field(factory=dict)
    fetched: dict[int, dict[str, Array]] = field(factory=dict)
    speed: dict[Pipe, float] = field(factory=dict)

    def execute(self, stream: list[Issue]) -> str | None:
        """Run all instructions; the first problem in one line, or None."""
        for each in stream:
            self.lanes.setdefault(each.pipe, _Lane()).queue.append(each)
        # Some pipes are much slower than others, so that one can fall several iterations behind.
        self.speed = {pipe: 10 ** -self.draw.uniform(0, 2) for pipe in self.lanes}
        while True:
            able = [pipe for pipe, lane in self.lanes.items() if self._can_start(pipe, lane)]
            landing = [pipe for pipe, lane in self.lanes.items() if lane.flying]
            if not able and not landing:
                break
            moves = (*able, *landing)
            weights = [self.speed[pipe] for pipe in moves]
            (pick,) = self.draw.choices(range(len(moves)), weights)
            if pick < len(able):
                problem = self._start(able[pick])
                if problem is not None:
                    return problem
            else:
                lane = self.lanes[landing[pick - len(able)]]
                lane.flying.pop(self.draw.randrange(len(lane.flying))).land()
        return self._left()

    def _left(self) -> str | None:
        stuck = {pipe: lane.queue[0] for pipe, lane in self.lanes.items() if lane.queue}
        if stuck:
            heads = ", ".join(f"{pipe} at {head}" for pipe, head in stuck.items())
            return f"pipe-deadlock: {heads}"
        if self.flags:
            source, target, event = sorted(self.flags)[0]
            return f"pipe-flags: flag {event} from {source} to {target} is left set at the end"
        return None

    def _can_start(self, pipe: Pipe, lane: _Lane) -> bool:
        if not lane.queue:
            return False
        match lane.queue[0]:
            case WaitFlag(source, target, event):
                return (source, target, event) in self.flags
            case SetFlag() | PipeBarrier():
                return not lane.flying
            case _:
                return not (pipe in ORDERED and lane.flying)

    def _start(self, pipe: Pipe) -> str | None:
        lane = self.lanes[pipe]
        match lane.queue.popleft():
            case WaitFlag(source, target, event):
                self.flags.remove((source, target, event))
            case SetFlag(source, target, event):
                if (source, target, event) in self.flags:
                    return f"pipe-flags: flag {event} from {source} to {target} is set twice"
                self.flags.add((source, target, event))
            case Run() as run:
                lane.flying.append(self._launch(run))
        return None

    def _launch(self, run: Run) -> _Flight:
        """Compute on copies; what changed is written when the op ends."""
        if run.fetch:
            self.fetched[run.token] = {
                region.buffer.name: self.memory[region.buffer.name][
                    run.slots.get(region.buffer.name, 0)
                ].copy()
                for region in access(run.op).reads
                if region.buffer.scope == Scope.L1
            }
            return _Flight(())
        operands = self.fetched.pop(run.token, {})
        copies: dict[str, tuple[Array, Array]] = {}

        def view(name: str) -> Array:
            if name in operands:
                return operands[name]
            if name not in copies:
                source = self.memory[name][run.slots.get(name, 0)]
                copies[name] = (source, source.copy())
            return copies[name][1]

        execute(run.op, dict(run.scalars), view)
        writes = []
        for name, (source, copy) in copies.items():
            changed = _bits(copy) != _bits(source)
            if changed.any():
                targets = self.memory[name] if run.every_version else [source]
                writes += [(target, changed, copy) for target in targets]
        return _Flight(tuple(writes))


def _bits(array: Array) -> Array:
    whole = np.ascontiguousarray(array)
    return whole.view(f"u{whole.dtype.itemsize}").reshape(array.shape)
