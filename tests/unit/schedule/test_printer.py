"""The readable form of a schedule."""

from __future__ import annotations

from explorer.machine import H200
from explorer.schedule.extensions import Extensions, Launch, Raster
from explorer.schedule.printer import show_schedule
from explorer.space import build_space
from tests.kernels.gemm import gemm
from tests.support.programs import gemm_kernel, gemm_schedule

EXPECTED = """\
gemm on h200 at block_K 64, block_M 128, block_N 128
  12 warps
  role producer    warps [0, 1), 24 registers a thread
  role consumer_0  warps [4, 8), 152 registers a thread
  role consumer_1  warps [8, 12), 152 registers a thread
  ring A  A_shared, 3 slots
  ring B  B_shared, 2 slots
  scope root
    producer    ko
    consumer_0  fill_C_local  ko  copy_C_stage  copy_C
    consumer_1  fill_C_local  ko  copy_C_stage  copy_C
  scope ko
    producer    acquire(A)  copy_A_shared  commit(A)  acquire(B)@1  copy_B_shared  commit(B)@1
    consumer_0  wait(A)  wait(B)  gemm_C_local  release(A)  release(B)
    consumer_1  wait(A)  wait(B)  gemm_C_local  release(A)  release(B)
  shared consumer side of A: consumer_0, consumer_1
  shared consumer side of B: consumer_0, consumer_1
  rows split among consumer_0, consumer_1
  gemm_C_local completes 1 iterations after its issue
  copy_C goes through C_staging
  gemm_C_local in instructions of 64 x 128
  launch: 132 resident blocks, grouped raster, groups of 8
"""


def test_every_part_of_a_schedule_is_printed() -> None:
    tiles = {"block_M": (128,), "block_N": (128,), "block_K": (64,)}
    space = build_space(gemm(512, 512, 512, "bfloat16"), H200, tiles)
    titles = [skeleton.title for skeleton in space.skeletons]
    title = "roles producer+consumer_0+consumer_1; rings A_shared B_shared; staged epilogue"
    values = {choice.name: choice.domain[0] for choice in space.choices}
    values |= {
        "skeleton": titles.index(title),
        "depth_A": 3,
        "depth_B": 2,
        "stage_B": 1,
        "lag_gemm_C_local": 1,
        "blocks": 132,
        "raster": 2,
        "group": 8,
    }
    assert show_schedule(space.candidate(values)) == EXPECTED


def test_clusters_are_printed() -> None:
    launch = Launch(132, Raster.COLUMN, cluster=2, cluster_axis=1)
    schedule = gemm_schedule(gemm_kernel(8, 8, 8), extensions=Extensions(launch=launch))
    last = show_schedule(schedule).splitlines()[-1]
    assert last.strip() == (
        "launch: 132 resident blocks, column raster, clusters of 2 along grid axis 1"
    )


def test_a_stream_is_printed() -> None:
    extensions = Extensions(launch=Launch(132, stream=True))
    schedule = gemm_schedule(gemm_kernel(8, 8, 8), extensions=extensions)
    last = show_schedule(schedule).splitlines()[-1]
    assert last.strip() == "launch: 132 resident blocks, row raster, last tiles streamed"
