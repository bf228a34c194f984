"""Parts of a reduction under random interleavings: right sums, one last part, single faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from explorer.machine import CPU, H200, Machine
from explorer.program.launch import tiles_of
from explorer.program.listing import show_roles
from explorer.program.nodes import Drain, Program, Step, Ticket
from explorer.program.simulator import simulate, trace
from explorer.program.verdict import Finished, OpenTickets, Race, Verdict
from explorer.schedule.extensions import Extensions, Launch, MatrixLag, Raster, StagedStore
from tests.support.programs import edit_role, gemm_inputs, gemm_kernel, gemm_program, meaning

SEEDS = range(8)
TILE = {"block_M": 4, "block_N": 4, "block_K": 2}


def split(
    parts: int, k: int = 8, machine: Machine = H200, blocks: int = 0, **options: object
) -> Program:
    extensions = Extensions(
        lags=(MatrixLag("mma", 1),) if machine is H200 else (),
        launch=Launch(blocks, Raster.GROUPED, 2, split=parts),
        staged=(StagedStore("store", "C_stage"),) if options.get("staged") else (),
    )
    warps = machine.warps_per_group
    return gemm_program(6, 9, k, machine, consumer_warps=warps, extensions=extensions, **options)


def verdicts(program: Program) -> list[Verdict]:
    return [trace(program, seed) for seed in SEEDS]


@pytest.mark.parametrize("machine", [CPU, H200], ids=["cpu", "h200"])
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize(("parts", "k"), [(2, 8), (3, 7), (3, 1), (5, 4), (2, 0)])
def test_the_last_part_adds_up_all(parts: int, k: int, consumers: int, machine: Machine) -> None:
    inputs = gemm_inputs(6, 9, k)
    expected = meaning(gemm_kernel(6, 9, k), TILE, inputs)["C"]
    for blocks, staged in ((0, False), (3, True)):
        program = split(parts, k, machine, blocks, consumers=consumers, staged=staged)
        found = [simulate(program, inputs, seed) for seed in SEEDS]
        assert all(isinstance(verdict, Finished) for verdict in found), str(found[0])
        np.testing.assert_allclose(found[0].output("C"), expected, atol=1e-5)
        # The order of the additions is that of the parts, whoever came last.
        assert all(verdict == found[0] for verdict in found)


def test_parts_are_walked_tile_by_tile() -> None:
    program = split(2, blocks=1)
    tiles = list(tiles_of(program, 0))
    assert [tile["ko_part"] for tile in tiles] == [0] * 6 + [1] * 6
    assert [(t["bx"], t["by"]) for t in tiles[:6]] == [(t["bx"], t["by"]) for t in tiles[6:]]


def change(program: Program, edit: Callable[[Step], list[Step]]) -> Program:
    return edit_role(program, "C", edit)


def test_a_ticket_for_one_part_more_is_never_the_last() -> None:
    def more(step: Step) -> list[Step]:
        return [evolve(step, parts=step.parts + 1)] if isinstance(step, Ticket) else [step]

    found = verdicts(change(split(2), more))
    assert all(isinstance(verdict, OpenTickets) for verdict in found)
    assert "2 of 3 parts drew a number of tile" in str(found[0])


def test_a_ticket_for_one_part_less_lets_two_blocks_store() -> None:
    def less(step: Step) -> list[Step]:
        return [evolve(step, parts=step.parts - 1)] if isinstance(step, Ticket) else [step]

    assert all(isinstance(v, Race | OpenTickets) for v in verdicts(change(split(3), less)))


def test_sums_handed_over_after_the_ticket_race() -> None:
    program = split(2)
    role = program.roles[1]
    place = next(at for at, step in enumerate(role.body) if isinstance(step, Ticket))
    part, ticket = role.body[place - 1 : place + 1]
    body = (*role.body[: place - 1], ticket, part, *role.body[place + 1 :])
    late = evolve(program, roles=(program.roles[0], evolve(role, body=body)))
    found = verdicts(late)
    assert all(isinstance(v, Race) and v.buffer == "C_local_parts" for v in found), found


def test_sums_in_flight_are_not_handed_over() -> None:
    def undrained(step: Step) -> list[Step]:
        return [] if isinstance(step, Drain) else [step]

    found = verdicts(change(split(2), undrained))
    assert any(isinstance(v, Race) and v.op == "C_local_part" for v in found), found


def test_the_listing_follows_the_last_part() -> None:
    text = show_roles(split(2), lines=40)
    assert "draw a ticket, the last" in text
    assert "C_local_sum" in text
