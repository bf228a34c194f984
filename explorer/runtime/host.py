"""The cpu machine as this host is: cores, last cache, vector width, micro-kernel shapes.

Invariant: every figure has a fallback, so that a host without /proc and /sys still gets a machine
description; only the C compiler is required, and only to compile.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from attrs import evolve

from explorer.errors import EnvironmentFault
from explorer.ir.dtypes import DType, dtype
from explorer.machine import CPU, Machine, MatrixShape, MemoryScope, Scope
from explorer.runtime.compiler import find_compiler

SHARED_BYTES_MIN = 4 << 20
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CPU_INFO = Path("/proc/cpuinfo")
# Register blocks of mr rows x nv vectors: accumulators, one row of B and a broadcast fit the
# registers (32 of AVX-512 and NEON, 16 of AVX2 and SSE2), and there are more accumulators than
# the FMA units have in flight (latency x units).
_BLOCKS: dict[str, tuple[tuple[int, int], ...]] = {
    "avx512": ((8, 2), (6, 2), (12, 2), (4, 2), (8, 3), (4, 4)),
    "avx2": ((6, 2), (4, 3), (4, 2)),
    "sse2": ((4, 2), (2, 4)),
    "neon": ((8, 2), (8, 3), (4, 4)),
}
_VECTOR_BYTES = {"avx512": 64, "avx2": 32, "sse2": 16, "neon": 16}


def machine_here(machine: Machine, element: DType | None = None) -> Machine:
    """The description refined by what this host has; `element` is the type of the inputs."""
    if machine.arch.startswith("sm_"):
        from explorer.runtime.cuda.host import cuda_machine  # noqa: PLC0415

        return cuda_machine(machine)
    if machine.name != CPU.name:
        raise EnvironmentFault(f"machine {machine.name}: this release does not run kernels there")
    return cpu_machine(accumulator(element or dtype("float32")))


def accumulator(element: DType) -> DType:
    """The type in which gemms of a type accumulate."""
    return dtype("float64" if element.is_float and element.bits > 32 else "float32")


def cpu_machine(accumulating: DType) -> Machine:
    """This host as a role machine, for gemms that accumulate in that type."""
    units = usable_cores()
    share = max(SHARED_BYTES_MIN, last_cache_bytes() // units)
    isa = instruction_set()
    lanes = _VECTOR_BYTES[isa] * 8 // accumulating.bits
    k_bytes = accumulating.bits // 8
    shapes = tuple(MatrixShape(rows, count * lanes, k_bytes) for rows, count in _BLOCKS[isa])
    return evolve(
        CPU,
        arch=isa,
        units=units,
        memories=(MemoryScope(Scope.SHARED, share, 64),),
        matrix_shapes=shapes,
    )


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


@cache
def last_cache_bytes() -> int:
    """The size of the last-level data cache; 8 MiB where the host does not say."""
    best = (0, 8 << 20)
    for folder in sorted(_CACHES.glob("index*")):
        level, kind, size = (_text(folder / name) for name in ("level", "type", "size"))
        scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 0)
        if kind != "Instruction" and level.isdigit() and size[:-1].isdigit() and scale:
            best = max(best, (int(level), int(size[:-1]) * scale))
    return best[1]


@cache
def instruction_set() -> str:
    """avx512, avx2, sse2 or neon: what the compiler takes the host for."""
    try:
        macros = find_compiler().macros
    except EnvironmentFault:
        macros = frozenset()
    if "__AVX512F__" in macros:
        return "avx512"
    if "__AVX__" in macros:
        return "avx2"
    if "__ARM_NEON" in macros or platform.machine() in ("aarch64", "arm64"):
        return "neon"
    return "sse2"


def device_name(machine: str = CPU.name) -> str:
    """The name of the device that a machine stands for, one line."""
    if machine != CPU.name:
        from explorer.runtime.cuda.loaded import device_name as cuda_device_name  # noqa: PLC0415

        return cuda_device_name()
    model = ""
    for line in _text(_CPU_INFO).splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("model name", "cpu model", "hardware"):
            model = value.strip()
            break
    return f"{model or platform.processor() or platform.machine()}, {usable_cores()} cores"


def memory_bytes() -> int:
    """Physical memory of the host; 4 GiB where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
