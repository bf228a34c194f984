"""Sources to compiled kernels: compiled in processes, compared with the rules, cached.

Invariant: a cached kernel was compiled from the same source with the same options by the same
compiler for the same architecture; its files appear under their final names at once, plan and
log before the cubin.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from explorer.codegen.cuda import CudaKernel, LaunchPlan
from explorer.data import dumps, loads
from explorer.records import CompileFailed
from explorer.runtime.compiler import COMPILE_LIMIT_S, Built
from explorer.runtime.cuda.compile import OPTIONS, compiler_version
from explorer.runtime.cuda.compilers import Compilers
from explorer.runtime.cuda.model import changed_schedule, compare
from explorer.settings import settings


def build_kernel(
    found: CudaKernel, compilers: Compilers, limit_s: float = COMPILE_LIMIT_S
) -> Built | CompileFailed:
    """The compiled kernel of a source, from the cache if it is there.

    ModelMismatch where the compiler's figures are not those of the rules.
    """
    key = kernel_key(found)
    cubin = settings().cache / "cuda" / f"{key}.cubin"
    if cubin.is_file():
        return Built(key, cubin, found.source, cubin.with_suffix(".log").read_text(), 0.0)
    compiled = compilers.compile(found.source, found.plan.arch, limit_s)
    if isinstance(compiled, CompileFailed):
        return compiled
    compare(found.plan, compiled.resources)
    reason = changed_schedule(compiled.resources)
    if reason:
        return CompileFailed(reason)
    write_whole(plan_path(cubin), dumps(found.plan).encode())
    write_whole(cubin.with_suffix(".log"), compiled.log.encode())
    write_whole(cubin, compiled.cubin)
    return Built(key, cubin, found.source, compiled.log, compiled.seconds)


def kernel_key(found: CudaKernel) -> str:
    """What identifies a compiled kernel."""
    parts = (found.source, *OPTIONS, found.plan.arch, compiler_version(), dumps(found.plan))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def plan_path(cubin: Path) -> Path:
    """Where the launch plan of a compiled kernel lies."""
    return cubin.with_suffix(".json")


def read_plan(cubin: Path) -> LaunchPlan:
    """The launch plan of a compiled kernel; RecordError if it cannot be read."""
    return loads(plan_path(cubin).read_text(), LaunchPlan)


def write_whole(path: Path, content: bytes) -> None:
    """A file that appears complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
