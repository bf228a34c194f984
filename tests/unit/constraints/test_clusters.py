"""Rules of clusters, each with a schedule that it takes and one that it refuses."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.constraints import FeasibleModel, Status, check
from explorer.expr import Var, const
from explorer.ir.nodes import Copy, Kernel, Loop
from explorer.ir.uniform import uniform_copies
from explorer.machine import CPU, H200
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import Launch
from explorer.space import SearchSpace, build_space
from tests.kernels.attention import attention
from tests.kernels.gemm import gemm
from tests.support.cuda_candidates import DIRECT, SMALL, WORKER, candidate, gemm_space
from tests.support.programs import gemm_kernel, gemm_schedule, region

SPACE = gemm_space("gemm", (1024, 1024, 1024))
FOUR = evolve(H200, cluster_max=4)


def broken(launch: Launch, **choices: int) -> set[str]:
    schedule = candidate(SPACE, DIRECT, **(SMALL | {"depth_A_B": 2} | choices))
    changed = evolve(schedule, extensions=evolve(schedule.extensions, launch=launch))
    return {violation.rule for violation in check(SPACE.kernel, changed, H200).violations}


@pytest.mark.parametrize(
    ("launch", "legal"),
    [
        (Launch(132, cluster=2), True),
        (Launch(0, cluster=2, cluster_axis=1), True),
        (Launch(131, cluster=2), False),
        (Launch(132, cluster=3), False),
        (Launch(132, cluster=4), False),
        (Launch(132, cluster=2, cluster_axis=2), False),
        (Launch(132, cluster=2, cluster_axis=-1), False),
        (Launch(132, cluster=1, cluster_axis=1), False),
    ],
)
def test_size_and_axis(launch: Launch, legal: bool) -> None:
    assert broken(launch) == set() if legal else "cluster" in broken(launch)


def test_the_cpu_has_no_clusters() -> None:
    kernel = gemm_kernel(8, 8, 8)
    schedule = gemm_schedule(kernel, CPU)
    for cluster, rules in ((1, set()), (2, {"cluster"})):
        extensions = evolve(schedule.extensions, launch=Launch(2, cluster=cluster))
        found = check(kernel, evolve(schedule, extensions=extensions), CPU)
        assert {violation.rule for violation in found.violations} == rules


@pytest.mark.parametrize(
    ("rows", "size", "legal"), [(16, 2, True), (24, 2, False), (16, 4, False)]
)
def test_shares_are_whole_swizzle_patterns(rows: int, size: int, legal: bool) -> None:
    """B is the same for neighbours along M; its tile has block_K rows."""
    kernel = gemm_kernel(256, 256, 256)
    schedule = gemm_schedule(kernel, H200, tile=(64, 64, rows), consumer_warps=4)
    launch = Launch(cluster=size, cluster_axis=1)
    schedule = evolve(schedule, extensions=evolve(schedule.extensions, launch=launch))
    found = {violation.rule for violation in check(kernel, schedule, FOUR).violations}
    assert ("cluster-shares" in found) != legal
    along_n = evolve(schedule.extensions, launch=Launch(cluster=size))
    found = {v.rule for v in check(kernel, evolve(schedule, extensions=along_n), FOUR).violations}
    assert "cluster-shares" not in found


def picked_kernel(rows: int) -> tuple[Kernel, Schedule]:
    """gemm_kernel, but each tile row `by` is a matrix of its own: C[by, :, :]."""
    kernel = gemm_kernel(256, 256, 256)
    store = kernel.body[-1]
    assert isinstance(store, Copy)
    out = evolve(store.dst.buffer, shape=tuple(map(const, (rows, 64, 256))))
    target = region(out, (Var("by"), 1), (0, 64), (Var("bx") * 64, 64))
    kernel = evolve(
        kernel,
        tensors=(*kernel.tensors[:2], out),
        grid=(kernel.grid[0], ("by", const(rows))),
        body=(*kernel.body[:-1], evolve(store, dst=target)),
    )
    schedule = gemm_schedule(kernel, H200, tile=(64, 64, 32), consumer_warps=4)
    return kernel, evolve(schedule, binding=bind(kernel, H200.name, schedule.params))


@pytest.mark.parametrize(("rows", "axis", "legal"), [(4, 1, True), (3, 1, False), (3, 0, True)])
def test_nothing_is_written_beyond_the_grid(rows: int, axis: int, legal: bool) -> None:
    kernel, schedule = picked_kernel(rows)
    launch = Launch(cluster=2, cluster_axis=axis)
    changed = evolve(schedule, extensions=evolve(schedule.extensions, launch=launch))
    found = {violation.rule for violation in check(kernel, changed, H200).violations}
    assert ("cluster-edge" in found) != legal


def test_uniform_copies_of_a_gemm() -> None:
    kernel = gemm_kernel(8, 8, 8)
    assert set(uniform_copies(kernel, "bx")) == {"copy_A"}
    assert set(uniform_copies(kernel, "by")) == {"copy_B"}
    assert set(uniform_copies(kernel, "bz")) == {"copy_A", "copy_B"}


def test_a_copy_is_not_uniform_under_a_bound_that_varies() -> None:
    kernel = gemm_kernel(8, 8, 8)
    (clear, loop, store) = kernel.body
    assert isinstance(loop, Loop)
    causal = evolve(kernel, body=(clear, evolve(loop, extent=Var("bx") + 1), store))
    assert set(uniform_copies(causal, "bx")) == set()
    assert set(uniform_copies(causal, "by")) == {"copy_B"}


def choices(space: SearchSpace) -> dict[str, tuple[int, ...]]:
    return {choice.name: choice.domain for choice in space.choices}


def test_clusters_are_a_choice_where_neighbours_share_a_bulk_copy() -> None:
    assert choices(SPACE)["cluster"] == (1, 2)
    assert choices(SPACE)["cluster_axis"] == (0, 1)
    assert "cluster" not in choices(gemm_space("gemm", (129, 65, 33)))
    assert "cluster" not in choices(build_space(gemm(256, 256, 256), CPU))
    titles = [skeleton.title for skeleton in SPACE.skeletons]
    assert "cluster" not in SPACE.active(titles.index(WORKER))
    assert "cluster" in SPACE.active(titles.index(DIRECT))


def test_one_axis_that_shares_is_no_choice() -> None:
    """Only A can be fetched in bulk: rows of B are 130 B apart."""
    space = gemm_space("gemm", (1024, 65, 1024))
    assert "cluster" in choices(space)
    assert "cluster_axis" not in choices(space)


def test_equal_schedules_have_equal_assignments() -> None:
    model = FeasibleModel(SPACE)
    titles = [skeleton.title for skeleton in SPACE.skeletons]
    first = {choice.name: choice.domain[0] for choice in SPACE.choices}
    wish = first | SMALL | {"depth_A_B": 2, "skeleton": titles.index(DIRECT)}
    wish = {name: wish[name] for name in first}
    found = model.project(wish | {"cluster": 1, "cluster_axis": 1})
    assert found.status == Status.FOUND
    assert dict(found.assignment)["cluster_axis"] == 0
    found = model.project(wish | {"cluster": 2, "cluster_axis": 1})
    assert dict(found.assignment)["cluster"] == 2
    assert dict(found.assignment)["cluster_axis"] == 1


def test_attention_shares_keys_and_values_between_query_tiles() -> None:
    kernel = attention(1, 2, 2, 256, 256, 64)
    queries, heads = (name for name, _ in kernel.grid[:2])
    assert set(uniform_copies(kernel, queries)) == {"copy_K_shared", "copy_V_shared"}
    assert set(uniform_copies(kernel, heads)) == set()


def test_causal_attention_shares_nothing() -> None:
    """The tiles of one cluster would run loops of different lengths."""
    kernel = attention(1, 2, 2, 256, 256, 64, causal=True)
    assert set(uniform_copies(kernel, kernel.grid[0][0])) == set()
