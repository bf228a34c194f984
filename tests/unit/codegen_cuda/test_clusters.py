"""Sources of clusters: the launch attribute, shares, remote arrivals, and what they compile to."""

from __future__ import annotations

import re

import pytest

from explorer.codegen.cuda import CudaKernel, generate
from explorer.machine import H200
from explorer.runtime.cuda.compile import compile_source
from explorer.runtime.cuda.model import changed_schedule, compare
from explorer.schedule.extensions import CopyRoute
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
    LAYOUTS,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    STORER,
    TURNS,
    TWO_RINGS,
    candidate,
    gemm_space,
    program_of,
    source_of,
    with_routes,
)


def kernel_of(
    title: str,
    layout: str = "gemm",
    size: tuple[int, int, int] = (1024, 1024, 1024),
    **choices: int,
) -> CudaKernel:
    space = gemm_space(layout, size)
    return source_of(space, candidate(space, title, **({"cluster": 2} | choices)))


def test_a_cluster_in_source_and_plan() -> None:
    kernel = kernel_of(DIRECT, **GOOD, cluster_axis=1)
    assert "__cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)" in kernel.source
    assert (kernel.plan.cluster, kernel.plan.grid_blocks % 2) == (2, 0)
    # Before any copy and after the last one, idle warps included.
    assert kernel.source.count("  cluster_sync();") == 2
    assert kernel.source.rstrip().endswith("cluster_sync();\n}")
    assert "__syncthreads" not in kernel.source


def test_without_clusters_nothing_of_them_is_there() -> None:
    kernel = kernel_of(DIRECT, **GOOD, cluster=1)
    assert kernel.plan.cluster == 1
    assert "cluster_sync" not in kernel.source
    assert "__cluster_dims__" not in kernel.source
    assert "arrive_at" not in kernel.source


@pytest.mark.parametrize(("axis", "moved"), [(0, "0"), (1, "1")])
def test_each_block_loads_its_share_and_expects_all(axis: int, moved: str) -> None:
    kernel = kernel_of(DIRECT, "gemm_nt", **GOOD, cluster_axis=axis)
    shared = re.findall(r"bulk_load_2d_to_2\(.*&map_(\d)", kernel.source)
    assert shared == [moved]
    maps = kernel.plan.maps
    assert [tensor_map.tensor for tensor_map in maps[:2]] == ["A", "B"]
    rows = {"A": 128, "B": 256}
    for number, tensor_map in enumerate(maps[:2]):
        share = 2 if str(number) == moved else 1
        assert tensor_map.box == (64, rows[tensor_map.tensor] // share)
    assert f"arrive_expect(base + {kernel_barriers(kernel)}u" in kernel.source
    assert f", {(128 + 256) * 64 * 2}u);" in kernel.source
    assert "if (lane < 2u) arrive_at(" in kernel.source


def kernel_barriers(kernel: CudaKernel) -> int:
    found = re.search(r"barrier_init\(base \+ (\d+)u", kernel.source)
    assert found
    return int(found.group(1))


def test_guards_reach_beyond_the_grid() -> None:
    """Two whole tiles along the first axis need no guard there, unless a cluster is not whole."""
    size = (128, 384, 256)
    inside = kernel_of(DIRECT, size=size, **SMALL, cluster=1, depth_A_B=2)
    outside = kernel_of(DIRECT, size=size, **SMALL, depth_A_B=2)
    assert "< (384 - " not in inside.source
    assert "< (384 - " in outside.source
    assert outside.plan.grid_blocks == 4


def test_only_bulk_copies_reach_other_blocks() -> None:
    space = gemm_space("gemm", (512, 512, 512))
    schedule = candidate(space, ONE_CONSUMER, **SMALL, depth_A_B=2, cluster=2)
    stated = dict.fromkeys(("copy_A_shared", "copy_B_shared"), CopyRoute.ELEMENT)
    kernel = source_of(space, with_routes(schedule, stated))
    assert "arrive_at" not in kernel.source
    assert "_to_2" not in kernel.source
    assert kernel.source.count("  cluster_sync();") == 2


def assert_compiles(kernel: CudaKernel) -> None:
    pytest.importorskip("cuda.bindings")
    found = compile_source(kernel.source, kernel.plan.arch)
    compare(kernel.plan, found.resources)
    assert changed_schedule(found.resources) == ""
    assert found.resources.spill_bytes == 0


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_known_good_schedule_compiles_in_clusters(layout: str, axis: int) -> None:
    space = gemm_space(layout, (8192, 8192, 8192))
    kernel = source_of(space, candidate(space, STAGED, **GOOD, cluster=2, cluster_axis=axis))
    assert_compiles(kernel)


@pytest.mark.parametrize("title", [ONE_CONSUMER, TWO_RINGS, STORER, TURNS])
def test_every_kind_of_roles_compiles_in_clusters(title: str) -> None:
    depths = dict.fromkeys(("depth_A", "depth_B", "depth_A_B", "depth_C_staging"), 2)
    blocks = {"blocks": 132} if title == TURNS else {}
    assert_compiles(kernel_of(title, size=(1000, 1000, 1000), **(SMALL | depths | blocks)))


def test_waits_that_give_up_compile_in_clusters() -> None:
    space = gemm_space("gemm", (512, 512, 256))
    program = program_of(space, candidate(space, DIRECT, **SMALL, depth_A_B=2, cluster=2))
    assert_compiles(generate(program, H200, bound_ns=1000))
