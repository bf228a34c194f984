"""What becomes of a schedule when it is run: right, refused by the passes, or wrong, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen

from explorer.constraints import Report, check
from explorer.errors import ExplorerError
from explorer.ir.access import outputs
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import Machine
from explorer.passes import materialize
from explorer.program.nodes import Program
from explorer.program.simulator import simulate
from explorer.program.verdict import Finished
from explorer.schedule.bound import Schedule

Arrays = Mapping[str, np.ndarray[Any, Any]]


def random_inputs(kernel: Kernel, seed: int = 3) -> dict[str, np.ndarray[Any, Any]]:
    """Random values for every tensor that the kernel does not write."""
    rng = np.random.default_rng(seed)
    written = {buffer.name for buffer in outputs(kernel)}
    found = {}
    for tensor in kernel.tensors:
        shape = tuple(map(int, tensor.shape))
        if tensor.name == "offsets":
            values = np.sort(rng.integers(0, 150, shape))
        elif tensor.dtype.kind in ("int", "uint"):
            values = rng.integers(0, 100, shape)
        else:
            values = rng.standard_normal(shape)
        if tensor.name not in written:
            found[tensor.name] = values.astype(tensor.dtype.numpy)
    return found


@frozen
class Trial:
    """A schedule of a kernel with its inputs and the kernel's own results."""

    kernel: Kernel
    machine: Machine
    inputs: Arrays
    expected: Arrays

    def check(self, schedule: Schedule) -> Report:
        return check(self.kernel, schedule, self.machine)

    def fault(self, schedule: Schedule, seeds: int = 24) -> str:
        """The first thing that goes wrong over those interleavings; empty where none does."""
        try:
            program = materialize(self.kernel, schedule, self.machine)
        except (ExplorerError, KeyError) as refused:
            return f"refused: {refused}"
        return self.program_fault(program, seeds)

    def program_fault(self, program: Program, seeds: int) -> str:
        """The same of a finished program."""
        for seed in range(seeds):
            verdict = simulate(program, self.inputs, seed)
            if not isinstance(verdict, Finished):
                return str(verdict)
            for name, value in self.expected.items():
                want = np.asarray(value, np.float64)
                got = np.asarray(verdict.output(name), np.float64)
                if not np.linalg.norm(got - want) <= 2e-3 * max(np.linalg.norm(want), 1e-30):
                    return f"wrong {name} under seed {seed}"
        return ""


def trial(kernel: Kernel, machine: Machine, sizes: Mapping[str, int]) -> Trial:
    """The trial of a kernel at those sizes, on random inputs."""
    concrete = kernel.at(**sizes)
    inputs = random_inputs(concrete)
    return Trial(kernel, machine, inputs, run(concrete, inputs))
