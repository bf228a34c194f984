"""Checking and timing in the worker process.

A sample is the mean of as many runs as take SAMPLE_S, one for anything but tiny kernels, by the
monotonic clock, launch and wait included; the peer is timed in the same way. A kernel that takes
longer than SLOW_S has one sample, its second checked run. Peers run on as many
threads as there are cores, each on a core of its own.

Invariant: nothing is timed before its result agreed with the reference, the peer's included, and a
result that is wrong after timing is wrong.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
import threadpoolctl

from explorer.records.outcomes import Crashed, Measured, Outcome, TimedOut, WrongResult
from explorer.runtime.host import usable_cores
from explorer.runtime.library import HungKernel, Library
from explorer.runtime.stage import Stage
from explorer.space import Arrays, Peer, Problem

SAMPLE_S = 200e-6
RUNS_MAX = 1000
SLOW_S = 0.25
_TASKS = Path("/proc/self/task")


class Bench:
    """Runs candidates and the peer of one problem."""

    def __init__(
        self, stage: Stage, problem: Problem, peer: Peer | None, tolerance: float, limit_s: float
    ) -> None:
        self._stage, self._problem = stage, problem
        self._tolerance, self._limit_s = tolerance, limit_s
        self._wait_limit_ms = max(1, int(limit_s * 500))
        self._last: Arrays = {}
        self._peer = peer if peer is not None and self._is_right(peer) else None

    def measure(self, path: str, repeats: int, began: Callable[[int], None]) -> Outcome:
        """The outcome of a library; `began` is told of every step before it starts."""
        try:
            with Library(path, self._wait_limit_ms) as library:
                began(0)
                return self._measure(library, repeats, began)
        except HungKernel as problem:
            return TimedOut(self._wait_limit_ms / 1e3, str(problem))
        except (OSError, AttributeError, MemoryError) as problem:
            return Crashed(str(problem))

    def _measure(self, library: Library, repeats: int, began: Callable[[int], None]) -> Outcome:
        error, _ = self._checked_run(library)
        if not error <= self._tolerance:
            return self._wrong(error)
        began(1)
        again, seconds = self._checked_run(library)
        if seconds > SLOW_S:
            return self._verdict((seconds * 1e6,), max(error, again))
        began(2)
        run = self._runner(library)
        samples = tuple(self._sample(run, seconds) for _ in range(max(1, repeats)))
        began(3)
        last, _ = self._checked_run(library)
        return self._verdict(samples, max(error, again, last))

    def _verdict(self, samples: tuple[float, ...], error: float) -> Outcome:
        if not error <= self._tolerance:
            return self._wrong(error)
        return Measured(median(samples), samples, error)

    def _wrong(self, error: float) -> WrongResult:
        return WrongResult(
            error, self._tolerance, self._stage.difference(self._last, self._tolerance)
        )

    def race(
        self, paths: tuple[str, ...], rounds: int, with_peer: bool, began: Callable[[int], None]
    ) -> tuple[tuple[float, ...] | None, ...]:
        """Samples per entry, the peer's last; every sample after a run that is not timed."""
        entries = len(paths) + with_peer
        samples: list[list[float] | None] = [[] for _ in range(entries)]
        with ExitStack() as stack:
            runners: list[Callable[[], None] | None] = []
            for entry, path in enumerate(paths):
                began(entry)
                library = stack.enter_context(Library(path, self._wait_limit_ms))
                runners.append(self._runner(library))
            if with_peer:
                runners.append(self._peer_runner())
            for _ in range(rounds):
                for entry, run in enumerate(runners):
                    taken = samples[entry]
                    if run is None or taken is None:
                        samples[entry] = None
                        continue
                    began(entry)
                    try:
                        with _pinned(entry == len(paths)):
                            taken.append(self._sample(run, _timed(run)))
                    except (HungKernel, MemoryError):
                        samples[entry] = None
        return tuple(None if each is None else tuple(each) for each in samples)

    def _checked_run(self, library: Library) -> tuple[float, float]:
        """(error, seconds) of one run on a poisoned output."""
        arrays, arguments = self._stage.next()
        self._stage.poison(arrays)
        self._last = arrays
        started = time.perf_counter()
        status = library.run(arguments)
        seconds = time.perf_counter() - started
        library.check(status)
        return self._stage.error(arrays), seconds

    def _is_right(self, peer: Peer) -> bool:
        """Whether a peer's result agrees with the reference; one that fails is not timed."""
        arrays, _ = self._stage.next()
        self._stage.poison(arrays)
        try:
            peer.run(self._problem, arrays)
        except Exception:  # of a library that lacks this type, size or layout
            return False
        return self._stage.error(arrays) <= self._tolerance

    def _sample(self, run: Callable[[], None], seconds: float) -> float:
        """Mean microseconds of as many runs as take SAMPLE_S; one where runs compute in place."""
        self._stage.restore()
        return _sample(run, 1 if self._stage.computes_in_place else _runs(seconds))

    def _runner(self, library: Library) -> Callable[[], None]:
        following, launch = self._stage.next, library.run

        def run() -> None:
            status = launch(following()[1])
            if status:
                library.check(status)

        return run

    def _peer_runner(self) -> Callable[[], None] | None:
        peer, problem, following = self._peer, self._problem, self._stage.next
        if peer is None:
            return None
        return lambda: peer.run(problem, following()[0])


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _runs(seconds: float) -> int:
    return max(1, min(RUNS_MAX, int(SAMPLE_S / max(seconds, 1e-9))))


def _sample(run: Callable[[], None], runs: int) -> float:
    """Mean microseconds a run."""
    started = time.perf_counter_ns()
    for _ in range(runs):
        run()
    return (time.perf_counter_ns() - started) / runs * 1e-3


class _pinned:  # noqa: N801 - a context manager, used as one
    """The calling thread on the first core while a peer runs, whose own threads have the rest."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted and hasattr(os, "sched_setaffinity")

    def __enter__(self) -> None:
        if self._wanted:
            self._before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {min(self._before)})

    def __exit__(self, *_: object) -> None:
        if self._wanted:
            os.sched_setaffinity(0, self._before)


def settle_peer_threads() -> None:
    """NumPy's threads: one a core, the caller's own on the first one while it calls NumPy."""
    threadpoolctl.threadpool_limits(usable_cores())
    if not hasattr(os, "sched_setaffinity") or not _TASKS.is_dir():
        return
    before = {int(each.name) for each in _TASKS.iterdir()}
    square = np.ones((512, 512), np.float32)
    square @ square
    cores = sorted(os.sched_getaffinity(0))
    own = {thread.native_id for thread in threading.enumerate()}
    for place, task in enumerate(sorted(_other_tasks(before, own)), start=1):
        try:
            os.sched_setaffinity(task, {cores[place % len(cores)]})
        except OSError:
            return


def _other_tasks(before: set[int], own: set[int | None]) -> set[int]:
    now = {int(each.name) for each in _TASKS.iterdir()}
    return {task for task in before | now if task not in own}
