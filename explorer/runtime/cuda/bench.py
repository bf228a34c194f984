"""Checking and timing on a CUDA device, in the worker process.

The tensors exist in several sets at different addresses, together more than twice the L2; timed
runs go round the sets, candidate and peer alike. A sample is the device's time of a few runs,
divided by their number.

Invariant: nothing is timed before its result agreed with the reference on a poisoned output, the
peer's included; the reference is the workload's own, computed on the device in the type it asks
for.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from explorer.errors import InputError
from explorer.ir.access import outputs
from explorer.ir.nodes import Kernel
from explorer.records.outcomes import Crashed, Measured, Outcome, TimedOut, WrongResult
from explorer.runtime.cuda.arrays import DeviceArray, bits_dtype, device_bits, widened
from explorer.runtime.cuda.loaded import LaunchError, Loaded
from explorer.runtime.cuda.timing import Timer
from explorer.runtime.tensors import (
    difference,
    on_memory,
    require_finite,
    require_outputs,
    shape_of,
    stored_elements,
)
from explorer.space import Peer, Problem, Workload

Sets = list[dict[str, Any]]
SAMPLE_S = 400e-6
RUNS_MAX = 50
SETS_MAX = 64
_POISON = 0xFF


class CudaBench:
    """Runs candidates and the peer of one problem on the current device."""

    def __init__(
        self,
        workload: Workload,
        problem: Problem,
        machine: str,
        tolerance: float,
        limit_s: float,
        seed: int,
        doing: Callable[[str], None],
    ) -> None:
        self._problem, self._peer = problem, workload.peer(machine, problem.dtype)
        self._tolerance, self._limit_s = tolerance, limit_s
        self._kernel: Kernel = workload.trace(problem)
        doing("drawing the inputs")
        inputs = workload.draw(problem, np.random.default_rng(seed))
        doing("placing the tensors")
        _give_back()
        self._sets = self._allocate(inputs)
        written = {tensor.name for tensor in outputs(self._kernel)}
        # What a kernel updates in place, as it was drawn.
        self._drawn = {name: self._sets[0][name].copy() for name in inputs if name in written}
        doing("computing the reference")
        self._reference = self._compute(workload, inputs)
        self._sizes = {name: _norm(reference) for name, reference in self._reference.items()}
        _give_back()
        self._timer = Timer()
        self._turn = 0
        doing("trying the peer")
        self._try_peer()

    # ------------------------------------------------------------ the requests of a session

    def measure(self, path: str, repeats: int, began: Callable[[int], None]) -> Outcome:
        """The outcome of a compiled kernel; `began` is told of every step before it starts."""
        loaded: Loaded | None = None
        try:
            began(0)
            loaded = Loaded(Path(path))
            launches = [loaded.bind(tensors) for tensors in self._sets]
            error = self._checked(launches)
            if not error <= self._tolerance:
                return self._wrong(error)
            began(1)
            seconds = self._sample(launches, 2) * 1e-6
            runs = self._runs(seconds)
            fitting = int(self._limit_s / 2 / max(seconds * runs, 1e-9))
            began(2)
            samples = [self._sample(launches, runs) for _ in range(max(1, min(repeats, fitting)))]
            began(3)
            worst = max(error, self._checked(launches))
        except Exception as problem:  # CuPy and the driver raise many kinds
            return self._failure(problem, loaded)
        if not worst <= self._tolerance:
            return self._wrong(worst)
        return Measured(median(samples), tuple(samples), worst)

    def race(
        self, paths: tuple[str, ...], rounds: int, with_peer: bool, began: Callable[[int], None]
    ) -> tuple[tuple[float, ...] | None, ...]:
        """Samples per entry, taken in turns, the peer's last; every sample after a warm run.

        An error ends the process, since it takes the context with it; the session knows by the
        last `began` whose it was.
        """
        try:
            return self._race(paths, rounds, with_peer, began)
        except Exception as problem:  # CuPy and the driver raise many kinds
            text = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
            raise SystemExit(text) from None

    def _race(
        self, paths: tuple[str, ...], rounds: int, with_peer: bool, began: Callable[[int], None]
    ) -> tuple[tuple[float, ...] | None, ...]:
        runners: list[Sequence[Callable[[], None]] | None] = []
        for entry, path in enumerate(paths):
            began(entry)
            loaded = Loaded(Path(path))
            runners.append([loaded.bind(tensors) for tensors in self._sets])
        if with_peer:
            runners.append(self._peer_runs())
        samples: list[list[float]] = [[] for _ in runners]
        counts = []
        for entry, runs in enumerate(runners):
            began(entry)
            counts.append(self._runs(self._sample(runs, 3) * 1e-6) if runs else 0)
        for _ in range(rounds):
            for entry, runs in enumerate(runners):
                if runs is not None:
                    began(entry)
                    samples[entry].append(self._sample(runs, counts[entry]))
        return tuple(
            tuple(taken) if runs is not None else None
            for taken, runs in zip(samples, runners, strict=True)
        )

    # ------------------------------------------------------------ runs

    def _failure(self, problem: Exception, loaded: Loaded | None) -> Outcome:
        report = loaded.report() if loaded is not None else ""
        if report:
            return TimedOut(self._limit_s, report)
        return Crashed(f"{type(problem).__name__}: {' '.join(str(problem).split())}")

    def _checked(self, launches: Sequence[Callable[[], None]]) -> float:
        """The error of one run on a poisoned output."""
        import cupy  # noqa: PLC0415

        self._turn = (self._turn + 1) % len(self._sets)
        tensors = self._sets[self._turn]
        for name in self._reference:
            if name not in self._drawn:
                _poison(tensors[name])
        self._restore(tensors)
        launches[self._turn]()
        cupy.cuda.runtime.deviceSynchronize()
        return max(self._error(name, tensors[name]) for name in self._reference)

    def _restore(self, tensors: dict[str, Any]) -> None:
        for name, content in self._drawn.items():
            tensors[name][...] = content

    def _wrong(self, error: float) -> WrongResult:
        """The outcome of the set that was checked last."""
        import cupy  # noqa: PLC0415

        tensors = self._sets[self._turn]
        for name, reference in self._reference.items():
            bits = cupy.asnumpy(tensors[name])
            size = bits.dtype.itemsize
            raw = bits.view(np.uint8).reshape(*bits.shape, size)
            unwritten = (raw == _POISON).all(axis=-1) & (name not in self._drawn)
            found = cupy.asnumpy(widened(tensors[name], self._kernel.buffer(name).dtype))
            words = difference(name, found, cupy.asnumpy(reference), unwritten, self._tolerance)
            if words:
                return WrongResult(error, self._tolerance, words)
        return WrongResult(error, self._tolerance)

    def _error(self, name: str, bits: Any) -> float:
        values = widened(bits, self._kernel.buffer(name).dtype)
        off, size = _norm(values - self._reference[name]), self._sizes[name]
        error = off / size if size > 0 else off
        return math.inf if math.isnan(error) else error

    def _sample(self, runs: Sequence[Callable[[], None]], count: int) -> float:
        """Mean microseconds of `count` runs over the sets in turn."""
        for tensors in self._sets if self._drawn else ():
            self._restore(tensors)
        runs[self._next()]()
        return self._timer.mean_us([runs[self._next()] for _ in range(count)])

    def _next(self) -> int:
        self._turn = (self._turn + 1) % len(self._sets)
        return self._turn

    def _runs(self, seconds: float) -> int:
        return max(1, min(RUNS_MAX, int(SAMPLE_S / max(seconds, 1e-9))))

    def _peer_runs(self) -> list[Callable[[], None]] | None:
        if self._peer is None:
            return None
        return [self._peer_run(self._peer, tensors) for tensors in self._sets]

    def _try_peer(self) -> None:
        """Check a run of the peer, which ends its start-up too; one that fails is not timed."""
        try:
            runs = self._peer_runs()
            right = runs is not None and self._checked(runs) <= self._tolerance
        except Exception:  # of a library that lacks this type, size or layout
            right = False
        if not right:
            self._peer = None
        self._restore(self._sets[self._turn])

    def _peer_run(self, peer: Peer, tensors: dict[str, Any]) -> Callable[[], None]:
        arrays: Any = {name: self._array(name, bits) for name, bits in tensors.items()}
        problem = self._problem
        return lambda: peer.run(problem, arrays)

    # ------------------------------------------------------------ data

    def _array(self, name: str, bits: Any) -> DeviceArray:
        return DeviceArray(bits, self._kernel.buffer(name).dtype)

    def _allocate(self, inputs: dict[str, np.ndarray[Any, Any]]) -> Sets:
        import cupy  # noqa: PLC0415

        flat: dict[str, Any] = {}
        for tensor in self._kernel.tensors:
            shape = shape_of(tensor)
            given = inputs.get(tensor.name)
            if given is not None and given.shape != shape:
                raise InputError(
                    f"input '{tensor.name}' has shape {given.shape}, the kernel's is {shape}"
                )
            memory = cupy.empty(stored_elements(tensor), bits_dtype(tensor.dtype.name))
            _poison(memory)
            if given is not None:
                on_memory(memory, tensor)[...] = device_bits(given, tensor.dtype)
            flat[tensor.name] = memory
        size = sum(memory.nbytes for memory in flat.values())
        cache = int(cupy.cuda.Device().attributes["L2CacheSize"])
        free = int(cupy.cuda.runtime.memGetInfo()[0])
        count = min(SETS_MAX, free // 4 // size, 2 * cache // size) + 1
        sets = [flat, *({n: m.copy() for n, m in flat.items()} for _ in range(max(1, count)))]
        tensors = {tensor.name: tensor for tensor in self._kernel.tensors}
        return [{n: on_memory(m, tensors[n]) for n, m in each.items()} for each in sets]

    def _compute(
        self, workload: Workload, inputs: dict[str, np.ndarray[Any, Any]]
    ) -> dict[str, Any]:
        arrays: Any = {name: self._array(name, self._sets[0][name]) for name in inputs}
        found = workload.reference(self._problem, arrays)
        require_outputs(self._kernel, {name: tuple(each.shape) for name, each in found.items()})
        self._restore(self._sets[0])
        import cupy  # noqa: PLC0415

        reference = {name: cupy.asarray(array, np.float64) for name, array in found.items()}
        for name, array in reference.items():
            require_finite(name, array.size - int(np.isfinite(array).sum()), array.size)
        return reference


def _poison(bits: Any) -> None:
    """All bits set: a NaN in every floating-point type."""
    words = bits.view(f"u{bits.itemsize}")
    words[...] = words.dtype.type(2 ** (8 * bits.itemsize) - 1)


def _norm(array: Any) -> float:
    import cupy  # noqa: PLC0415

    return float(cupy.linalg.norm(array.ravel()))


def _give_back() -> None:
    """Free what CuPy keeps of arrays that are gone: other problems' sets count free memory."""
    import cupy  # noqa: PLC0415

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()


__all__ = ["CudaBench", "LaunchError"]
