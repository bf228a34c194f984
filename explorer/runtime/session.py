"""A session with one device: candidates are built here, checked and timed in its worker process.

Invariant: whatever a kernel or a user's function does in the worker costs that worker alone; the
candidate gets an outcome and the next one a fresh worker. One measurement or race runs at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from threading import Lock
from typing import Self

from attrs import evolve

from explorer.errors import EnvironmentFault, ExplorerError, InputError
from explorer.machine import Machine
from explorer.records import CompileFailed, Crashed, Outcome, TimedOut
from explorer.runtime.backend import toolchain_of
from explorer.runtime.compiler import COMPILE_LIMIT_S, Built
from explorer.runtime.host import device_name
from explorer.runtime.process import Worker
from explorer.runtime.protocol import (
    Began,
    Closed,
    Command,
    Doing,
    Ended,
    Measure,
    Message,
    NoAnswer,
    Race,
    Raced,
    Ready,
    Refused,
    Start,
)
from explorer.runtime.tensors import require_memory
from explorer.runtime.workloads import load_workload
from explorer.schedule.bound import Schedule
from explorer.space import Problem

START_LIMIT_S = 300.0
INPUT_SEED = 20240
GRACE_S = 1.0
COMPILE_LEAST_S = 10.0


class Host:
    """What the sessions of one process share: the compilers, and a worker between two problems.

    A worker that has answered everything serves the next problem, with its imports and its device
    context; a session without a host of its own ends both.
    """

    def __init__(self, machine: Machine) -> None:
        self.toolchain = toolchain_of(machine)
        self._idle: list[Worker] = []

    def worker(self) -> Worker:
        """A worker without a problem."""
        while self._idle:
            worker = self._idle.pop()
            if worker.running:
                return worker
            worker.kill()
        return Worker()

    def keep(self, worker: Worker) -> None:
        """Take a worker back that has answered everything."""
        self._idle.append(worker)

    def close(self) -> None:
        """End the idle workers, which have nothing left to say, and the compilers."""
        for worker in self._idle:
            worker.kill()
        self._idle.clear()
        self.toolchain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Session:
    """Builds and measures schedules of one problem on one machine; a context manager.

    `tolerance` bounds ||out - ref|| / ||ref||, `limit_s` the time of every step of a measurement.
    By `deadline`, a time.monotonic(), the first worker must be ready; compilers end soon after it.
    EnvironmentFault where the compiler is missing, InputError where the memory is too small.
    """

    def __init__(
        self,
        workload_ref: str,
        problem: Problem,
        machine: Machine,
        tolerance: float,
        limit_s: float,
        deadline: float = math.inf,
        host: Host | None = None,
    ) -> None:
        self._ref, self._problem, self._machine = workload_ref, problem, machine
        self._tolerance, self._limit_s = tolerance, limit_s
        self._workload = load_workload(workload_ref)
        self._shared = host is not None
        self._host = host or Host(machine)
        self._toolchain = self._host.toolchain
        self._device = device_name(machine.name)
        self._kernel = self._workload.trace(problem)
        require_memory(self._kernel)
        self._worker: Worker | None = None
        self._ready = self._asked = False
        self._deadline = self._start_by = deadline
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and self._shared and self._ready and not self._asked:
            self._host.keep(worker)
        elif worker is not None:
            worker.close()
        if not self._shared:
            self._host.close()

    @property
    def peer_name(self) -> str | None:
        """The library that is timed beside the candidates, or None."""
        peer = self._workload.peer(self._machine.name, self._problem.dtype)
        return peer.name if peer else None

    @property
    def device(self) -> str:
        """The device's name."""
        return self._device

    @property
    def toolchain(self) -> str:
        """The compiler's version line."""
        return self._toolchain.version

    def build(self, schedule: Schedule) -> Built | CompileFailed:
        """The compiled kernel of a schedule. Safe to call from several threads."""
        left_s = max(COMPILE_LEAST_S, self._deadline - time.monotonic())
        return self._toolchain.build(self._kernel, schedule, min(COMPILE_LIMIT_S, left_s))

    def measure(self, built: Built, repeats: int) -> Outcome:
        """Check the result on poisoned outputs, then take `repeats` samples."""
        with self._lock:
            outcome = self._measure(Measure(str(built.library), repeats))
            if isinstance(outcome, TimedOut):
                return evolve(outcome, report=self._witness(built) or outcome.report)
            return outcome

    def race(
        self, builts: Sequence[Built], rounds: int, with_peer: bool
    ) -> list[tuple[float, ...] | None]:
        """Samples in microseconds per entry, taken in turns, the peer's last.

        None for an entry that failed, and for the peer where there is none; a failure costs a new
        worker and a new race of the others.
        """
        with self._lock:
            return self._race(builts, rounds, with_peer)

    # ------------------------------------------------------------ conversation

    def _witness(self, built: Built) -> str:
        """Who waits for what when a kernel hangs; empty where its own report says so already."""
        bounded = self._toolchain.bounded(built)
        if bounded is None:
            return ""
        outcome = self._measure(Measure(str(bounded.library), 1))
        return outcome.report if isinstance(outcome, TimedOut) else ""

    def _measure(self, request: Measure) -> Outcome:
        try:
            self._ask(request)
            while True:
                reply = self._reply()
                if isinstance(reply, Ended):
                    failed = isinstance(reply.outcome, Crashed | TimedOut)
                    self._asked = False
                    if failed and not self._toolchain.survives_failure:
                        self._drop()
                    return reply.outcome
        except NoAnswer:
            self._drop()
            return TimedOut(self._limit_s, "no wait gave up: it did not stop computing")
        except Closed:
            return Crashed(self._drop())

    def _race(
        self, builts: Sequence[Built], rounds: int, with_peer: bool
    ) -> list[tuple[float, ...] | None]:
        count = len(builts) + with_peer
        running = list(range(count))
        while running:
            paths = tuple(str(builts[i].library) for i in running if i < len(builts))
            peer = with_peer and running[-1] == len(builts)
            at = 0
            try:
                self._ask(Race(paths, rounds, peer))
                while True:
                    reply = self._reply()
                    if isinstance(reply, Began):
                        at = reply.entry
                    if isinstance(reply, Raced):
                        self._asked = False
                        found = dict(zip(running, reply.samples_us, strict=True))
                        return [found.get(entry) for entry in range(count)]
            except (NoAnswer, Closed):
                self._drop()
                del running[at]
        return [None] * count

    def _begin(self) -> None:
        self._worker = self._host.worker()
        self._ready = False
        self._worker.send(
            Start(
                self._ref,
                self._problem.sizes,
                self._problem.dtype.name,
                self._machine.name,
                self._tolerance,
                self._limit_s,
                INPUT_SEED,
            )
        )

    def _ask(self, request: Command) -> None:
        if self._worker is None:
            self._begin()
        if not self._ready:
            self._await_ready()
        assert self._worker is not None
        self._worker.send(request)
        self._asked = True

    def _await_ready(self) -> None:
        assert self._worker is not None
        started = time.monotonic()
        end, doing = min(started + START_LIMIT_S, self._start_by), "loading the workload"
        try:
            while True:
                left_s = max(0.0, end - time.monotonic())
                reply = self._worker.channel.receive(left_s)
                if not isinstance(reply, Doing):
                    break
                doing = reply.what
        except NoAnswer:
            self._drop()
            raise ExplorerError(self._late(doing, end)) from None
        except Closed:
            how = self._drop()
            raise ExplorerError(f"the worker process died {doing}: {how}") from None
        if not isinstance(reply, Ready):
            self._refuse(reply)
        self._ready = True
        # Its successors, after a crash, must not cost a run what it has found.
        self._start_by = math.inf

    def _late(self, doing: str, end: float) -> str:
        if end < self._start_by:
            return f"the worker process was still {doing} after {START_LIMIT_S:g} s"
        return (
            f"the time was spent while the worker process was {doing}, before any candidate was "
            "measured; --seconds gives more, --size makes the problem smaller"
        )

    def _reply(self) -> Message:
        assert self._worker is not None
        reply = self._worker.channel.receive(self._limit_s + GRACE_S)
        if isinstance(reply, Refused):
            self._refuse(reply)
        return reply

    def _refuse(self, reply: Message) -> None:
        self._drop()
        if not isinstance(reply, Refused):
            raise ExplorerError(f"the worker process answered {type(reply).__name__}")
        raise (EnvironmentFault if reply.fault else InputError)(reply.message)

    def _drop(self) -> str:
        """End the worker; why it had died, if it had."""
        worker, self._worker = self._worker, None
        self._ready = self._asked = False
        if worker is None:
            return "no worker"
        how = worker.how_it_ended() if not worker.alive else "stopped"
        worker.kill()
        return how
