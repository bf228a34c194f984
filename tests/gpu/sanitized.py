"""Random legal schedules run in this process, for compute-sanitizer: -m ... TOOL COUNT FOLDER.

Small problems, so that the tool comes to an end; the trip counts go from one to beyond the depth.
racecheck gets blocks without clusters and roles without register requests, whose kernels fault
under it and under nothing else, and kernels in which every lane arrives
(`trip_counts.with_every_lane` says why).
"""

from __future__ import annotations

import sys
from itertools import cycle
from pathlib import Path

from attrs import evolve

from explorer.codegen.cuda import CudaKernel, generate
from explorer.data import dumps
from explorer.machine import H200
from explorer.records import Measured
from explorer.runtime import load_workload
from explorer.runtime.cuda.bench import CudaBench
from explorer.runtime.cuda.build import plan_path, write_whole
from explorer.runtime.cuda.compile import compile_source
from tests.gpu.trip_counts import with_every_lane
from tests.support.cuda_candidates import LAYOUTS, draw, gemm_space, program_of

SIZES = ((384, 512, 32), (129, 257, 65), (264, 136, 72), (300, 520, 256), (130, 72, 512))


def run(tool: str, count: int, folder: Path) -> int:
    """How many schedules were not right."""
    wrong = 0
    for number, (layout, sizes) in enumerate(zip(cycle(LAYOUTS), cycle(SIZES), strict=False)):
        if number * 2 >= count:
            break
        workload, space = load_workload(layout), gemm_space(layout, sizes)
        if tool == "racecheck" and any(choice.name == "cluster" for choice in space.choices):
            space = space.restricted(cluster=(1,))
        problem = workload.problem(dict(zip("MNK", sizes, strict=True)), "bfloat16")
        bench = CudaBench(workload, problem, "h200", 8e-3, 60.0, number, lambda phase: None)
        for index, (title, schedule) in enumerate(draw(space, 2, seed=number)):
            program = program_of(space, schedule)
            kernel = generate(program, H200)
            if tool == "racecheck":
                kernel = without_requests(with_every_lane(program, kernel))
            cubin = folder / f"{number}-{index}.cubin"
            write_whole(plan_path(cubin), dumps(kernel.plan).encode())
            write_whole(cubin, compile_source(kernel.source, "sm_90a").cubin)
            outcome = bench.measure(str(cubin), 1, lambda step: None)
            wrong += not isinstance(outcome, Measured)
            print(layout, sizes, title, outcome, flush=True)
    return wrong


def without_requests(kernel: CudaKernel) -> CudaKernel:
    """The kernel whose roles keep the registers that they start with: the tool's own code in a
    role needs more than a producer asks for."""
    lines = kernel.source.splitlines(keepends=True)
    return evolve(kernel, source="".join(line for line in lines if "setmaxnreg" not in line))


if __name__ == "__main__":
    sys.exit(1 if run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])) else 0)
