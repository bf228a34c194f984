"""Source to cubin through NVRTC, which needs neither a device nor a driver.

Invariant: the options are part of the key of a compiled kernel (`OPTIONS`, `compiler_version`).
"""

from __future__ import annotations

import time
from typing import Any

from attrs import field, frozen

from explorer.errors import EnvironmentFault, ExplorerError
from explorer.runtime.cuda.log import Resources, needed_registers, read_log

OPTIONS = ("-std=c++17", "--ptxas-options=-v", "-diag-suppress=177")


class CudaCompileError(ExplorerError):
    """NVRTC or ptxas refused a source; the message is its first error in one line."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


@frozen
class Compiled:
    """A compiled kernel."""

    cubin: bytes = field(repr=False)
    log: str = field(repr=False)
    resources: Resources
    seconds: float


def compile_source(source: str, arch: str, name: str = "kernel.cu") -> Compiled:
    """The cubin of a source. CudaCompileError where the compiler refuses it, EnvironmentFault
    where there is no NVRTC."""
    nvrtc = _nvrtc()
    started = time.perf_counter()
    program = _call(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    try:
        options = [option.encode() for option in (f"--gpu-architecture={arch}", *_options())]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if int(status):
            raise CudaCompileError(_first_error(log), log)
        size = _call(nvrtc.nvrtcGetCUBINSize(program))
        cubin = bytearray(size)
        _call(nvrtc.nvrtcGetCUBIN(program, cubin))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Compiled(bytes(cubin), log, read_log(log), time.perf_counter() - started)


def compiler_version() -> str:
    """NVRTC's version, as in "nvrtc 13.0"."""
    return "nvrtc {}.{}".format(*_version())


def _version() -> tuple[int, int]:
    major, minor = _call(_nvrtc().nvrtcVersion())
    return int(major), int(minor)


def _options() -> tuple[str, ...]:
    # NVRTC's own cache (since 12.9) answers a source that it has seen with an empty log.
    return (*OPTIONS, "--no-cache") if _version() >= (12, 9) else OPTIONS


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc  # noqa: PLC0415

        nvrtc.nvrtcVersion()
    except Exception as problem:  # a missing library shows as several kinds of error
        reason = " ".join(str(problem).split())[:160]
        raise EnvironmentFault(
            f"no NVRTC: {reason}; install explorer[cuda13] or explorer[cuda12]"
        ) from None
    return nvrtc


def _call(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status):
        raise EnvironmentFault(f"NVRTC: {status}")
    return values[0] if len(values) == 1 else tuple(values)


def _text(size_of: Any, fetch: Any, program: Any) -> str:
    buffer = bytearray(_call(size_of(program)))
    _call(fetch(program, buffer))
    return bytes(buffer).rstrip(b"\0").decode(errors="replace")


def _first_error(log: str) -> str:
    needed = needed_registers(log)
    if needed is not None:
        return f"register-entry: the compiler needs {needed} registers at entry; use fewer threads"
    lines = (" ".join(line.split()) for line in log.splitlines())
    return next((line for line in lines if "error" in line or "fatal" in line), log.strip()[:200])
