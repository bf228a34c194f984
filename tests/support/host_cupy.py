"""CuPy's names on NumPy arrays: enough of them to run the device bench without a device."""

from __future__ import annotations

import re
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from explorer.ir.dtypes import dtype
from explorer.runtime.cuda.arrays import bits_dtype, widened
from tests.support.host_cublas import host_cublas


class HostArray(np.ndarray[Any, Any]):
    """An array that says where it lies as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


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


class Assigning:
    """An element-wise kernel, its one statement run in float32 on whole arrays."""

    def __init__(self, source: str) -> None:
        (statement,) = re.findall(r"= narrow\((.*)\);\n", source)
        self.expression = re.sub(r"(?<=[0-9])f\b", "", statement)
        self.operands = re.findall(r"const Pack (\w+)_pack = \w+_at\[(.*)\];", source)
        (self.width,) = map(int, re.findall(r"Stored each\[(\d+)\]", source))
        (kind,) = re.findall(r"cvt\.rn\.(\w+)\.f32", source) or ["f32"]
        names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
        self.element = dtype(names[kind])

    def __call__(self, grid: Any, block: Any, arguments: tuple[Any, ...]) -> None:
        out, *arrays, total, columns = arguments
        assert total * self.width == out.size
        assert (grid[0] - 1) * block[0] < total <= grid[0] * block[0]
        values = {}
        for (name, index), array in zip(self.operands, arrays, strict=True):
            whole = array.size == out.size
            assert index == ("i" if whole else "i % columns")
            assert array.size == (out.size if whole else columns * self.width)
            values[name] = np.asarray(widened(array, self.element))
        functions = {"tanhf": np.tanh, "expf": np.exp}
        found = np.broadcast_to(eval(self.expression, functions, values), out.shape)
        stored = np.ascontiguousarray(found.astype(self.element.numpy))
        out[...] = stored.view(bits_dtype(self.element.name))


def raw_kernel(source: str, name: str) -> Assigning | Waiting:
    return Assigning(source) if name == "assign" else Waiting(source, name)


def host_modules() -> dict[str, Any]:
    """The modules to stand in for CuPy's, by name."""
    cupy = host_cupy()
    libraries = SimpleNamespace(cublas=host_cublas())
    return {
        "cupy": cupy,
        "cupy.cuda": cupy.cuda,
        "cupy_backends": SimpleNamespace(),
        "cupy_backends.cuda": SimpleNamespace(),
        "cupy_backends.cuda.libs": libraries,
    }


def host_cupy() -> ModuleType:
    """The module to stand in for cupy."""
    module = ModuleType("cupy")
    vars(module).update(
        {name: getattr(np, name) for name in ("linalg", "uint32", "float32", "ndarray")}
    )
    vars(module).update({name: _placed(getattr(np, name)) for name in ("empty", "asarray")})
    runtime = SimpleNamespace(
        memGetInfo=lambda: (1 << 30, 1 << 30), deviceSynchronize=lambda: None
    )
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(attributes={"L2CacheSize": 1 << 16}),
        device=SimpleNamespace(get_cublas_handle=lambda: None),
        Event=Event,
        runtime=runtime,
        get_elapsed_time=lambda start, stop: (stop.at - start.at) * 1e3,
    )
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    vars(module).update(
        asnumpy=np.asarray,
        cuda=cuda,
        RawKernel=raw_kernel,
        get_default_memory_pool=lambda: pool,
    )
    return module


def _placed(make: Any) -> Any:
    return lambda *arguments: make(*arguments).view(HostArray)
