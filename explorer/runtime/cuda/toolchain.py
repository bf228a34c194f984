"""The CUDA toolchain of a session: NVRTC in processes, compiled kernels in the cache.

Invariant: beside every compiled kernel lies the source of its bounded form, so that a hang can be
explained without the schedule it came from.
"""

from __future__ import annotations

from pathlib import Path

from explorer.codegen.cuda import CudaKernel, LaunchPlan, generate
from explorer.data import dumps, loads
from explorer.errors import IllegalSchedule, InputError
from explorer.ir.nodes import Kernel
from explorer.machine import Machine
from explorer.passes import materialize
from explorer.program.nodes import Program
from explorer.records import CompileFailed
from explorer.runtime.compiler import COMPILE_LIMIT_S, Built
from explorer.runtime.cuda.build import build_kernel, write_whole
from explorer.runtime.cuda.compile import compiler_version
from explorer.runtime.cuda.compilers import Compilers
from explorer.runtime.host import usable_cores
from explorer.schedule.bound import Schedule

# Longer than any right kernel takes, shorter than the limit of a step of a measurement.
WAIT_BOUND_NS = 500_000_000


class CudaToolchain:
    """NVRTC for one machine."""

    # An error takes the CUDA context with it.
    survives_failure = False

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._version = compiler_version()
        self._compilers = Compilers(usable_cores())

    @property
    def version(self) -> str:
        """NVRTC's version."""
        return self._version

    def build(
        self, kernel: Kernel, schedule: Schedule, limit_s: float = COMPILE_LIMIT_S
    ) -> Built | CompileFailed:
        """The compiled kernel of a schedule; ModelMismatch where rules and compiler differ."""
        try:
            return self.build_program(materialize(kernel, schedule, self._machine), limit_s)
        except (InputError, IllegalSchedule) as problem:
            return CompileFailed(str(problem))

    def build_program(
        self, program: Program, limit_s: float = COMPILE_LIMIT_S
    ) -> Built | CompileFailed:
        """The compiled kernel of a program; ScheduleError for what the backend cannot express."""
        built = build_kernel(generate(program, self._machine), self._compilers, limit_s)
        if isinstance(built, Built):
            _keep(built, generate(program, self._machine, WAIT_BOUND_NS))
        return built

    def bounded(self, built: Built) -> Built | None:
        """The same kernel with waits that report who waits for what; None if it has none."""
        source, plan = _witness_paths(built)
        if not source.is_file():
            return None
        found = CudaKernel(source.read_text(), loads(plan.read_text(), LaunchPlan))
        witness = build_kernel(found, self._compilers)
        return witness if isinstance(witness, Built) else None

    def close(self) -> None:
        """End the compiler processes."""
        self._compilers.close()


def _keep(built: Built, witness: CudaKernel) -> None:
    source, plan = _witness_paths(built)
    if not source.is_file():
        write_whole(plan, dumps(witness.plan).encode())
        write_whole(source, witness.source.encode())


def _witness_paths(built: Built) -> tuple[Path, Path]:
    base = built.library
    return base.with_suffix(".bounded.cu"), base.with_suffix(".bounded.json")


__all__ = ["WAIT_BOUND_NS", "CudaToolchain"]
