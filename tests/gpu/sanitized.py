"""Random legal schedules run in this process, for compute-sanitizer: python -m ... COUNT FOLDER.

Small problems, so that the tool comes to an end; the trip counts go from one to beyond the depth.
"""

from __future__ import annotations

import sys
from itertools import cycle
from pathlib import Path

from explorer.data import dumps
from explorer.records import Measured
from explorer.runtime import load_workload
from explorer.runtime.cuda.bench import CudaBench
from explorer.runtime.cuda.build import plan_path, write_whole
from explorer.runtime.cuda.compile import compile_source
from tests.support.cuda_candidates import LAYOUTS, draw, gemm_space, source_of

SIZES = ((384, 512, 32), (129, 257, 65), (264, 136, 72), (300, 520, 256), (130, 72, 512))


def run(count: int, folder: Path) -> int:
    """How many schedules were not right."""
    wrong = 0
    for number, (layout, sizes) in enumerate(zip(cycle(LAYOUTS), cycle(SIZES), strict=False)):
        if number * 2 >= count:
            break
        workload, space = load_workload(layout), gemm_space(layout, sizes)
        problem = workload.problem(dict(zip("MNK", sizes, strict=True)), "bfloat16")
        bench = CudaBench(workload, problem, "h200", 8e-3, 60.0, number, lambda phase: None)
        for index, (title, schedule) in enumerate(draw(space, 2, seed=number)):
            kernel = source_of(space, schedule)
            cubin = folder / f"{number}-{index}.cubin"
            write_whole(plan_path(cubin), dumps(kernel.plan).encode())
            write_whole(cubin, compile_source(kernel.source, "sm_90a").cubin)
            outcome = bench.measure(str(cubin), 1, lambda step: None)
            wrong += not isinstance(outcome, Measured)
            print(layout, sizes, title, outcome, flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(1 if run(int(sys.argv[1]), Path(sys.argv[2])) else 0)
