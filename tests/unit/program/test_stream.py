"""Streamed tiles under random interleavings: right sums whoever comes last, and single faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st

from explorer.constraints import check
from explorer.expr import TRUE, const
from explorer.machine import H200
from explorer.passes import materialize
from explorer.program.launch import tiles_of, walked_extents
from explorer.program.listing import show_roles
from explorer.program.nodes import Program, Step, Ticket
from explorer.program.printer import show_program
from explorer.program.simulator import simulate, trace
from explorer.program.verdict import Finished, OpenTickets, Race, Verdict
from explorer.schedule.extensions import Extensions, Launch, MatrixLag, Raster, StagedStore
from explorer.schedule.stream import StreamedLoop
from explorer.space import build_space
from tests.kernels.epilogue import gemm_epilogue
from tests.support.programs import edit_role, gemm_inputs, gemm_kernel, gemm_program, meaning

SEEDS = range(8)
TILE = {"block_M": 4, "block_N": 4, "block_K": 2}
# Fifteen tiles of five iterations.
FUSED = gemm_epilogue(320, 48, 80, "gelu")


def streamed(
    m: int = 10, n: int = 13, k: int = 9, launch: Launch = Launch(5), **options: object
) -> Program:
    """Twelve tiles of five iterations on five blocks, unless others are asked for."""
    extensions = Extensions(
        lags=(MatrixLag("mma", 1),),
        launch=evolve(launch, stream=True),
        staged=(StagedStore("store", "C_stage"),) if options.get("staged") else (),
    )
    return gemm_program(m, n, k, H200, consumer_warps=4, extensions=extensions, **options)


def verdicts(program: Program) -> list[Verdict]:
    return [trace(program, seed) for seed in SEEDS]


@st.composite
def launches(draw: st.DrawFn) -> tuple[tuple[tuple[str, int], ...], int, Launch]:
    """A grid of two or three axes, the iterations of a tile, and a launch that can stream it."""
    extents = draw(st.lists(st.integers(1, 6), min_size=2, max_size=3))
    size = draw(st.sampled_from((1, 1, 2)))
    raster = draw(st.sampled_from(Raster))
    launch = Launch(
        draw(st.integers(1, 8)) * size,
        raster,
        draw(st.integers(1, 4)) if raster == Raster.GROUPED else 1,
        cluster=size,
        cluster_axis=draw(st.integers(0, 1)) if size > 1 else 0,
        stream=True,
    )
    grid = tuple(zip(("bx", "by", "bz"), extents, strict=False))
    return grid, draw(st.integers(1, 9)), launch


@given(launches())
def test_every_iteration_of_the_grid_is_worked_on_once(
    drawn: tuple[tuple[tuple[str, int], ...], int, Launch],
) -> None:
    extents, iterations, launch = drawn
    grid = tuple((name, const(extent)) for name, extent in extents)
    walked = [int(extent) for _, extent in walked_extents(grid, launch)]
    assume(np.prod(walked) >= launch.blocks)
    loop = StreamedLoop("ko", const(iterations))
    program = evolve(gemm_program(4, 4, 2), grid=grid, launch=launch, streamed=loop)
    found = [
        (*(tile[name] for name, _ in grid), tile["ko_first"] + i)
        for block in range(launch.blocks)
        for tile in tiles_of(program, block)
        for i in range(tile["ko_extent"])
    ]
    assert len(found) == len(set(found)) == np.prod(walked) * iterations
    assert set(found) == set(np.ndindex(*walked, iterations))


@pytest.mark.parametrize(
    ("sizes", "launch"),
    [
        ((10, 13, 9), Launch(5)),
        ((9, 22, 3), Launch(4, Raster.GROUPED, 2)),
        ((13, 13, 16), Launch(3, Raster.HILBERT)),
        ((4, 15, 7), Launch(2, Raster.COLUMN)),
        # Two tiles a cluster, one of them beyond the grid.
        ((10, 13, 9), Launch(4, cluster=2, cluster_axis=1)),
        ((10, 18, 9), Launch(4, Raster.COLUMN, cluster=2)),
    ],
)
@pytest.mark.parametrize(("consumers", "staged"), [(1, False), (2, True)])
def test_cut_tiles_are_added_up_by_whoever_comes_last(
    sizes: tuple[int, int, int], launch: Launch, consumers: int, staged: bool
) -> None:
    inputs = gemm_inputs(*sizes)
    expected = meaning(gemm_kernel(*sizes), TILE, inputs)["C"]
    program = streamed(*sizes, launch, consumers=consumers, staged=staged)
    found = [simulate(program, inputs, seed) for seed in SEEDS]
    assert all(isinstance(verdict, Finished) for verdict in found), str(found[0])
    np.testing.assert_allclose(found[0].output("C"), expected, atol=1e-5)
    # Two sums have no order.
    assert all(verdict == found[0] for verdict in found)


@pytest.mark.parametrize(
    "roles", ["worker; rings none", "producer+consumer; rings A_shared+B_shared bias_shared"]
)
@pytest.mark.parametrize("epilogue", ["direct", "staged"])
def test_an_epilogue_runs_once_a_tile(roles: str, epilogue: str) -> None:
    kernel, sizes = FUSED, {"block_M": 64, "block_N": 16, "block_K": 16}
    space = build_space(kernel, H200, {name: (value,) for name, value in sizes.items()})
    titles = [skeleton.title for skeleton in space.skeletons]
    values = {choice.name: choice.domain[0] for choice in space.choices}
    values |= {"skeleton": titles.index(f"roles {roles}; {epilogue} epilogue")}
    schedule = space.candidate(values | {"blocks": 4, "stream": 1})
    assert check(kernel, schedule, H200).ok
    random = np.random.default_rng(5)
    shapes = {"A": (320, 80), "B": (80, 48), "bias": (48,)}
    inputs = {name: random.standard_normal(s).astype(np.float16) for name, s in shapes.items()}
    program = materialize(kernel, schedule, H200)
    found = [simulate(program, inputs, seed) for seed in range(4)]
    assert all(isinstance(verdict, Finished) for verdict in found), str(found[0])
    expected = meaning(kernel, sizes, inputs)["C"]
    np.testing.assert_allclose(found[0].output("C"), expected, rtol=2e-3, atol=2e-3)
    assert all(verdict == found[0] for verdict in found)


def test_a_second_launch_finds_the_tickets_at_zero() -> None:
    program = streamed()
    cut = [
        tile for block in range(5) for tile in tiles_of(program, block) if tile["ko_extent"] < 5
    ]
    assert len(cut) == 8
    assert all(isinstance(verdict, Finished) for verdict in verdicts(program))


def change(program: Program, edit: Callable[[Step], list[Step]]) -> Program:
    return edit_role(program, "C", edit)


def test_a_whole_tile_that_draws_a_ticket_is_never_the_last() -> None:
    def always(step: Step) -> list[Step]:
        return [evolve(step, shared=TRUE)] if isinstance(step, Ticket) else [step]

    found = verdicts(change(streamed(), always))
    assert all(isinstance(verdict, OpenTickets | Race) for verdict in found), found


def test_parts_that_draw_at_different_places_leave_tickets_open() -> None:
    program = streamed()
    loop = program.streamed
    assert loop is not None

    def apart(step: Step) -> list[Step]:
        return [evolve(step, slot=step.slot + loop.part)] if isinstance(step, Ticket) else [step]

    found = verdicts(change(program, apart))
    assert all(isinstance(v, OpenTickets | Race) for v in found), found


def test_sums_handed_over_after_the_ticket_race() -> None:
    program = streamed()
    role = program.roles[1]
    place = next(at for at, step in enumerate(role.body) if isinstance(step, Ticket))
    part, ticket = role.body[place - 1 : place + 1]
    body = (*role.body[: place - 1], ticket, part, *role.body[place + 1 :])
    late = evolve(program, roles=(program.roles[0], evolve(role, body=body)))
    found = verdicts(late)
    assert any(isinstance(v, Race) and v.buffer == "C_local_parts" for v in found), found


def test_what_is_shown_of_a_streamed_launch() -> None:
    program = streamed()
    text = show_program(program)
    assert "5 resident blocks; raster row group 1; ko of the last tiles streamed" in text
    assert "is the last of 2 where ko_extent < 5, else 1" in text
    text = show_roles(program, block=1, lines=80)
    assert "tile 1: ko_first 0, ko_extent 5, ko_part 0, bx 1, by 0" in text
    assert "tile 6: ko_first 2, ko_extent 3, ko_part 1" in text
    first, later = text.split("tile 6", maxsplit=1)
    assert "draw a ticket" not in first
    assert "draw a ticket, the last" in later
