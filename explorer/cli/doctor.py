"""`explorer doctor`: what of the environment is there, and what is missing, line by line."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from explorer.errors import EnvironmentFault

INSTALL = "pip install 'explorer[cuda12]' or 'explorer[cuda13]'"
CUPY = ("cupy-cuda12x", "cupy-cuda13x", "cupy")


def doctor() -> int:
    """Print the environment, and what of it is missing.

    A missing compiler is exit code 3; without the CUDA lines only `--machine cpu` runs.
    """
    from explorer.cli.text import print_environment, print_facts  # noqa: PLC0415
    from explorer.records import describe_environment  # noqa: PLC0415
    from explorer.runtime import compiler_version, device_name  # noqa: PLC0415

    compiler, compiles = _found(compiler_version)
    device, _ = _found(lambda: device_name("cpu"))
    print_environment(describe_environment(compiler, device))
    print_facts(
        {
            "driver": _found(driver_version)[0],
            "cupy": _found(lambda: _installed(*CUPY))[0],
            "cuda": _found(lambda: _installed("cuda-bindings"))[0],
            "gpu": _found(lambda: device_name("h200"))[0],
        }
    )
    return 0 if compiles else EnvironmentFault.exit_code


def _found(look: Callable[[], str]) -> tuple[str, bool]:
    try:
        return look(), True
    except EnvironmentFault as problem:
        return f"missing: {problem}", False


def driver_version() -> str:
    """The CUDA version that the NVIDIA driver supports; EnvironmentFault where there is none."""
    number = ctypes.c_int(0)
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        raise EnvironmentFault("no NVIDIA driver: libcuda.so.1 cannot be loaded") from None
    if status:
        raise EnvironmentFault(f"the NVIDIA driver does not answer: error {status}")
    return f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"


def _installed(*packages: str) -> str:
    for package in packages:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    raise EnvironmentFault(f"no {packages[0]}: {INSTALL}")
