"""What a session needs of a kind of machine: a toolchain here, a runner in the worker process.

Invariant: only the runner touches a device; a toolchain works on machines without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from explorer.codegen import emit_c
from explorer.errors import EnvironmentFault, IllegalSchedule, InputError
from explorer.ir.nodes import Kernel
from explorer.machine import CPU, Machine
from explorer.passes import materialize
from explorer.records import CompileFailed, Outcome
from explorer.runtime.bench import Bench, settle_peer_threads
from explorer.runtime.compiler import (
    COMPILE_LIMIT_S,
    Built,
    compile_library,
    compiler_version,
)
from explorer.runtime.stage import Stage
from explorer.schedule.bound import Schedule
from explorer.space import Problem, Workload


class Toolchain(Protocol):
    """Builds schedules for one machine; safe to call from several threads."""

    @property
    def version(self) -> str:
        """The compiler's version line."""
        ...

    @property
    def survives_failure(self) -> bool:
        """Whether a worker can go on after a candidate that crashed or hung."""
        ...

    def build(
        self, kernel: Kernel, schedule: Schedule, limit_s: float = COMPILE_LIMIT_S
    ) -> Built | CompileFailed:
        """The compiled kernel of a schedule."""
        ...

    def bounded(self, built: Built) -> Built | None:
        """The same kernel with waits that give up and report, None where they always do."""
        ...

    def close(self) -> None:
        """End helper processes."""
        ...


class Runner(Protocol):
    """Checks and times compiled kernels of one problem, in the worker process."""

    def measure(self, path: str, repeats: int, began: Callable[[int], None]) -> Outcome:
        """The outcome of a kernel; `began` is told of every step before it starts."""
        ...

    def race(
        self, paths: tuple[str, ...], rounds: int, with_peer: bool, began: Callable[[int], None]
    ) -> tuple[tuple[float, ...] | None, ...]:
        """Samples in microseconds per entry, the peer's last."""
        ...


class CToolchain:
    """The host's C compiler."""

    survives_failure = True

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._version = compiler_version()

    @property
    def version(self) -> str:
        """The compiler's version line."""
        return self._version

    def build(
        self, kernel: Kernel, schedule: Schedule, limit_s: float = COMPILE_LIMIT_S
    ) -> Built | CompileFailed:
        """The compiled kernel of a schedule."""
        try:
            source = emit_c(materialize(kernel, schedule, self._machine), self._machine)
        except (InputError, IllegalSchedule) as problem:
            return CompileFailed(str(problem))
        return compile_library(source, limit_s)

    def bounded(self, built: Built) -> Built | None:
        """None: every wait of a cpu kernel is bounded."""
        return None

    def close(self) -> None:
        """Nothing to end."""


def toolchain_of(machine: Machine) -> Toolchain:
    """The toolchain of a machine; EnvironmentFault where it is missing."""
    if machine.name == CPU.name:
        return CToolchain(machine)
    if machine.arch.startswith("sm_"):
        from explorer.runtime.cuda.toolchain import CudaToolchain  # noqa: PLC0415

        return CudaToolchain(machine)
    raise EnvironmentFault(f"machine {machine.name}: this release has no compiler for it")


def runner_of(
    workload: Workload,
    problem: Problem,
    machine: str,
    tolerance: float,
    limit_s: float,
    seed: int,
    doing: Callable[[str], None],
) -> Runner:
    """The runner of a machine; EnvironmentFault where its device is missing.

    `doing` is told of the user's functions before they are called.
    """
    if machine == CPU.name:
        settle_peer_threads()
        stage = Stage(workload, problem, seed, doing)
        doing("trying the peer")
        return Bench(stage, problem, workload.peer(machine, problem.dtype), tolerance, limit_s)
    from explorer.runtime.cuda.bench import CudaBench  # noqa: PLC0415
    from explorer.runtime.cuda.loaded import device_name  # noqa: PLC0415

    device_name()
    return CudaBench(workload, problem, machine, tolerance, limit_s, seed, doing)
