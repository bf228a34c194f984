"""Clusters: neighbours in lock-step, copies that are fetched once, barriers of several blocks."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from explorer.expr import const
from explorer.ir.nodes import Copy
from explorer.machine import H200
from explorer.program.launch import block_count, tile_count, tiles_of
from explorer.program.nodes import Exec, Program, Signal, Step, Wait
from explorer.program.printer import show_program
from explorer.program.simulator import simulate, trace
from explorer.program.steps import executed, signals
from explorer.program.verdict import BadCount, Finished, Hang, Race
from explorer.schedule.extensions import CopyRoute, Extensions, Launch, MatrixLag, Raster, Route
from tests.support.programs import (
    edit_role,
    gemm_inputs,
    gemm_kernel,
    gemm_program,
    meaning,
)

TILE = {"block_M": 4, "block_N": 4, "block_K": 2}
SEEDS = range(8)


def grid_program(extents: tuple[int, ...], launch: Launch) -> Program:
    grid = tuple(
        (name, const(size)) for name, size in zip(("bx", "by", "bz"), extents, strict=False)
    )
    return evolve(gemm_program(4, 4, 2), grid=grid, launch=launch)


def clustered(
    m: int, n: int, k: int, size: int = 2, axis: int = 0, blocks: int = 0, **options: object
) -> Program:
    given = {"consumer_warps": 4, **options}
    given.setdefault("extensions", Extensions())
    launch = Launch(blocks, cluster=size, cluster_axis=axis)
    given["extensions"] = evolve(given["extensions"], launch=launch)  # type: ignore[type-var]
    return gemm_program(m, n, k, H200, **given)


@pytest.mark.parametrize("group", [1, 2, 3])
@pytest.mark.parametrize("raster", list(Raster))
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("size", [2, 4])
def test_c30_clusters_map_one_to_one_onto_the_padded_grid(
    size: int, axis: int, raster: Raster, group: int
) -> None:
    for extents in ((1, 1), (3, 5), (4, 6), (5, 3), (9, 9), (3, 5, 2)):
        launch = Launch(2 * size, raster, group, cluster=size, cluster_axis=axis)
        program = grid_program(extents, launch)
        found = []
        for block in range(block_count(program)):
            for tile in tiles_of(program, block):
                found.append(tuple(tile[name] for name, _ in program.grid))
        padded = [e + -e % size if at == axis else e for at, e in enumerate(extents)]
        assert len(found) == tile_count(program) == np.prod(padded)
        assert set(found) == set(np.ndindex(*padded))


@pytest.mark.parametrize("blocks", [0, 4])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_blocks_of_a_cluster_work_on_neighbours(axis: int, blocks: int) -> None:
    launch = Launch(blocks, Raster.GROUPED, 2, cluster=2, cluster_axis=axis)
    program = grid_program((5, 7), launch)
    for first in range(0, block_count(program), 2):
        pairs = list(zip(tiles_of(program, first), tiles_of(program, first + 1), strict=True))
        assert len(pairs) == len(list(tiles_of(program, first)))
        along, across = ("bx", "by") if axis == 0 else ("by", "bx")
        for one, two in pairs:
            assert (two[along], two[across]) == (one[along] + 1, one[across])
            assert one[along] % 2 == 0


def multicast(program: Program) -> set[str]:
    return {e.op.id for role in program.roles for e in executed(role.body) if e.multicast > 1}


def test_the_copy_that_the_axis_does_not_move_is_shared() -> None:
    assert multicast(clustered(8, 8, 4, axis=0)) == {"copy_A"}
    assert multicast(clustered(8, 8, 4, axis=1)) == {"copy_B"}
    assert multicast(clustered(8, 8, 4, size=1)) == set()
    text = show_program(clustered(8, 8, 4, axis=0))
    assert "raster row group 1; clusters of 2 along bx" in text
    assert "A[by * 4 + 2 * (tile % 2) :+ 2, ko * 2 :+ 2]" in text
    assert "by bulk to 2 blocks" in text
    assert "arrive ab.empty x128 at 2 blocks" in text


@pytest.mark.parametrize("route", [CopyRoute.ELEMENT, CopyRoute.ASYNC])
def test_other_routes_are_not_multicast(route: CopyRoute) -> None:
    routes = (Route("copy_A", route), Route("copy_B", CopyRoute.BULK))
    program = clustered(8, 8, 4, extensions=Extensions(routes=routes))
    assert multicast(program) == set()
    assert program.barriers[0].empty_count == 128
    assert all(s.blocks == 1 for role in program.roles for s in signals(role.body))


def test_c03_the_empty_side_counts_the_consumers_of_all_blocks() -> None:
    program = clustered(8, 8, 4, consumers=2)
    assert (program.barriers[0].full_count, program.barriers[0].empty_count) == (1, 512)
    assert {s.blocks for role in program.roles for s in signals(role.body) if not s.full} == {2}
    assert {s.blocks for role in program.roles for s in signals(role.body) if s.full} == {1}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(8, 8, 6), (9, 5, 7), (3, 17, 4), (17, 3, 1), (4, 4, 0)])
def test_clusters_compute_what_the_kernel_means(
    shape: tuple[int, int, int], axis: int, size: int
) -> None:
    sizes = (8, 8, 4)
    lag = Extensions(lags=(MatrixLag("mma", 1),))
    inputs = gemm_inputs(*shape)
    names = dict(zip(TILE, sizes, strict=True))
    expected = meaning(gemm_kernel(*shape), names, inputs)["C"]
    for blocks, options in ((0, {}), (size, {"extensions": lag, "depth": 3, "consumers": 2})):
        program = clustered(*shape, size, axis, blocks, tile=sizes, **options)
        for seed in SEEDS:
            verdict = simulate(program, inputs, seed)
            assert isinstance(verdict, Finished), str(verdict)
            np.testing.assert_allclose(verdict.output("C"), expected, atol=1e-4)


def faults(program: Program) -> list[object]:
    return [trace(program, seed) for seed in SEEDS]


def with_count(program: Program, **counts: int) -> Program:
    return evolve(program, barriers=(evolve(program.barriers[0], **counts),))


def test_c03_counts_of_one_block_are_found() -> None:
    program = clustered(8, 8, 12)
    low, high = (faults(with_count(program, empty_count=count)) for count in (128, 512))
    assert all(isinstance(verdict, BadCount | Race) for verdict in low)
    assert all(isinstance(verdict, Hang) for verdict in high)


def test_a_release_that_stays_at_home_hangs_its_neighbour() -> None:
    def local(step: Step) -> list[Step]:
        return [evolve(step, blocks=1)] if isinstance(step, Signal) else [step]

    program = edit_role(clustered(8, 8, 12), "C", local)
    assert all(isinstance(verdict, Hang) for verdict in faults(program))


def test_empty_barriers_of_one_block_let_another_overwrite() -> None:
    """Counts and releases agree block by block, and the copies still land in both."""

    def local(step: Step) -> list[Step]:
        return [evolve(step, blocks=1)] if isinstance(step, Signal) else [step]

    program = edit_role(clustered(8, 8, 24, depth=1), "C", local)
    found = faults(with_count(program, empty_count=128))
    assert all(isinstance(verdict, BadCount | Race | Hang) for verdict in found)
    assert any(isinstance(verdict, Race) for verdict in found)


def test_a_share_that_stays_at_home_is_missed() -> None:
    def local(step: Step) -> list[Step]:
        return [evolve(step, multicast=1)] if isinstance(step, Exec) else [step]

    program = edit_role(clustered(8, 8, 12), "P", local)
    inputs = gemm_inputs(8, 8, 12)
    expected = meaning(gemm_kernel(8, 8, 12), TILE, inputs)["C"]
    verdict = simulate(program, inputs)
    assert isinstance(verdict, Finished)
    assert not np.allclose(verdict.output("C"), expected)


def test_a_producer_that_does_not_wait_is_caught() -> None:
    def hasty(step: Step) -> list[Step]:
        return [] if isinstance(step, Wait | Signal) else [step]

    found = faults(edit_role(clustered(8, 8, 12), "P", hasty))
    assert not any(isinstance(verdict, Finished) for verdict in found)


def test_each_block_fetches_an_equal_share() -> None:
    program = clustered(8, 8, 4)
    (copy,) = {e.op for r in program.roles for e in executed(r.body) if e.multicast > 1}
    assert isinstance(copy, Copy)
    assert [str(each) for each in copy.dst.start] == ["2 * (tile % 2)", "0"]
    assert [str(each) for each in copy.dst.extent] == ["2", "2"]
