"""Stand-alone kernels under ThreadSanitizer."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from explorer.codegen import emit_standalone
from explorer.machine import Machine
from explorer.program.nodes import Program
from explorer.runtime import find_compiler

FLAGS = ("-std=gnu11", "-O1", "-g", "-fwrapv", "-pthread", "-fsanitize=thread")


def run_sanitized(
    program: Program,
    machine: Machine,
    inputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    folder: Path,
    repeats: int = 2,
    tolerance: float = 1e-5,
) -> subprocess.CompletedProcess[str]:
    """Compile a program with the sanitizer and run it; a race makes the exit status 66."""
    compiler = find_compiler()
    source, program_file = folder / "kernel.c", folder / "kernel"
    source.write_text(emit_standalone(program, machine, tolerance))
    command = (*compiler.command, *compiler.native, *FLAGS, str(source), "-o", str(program_file))
    subprocess.run((*command, "-lm"), check=True, capture_output=True, text=True, timeout=120)
    for tensor in program.tensors:
        kind = tensor.dtype.numpy
        if tensor.name in inputs:
            inputs[tensor.name].astype(kind).tofile(folder / f"{tensor.name}.bin")
        if tensor.name in expected:
            expected[tensor.name].astype(kind).tofile(folder / f"{tensor.name}.ref")
    return subprocess.run(
        (str(program_file), str(folder), str(repeats)),
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )


@cache
def sanitizer_works() -> bool:
    """Whether the compiler's ThreadSanitizer compiles and runs on this host."""
    with TemporaryDirectory() as scratch:
        source, program_file = Path(scratch) / "probe.c", Path(scratch) / "probe"
        source.write_text("int main(void) { return 0; }\n")
        command = (*find_compiler().command, *FLAGS, str(source), "-o", str(program_file))
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return False
        return subprocess.run((program_file,), check=False, capture_output=True).returncode == 0
