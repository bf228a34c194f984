"""The environment of a run: host, interpreter, packages, compiler, device.

Invariant: no user name, host name or path is recorded.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from attrs import frozen

PACKAGES = ("explorer", "z3-solver", "optuna", "numpy", "attrs", "cattrs", "pandas", "pyarrow")


@frozen
class Environment:
    """What a measurement depends on outside the candidate."""

    python: str
    system: str
    processor: str
    cores: int
    compiler: str
    device: str
    packages: tuple[tuple[str, str], ...]


def describe_environment(compiler: str, device: str) -> Environment:
    """The environment of this process, with the compiler and device that runtime found."""
    return Environment(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=processor_name(),
        cores=usable_cores(),
        compiler=compiler,
        device=device,
        packages=tuple((name, _version(name)) for name in PACKAGES),
    )


def processor_name() -> str:
    """The model name of the host's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
