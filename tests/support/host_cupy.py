"""CuPy's names on NumPy arrays: enough of them to run the device bench without a device."""

from __future__ import annotations

import time
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class Event:
    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        return None


class Waiting:
    """A kernel that takes the nanoseconds of its argument; `waits` collects them in seconds."""

    waits: list[float] = []

    def __init__(self, source: str, name: str) -> None:
        assert name in source

    def __call__(self, grid: Any, block: Any, arguments: tuple[Any, ...]) -> None:
        self.waits.append(int(arguments[0]) * 1e-9)


def host_cupy() -> ModuleType:
    """The module to stand in for cupy."""
    module = ModuleType("cupy")
    vars(module).update(
        {
            name: getattr(np, name)
            for name in ("empty", "asarray", "linalg", "uint32", "float32", "ndarray")
        }
    )
    runtime = SimpleNamespace(
        memGetInfo=lambda: (1 << 30, 1 << 30), deviceSynchronize=lambda: None
    )
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(attributes={"L2CacheSize": 1 << 16}),
        Event=Event,
        runtime=runtime,
        get_elapsed_time=lambda start, stop: (stop.at - start.at) * 1e3,
    )
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    vars(module).update(
        asnumpy=np.asarray,
        cuda=cuda,
        RawKernel=Waiting,
        get_default_memory_pool=lambda: pool,
    )
    return module
