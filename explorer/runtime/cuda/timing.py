"""Device times of launches, whatever the host costs.

A library call through Python may take the host longer than the device needs for the work. The
device is therefore kept busy by a waiting kernel until the host has enqueued all launches of a
sample; they then follow each other as in a program that is not slowed down by its host.

Invariant: a sample whose launches were not all enqueued in time is taken again with a longer wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

FIRST_S, MARGIN, MOST_S, ATTEMPTS = 100e-6, 1.5, 20e-3, 4
_SOURCE = r"""
extern "C" __global__ void hold(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}
"""


class Timer:
    """Times launches on the current stream."""

    def __init__(self) -> None:
        import cupy  # noqa: PLC0415

        self._hold = cupy.RawKernel(_SOURCE, "hold")
        self._host_s = FIRST_S

    def mean_us(self, launches: Sequence[Callable[[], None]]) -> float:
        """Mean microseconds of launches that follow each other."""
        wait_s = min(MOST_S, MARGIN * self._host_s)
        for _ in range(ATTEMPTS):
            elapsed_us, self._host_s = self._sample(launches, wait_s)
            if self._host_s <= wait_s or wait_s >= MOST_S:
                break
            wait_s = min(MOST_S, 2.0 * MARGIN * self._host_s)
        return elapsed_us / len(launches)

    def _sample(
        self, launches: Sequence[Callable[[], None]], wait_s: float
    ) -> tuple[float, float]:
        """(microseconds of all launches on the device, seconds of the host to enqueue them)."""
        import cupy  # noqa: PLC0415

        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        begun = time.perf_counter()
        self._hold((1,), (1,), (np.uint64(wait_s * 1e9),))
        start.record()
        for launch in launches:
            launch()
        stop.record()
        host_s = time.perf_counter() - begun
        stop.synchronize()
        elapsed_us: float = cupy.cuda.get_elapsed_time(start, stop) * 1e3
        return elapsed_us, host_s
