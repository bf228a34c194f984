"""Legal schedules for this host's cpu, drawn at random, and their runs in this process."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from explorer.codegen import emit_c
from explorer.constraints import FeasibleModel
from explorer.ir.access import outputs
from explorer.ir.interpreter import poisoned
from explorer.ir.nodes import Kernel
from explorer.machine import Machine
from explorer.passes import materialize
from explorer.program.nodes import Program
from explorer.runtime import Built, compile_library
from explorer.runtime.library import Library, pointers
from explorer.runtime.tensors import on_memory, stored_elements
from explorer.schedule.bound import Schedule
from explorer.space import SearchSpace

Arrays = Mapping[str, np.ndarray]


def draw(
    space: SearchSpace, per_skeleton: int, seed: int = 0, skeletons: Sequence[int] | None = None
) -> Iterator[tuple[str, Schedule]]:
    """(title of the skeleton, a legal schedule), `per_skeleton` of each skeleton that has some."""
    chosen = random.Random(seed)
    model = FeasibleModel(space)
    for index in range(len(space.skeletons)) if skeletons is None else skeletons:
        for _ in range(per_skeleton):
            target = {choice.name: chosen.choice(choice.domain) for choice in space.choices}
            found = model.project(target | {"skeleton": index})
            assert found.status == "found", f"no legal candidate near {target}"
            assignment = dict(found.assignment)
            if assignment["skeleton"] != index:
                break  # the skeleton has no legal numbers
            yield space.skeletons[index].title, space.candidate(space.canonical(assignment))


def run_program(program: Program, machine: Machine, inputs: Arrays, runs: int = 1) -> Arrays:
    """What a program writes, run as compiled C in this process on poisoned outputs."""
    built = compile_library(emit_c(program, machine))
    assert isinstance(built, Built), built
    arrays = {}
    for tensor in program.tensors:
        memory = poisoned((stored_elements(tensor),), tensor.dtype)
        arrays[tensor.name] = on_memory(memory, tensor)
        if tensor.name in inputs:
            np.copyto(arrays[tensor.name], np.asarray(inputs[tensor.name], tensor.dtype.numpy))
    with Library(str(built.library), wait_limit_ms=20_000) as library:
        for _ in range(runs):
            library.check(library.run(pointers([arrays[t.name] for t in program.tensors])))
    return arrays


def run_schedule(
    kernel: Kernel, schedule: Schedule, machine: Machine, inputs: Arrays, runs: int = 1
) -> Arrays:
    """The outputs of a kernel under a schedule."""
    arrays = run_program(materialize(kernel, schedule, machine), machine, inputs, runs)
    return {tensor.name: arrays[tensor.name] for tensor in outputs(kernel)}


def error(out: np.ndarray, reference: np.ndarray) -> float:
    """||out - ref|| / ||ref||; infinite for NaN."""
    wide, size = reference.astype(np.float64), np.linalg.norm(reference.astype(np.float64))
    off = np.linalg.norm(out.astype(np.float64) - wide) / (size or 1.0)
    return float(off) if np.isfinite(off) else float("inf")
