"""Fixed trip counts on the card, bare and under compute-sanitizer.

`python -m tests.gpu.trip_counts` compiles the sample, runs it bare and under each tool, and prints
what was found. In parts: `build FOLDER` needs no card; `run FOLDER SECONDS` runs as many cases as
fit the time and compares them with the NumPy interpreter.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from attrs import evolve

from explorer.codegen.cuda import CudaKernel, generate
from explorer.data import dumps
from explorer.ir.access import outputs
from explorer.ir.interpreter import run as interpret
from explorer.machine import H200
from explorer.program.nodes import Program
from explorer.runtime.cuda.arrays import bits_dtype, device_bits
from explorer.runtime.cuda.build import plan_path, write_whole
from explorer.runtime.cuda.compile import Compiled
from explorer.runtime.cuda.compilers import Compilers
from explorer.runtime.cuda.loaded import Loaded
from tests.support.fixed_trips import Case, cases, inputs

SAMPLE = 50
TOOLS = ("memcheck", "racecheck")
SECONDS = 90
COMPILERS = 8
# CuPy's own kernels are not what is tested, and CuPy probes the driver with errors.
OPTIONS = ("--kernel-name", "kns=k_trips", "--report-api-errors", "no", "--error-exitcode", "9")


def build(folder: Path, every_lane: bool = False, count: int = SAMPLE) -> None:
    """Compile the sample; the n-th case becomes n.cubin."""
    compilers = Compilers(COMPILERS)
    folder.mkdir(parents=True, exist_ok=True)

    def one(number: int, case: Case) -> None:
        program = case.program()
        kernel = generate(program, H200)
        kernel = with_every_lane(program, kernel) if every_lane else kernel
        found = compilers.compile(kernel.source, kernel.plan.arch)
        assert isinstance(found, Compiled), f"{case.title}: {found}"
        cubin = folder / f"{number}.cubin"
        write_whole(plan_path(cubin), dumps(kernel.plan).encode())
        write_whole(cubin, found.cubin)

    try:
        with ThreadPoolExecutor(COMPILERS) as pool:
            for done in [pool.submit(one, *each) for each in enumerate(cases(count))]:
                done.result()
    finally:
        compilers.close()


def with_every_lane(program: Program, kernel: CudaKernel) -> CudaKernel:
    """The kernel with all lanes arriving where one speaks for its warp.

    racecheck follows barriers thread by thread: it knows nothing of the order that `__syncwarp`
    makes between the lanes' accesses and the arrival of one of them, and reports them all.
    """
    counts = iter([c for b in program.barriers for c in (b.full_count, b.empty_count)])
    source = kernel.source.replace("if (lane == 0u) arrive(", "arrive(")
    source = re.sub(
        r"(?<=barrier_init\()(base[^,]*), \d+u", lambda m: f"{m[1]}, {next(counts)}u", source
    )
    assert next(counts, None) is None, "every barrier is initialised once"
    return evolve(kernel, source=source)


def run(folder: Path, seconds: float, count: int = SAMPLE) -> int:
    """How many cases were not right; those that the time was too short for are told."""
    started, wrong, ran = time.monotonic(), 0, 0
    for number, case in enumerate(cases(count)):
        if time.monotonic() - started > seconds:
            break
        problem = _difference(case, folder / f"{number}.cubin")
        ran += 1
        wrong += bool(problem)
        if problem:
            print(f"{case.title}: {problem}", flush=True)
    took = time.monotonic() - started
    print(f"{ran} of {count} cases, {wrong} wrong, {took:.1f} s", flush=True)
    return wrong


def _difference(case: Case, cubin: Path) -> str:
    """What one launch on a poisoned output left other than the interpreter; empty for nothing."""
    import cupy  # noqa: PLC0415

    kernel = case.kernel
    given = inputs(kernel)
    (result,) = outputs(kernel)
    tensors: dict[str, Any] = {
        tensor.name: device_bits(given[tensor.name], tensor.dtype)
        for tensor in kernel.tensors
        if tensor.name in given
    }
    kind = bits_dtype(result.dtype.name)
    poisoned = np.full(tuple(map(int, result.shape)), -1, f"i{kind.itemsize}").view(kind)
    tensors[result.name] = cupy.asarray(poisoned)
    Loaded(cubin).bind(tensors)()
    cupy.cuda.runtime.deviceSynchronize()
    found = cupy.asnumpy(tensors[result.name])
    expected = interpret(kernel, given)[result.name]
    differ = ~((found == expected) | (np.isnan(found) & np.isnan(expected)))
    return f"{int(differ.sum())} of {differ.size} elements differ" if differ.any() else ""


def check(folder: Path, tool: str) -> subprocess.CompletedProcess[str]:
    """Run the sample under a tool, or bare (`tool` empty)."""
    script = (sys.executable, "-m", "tests.gpu.trip_counts", "run", str(folder), str(SECONDS))
    sanitizer = (compute_sanitizer(), "--tool", tool, *OPTIONS) if tool else ()
    return subprocess.run((*sanitizer, *script), capture_output=True, text=True, check=False)


def compute_sanitizer() -> str:
    """Where compute-sanitizer is; '' where it is not."""
    usual = Path("/usr/local/cuda/bin/compute-sanitizer")
    return shutil.which("compute-sanitizer") or (str(usual) if usual.exists() else "")


def main() -> int:
    """Build, run bare and under every tool, and print what each one found."""
    failed = 0
    with TemporaryDirectory() as scratch:
        folder, lanes = Path(scratch) / "warps", Path(scratch) / "lanes"
        started = time.monotonic()
        build(folder)
        build(lanes, every_lane=True)
        print(f"compiled 2 x {SAMPLE} in {time.monotonic() - started:.1f} s", flush=True)
        for tool in ("", *TOOLS):
            if tool and not compute_sanitizer():
                print(f"{tool}: compute-sanitizer is not here", flush=True)
                continue
            done = check(lanes if tool == "racecheck" else folder, tool)
            failed += done.returncode != 0
            lines = (done.stdout + done.stderr).strip().splitlines()
            print(f"{tool or 'bare'}: exit {done.returncode}", *lines[-6:], sep="\n  ", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build", where]:
            build(Path(where) / "warps")
            build(Path(where) / "lanes", every_lane=True)
        case ["run", where, limit]:
            sys.exit(min(run(Path(where), float(limit)), 1))
        case _:
            sys.exit(main())
