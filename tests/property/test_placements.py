"""Placements against the simulator, which knows bytes and clocks and no lifetime.

Every placement survives random interleavings with the right result; buffers that are moved onto
others which are still held are caught.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.machine import CPU, H200, Machine, Scope
from explorer.memory.placement import Placement
from explorer.passes.share_bytes import share_bytes
from explorer.program.arrange import Packing, Shared, in_order, placement_of
from explorer.program.nodes import Program
from explorer.program.requests import Request, requests_of
from explorer.program.shared import bump_layout
from explorer.program.simulator import simulate, trace
from explorer.program.verdict import Finished, Race
from explorer.schedule.extensions import Launch
from tests.property.test_simulator import QUICK, SIZES, TILE, options, problems
from tests.support.outcomes import trial
from tests.support.placed import (
    STAGING,
    attention_program,
    moved,
    staged_attention,
    staged_gemm,
)
from tests.support.programs import (
    gemm_inputs,
    gemm_kernel,
    gemm_program,
    meaning,
    program_of,
    relay_kernel,
)


@settings(QUICK, max_examples=30)
@given(problems, options(), st.integers(0, 1000))
def test_random_programs_survive_their_placement(
    problem: tuple[int, int, int], chosen: dict[str, Any], seed: int
) -> None:
    program = share_bytes(gemm_program(*problem, tile=TILE, **chosen), chosen["machine"])
    assert program.placement is not None
    found = program.placement.footprint(Scope.SHARED)
    assert found.proven
    assert (
        found.total_bytes
        <= found.bump_bytes
        == bump_layout(program, chosen["machine"]).total_bytes
    )
    inputs = gemm_inputs(*problem)
    expected = meaning(gemm_kernel(*problem), SIZES, inputs)["C"]
    for each in range(seed, seed + 2):
        verdict = simulate(program, inputs, each)
        assert isinstance(verdict, Finished), str(verdict)
        np.testing.assert_allclose(verdict.output("C"), expected, atol=1e-4)


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("tokens", [True, False])
def test_attention_survives_its_placement(machine: Machine, blocks: int, tokens: bool) -> None:
    draft = staged_attention(machine, Launch(blocks), tokens=tokens)
    program = share_bytes(attention_program(machine, Launch(blocks), tokens=tokens), machine)
    assert program.placement is not None
    assert program.placement.sharers(STAGING) == {"Q_shared"}
    runs = trial(draft.kernel, machine, dict(draft.sizes))
    for seed in range(2):
        verdict = simulate(program, runs.inputs, seed)
        assert isinstance(verdict, Finished), str(verdict)
        found, wanted = (x.astype(np.float64) for x in (verdict.output("O"), runs.expected["O"]))
        np.testing.assert_allclose(found, wanted, atol=1e-2)


def verdicts(program: Program, placement: Placement, seeds: int = 6) -> list[object]:
    at = evolve(program, placement=placement)
    return [trace(at, seed) for seed in range(seeds)]


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
def test_staging_over_values_that_are_still_read_is_caught(machine: Machine) -> None:
    program = share_bytes(attention_program(machine, Launch(1)), machine)
    assert program.placement is not None
    for verdict in verdicts(program, moved(program.placement, STAGING, "V_shared")):
        assert isinstance(verdict, Race)
        assert "shared bytes" in verdict.kind


def test_staging_over_queries_that_were_released_early_is_caught() -> None:
    program = share_bytes(attention_program(H200, Launch(1), release_last=False), H200)
    assert program.placement is not None
    for verdict in verdicts(program, moved(program.placement, STAGING, "Q_shared")):
        assert isinstance(verdict, Race)
        assert "shared bytes" in verdict.kind


def test_rows_of_consumers_that_nothing_orders_must_lie_at_one_offset() -> None:
    """A row further on, one consumer stages over rows that the other still reads."""
    program = share_bytes(attention_program(H200, Launch(1), tokens=False), H200)
    placement = program.placement
    assert placement is not None
    row = placement.buffer("Q_shared").row_bytes
    shifted = evolve(
        placement,
        buffers=tuple(
            evolve(each, offset_bytes=each.offset_bytes + row * 8)
            if each.buffer == STAGING
            else each
            for each in placement.buffers
        ),
    )
    assert any(isinstance(verdict, Race) for verdict in verdicts(program, shifted, 20))


@pytest.mark.parametrize("launch", [Launch(0), Launch(2)], ids=["once", "persistent"])
def test_two_operands_in_the_same_bytes_are_caught(launch: Launch) -> None:
    program = share_bytes(staged_gemm(launch=launch), H200)
    assert program.placement is not None
    for verdict in verdicts(program, moved(program.placement, "B_shared", "A_shared")):
        assert isinstance(verdict, Race)


def test_a_persistent_ring_under_the_staging_is_caught() -> None:
    program = share_bytes(staged_gemm(launch=Launch(1)), H200)
    assert program.placement is not None
    found = verdicts(program, moved(program.placement, "C_stage", "A_shared"), 20)
    assert any(isinstance(verdict, Race) for verdict in found)


def test_an_overwritten_value_is_caught_where_all_is_ordered() -> None:
    """One role: nothing races, but the second load takes the bytes of a value still to be read."""
    program = program_of(
        relay_kernel((3,), ops=2),
        {"all": (0, 1)},
        {},
        {"root": {"all": ["loop_0"]}, "loop_0": {"all": ["load_0", "load_1", "use_0", "use_1"]}},
    )
    placed = share_bytes(program, CPU)
    assert placed.placement is not None
    assert all(isinstance(v, Finished) for v in verdicts(placed, placed.placement))
    (first, *_) = verdicts(placed, moved(placed.placement, "S_1", "S_0"))
    assert isinstance(first, Race)
    assert first.kind == "overwritten in shared bytes"
    assert (first.buffer, first.op, first.other_op) == ("S_0", "use_0", "load_1")


def claims(program: Program, machine: Machine) -> Iterator[tuple[str, Program]]:
    """The program once for each pair that may share, both at one offset and all else apart."""

    def in_line(items: tuple[Request, ...], shared: Shared, pooled_bytes: int) -> Packing:
        return Packing(*in_order(items, pooled_bytes), True)

    requests = requests_of(program, machine)
    for one, other, how in requests.sharing:
        apart = placement_of(program, machine, evolve(requests, sharing=()), in_line)
        assert apart is not None
        small, large = sorted((one, other), key=lambda n: apart.buffer(n).alignment_bytes)
        yield f"{one} {how} {other}", evolve(program, placement=moved(apart, small, large))


@settings(QUICK, max_examples=40)
@given(problems, options(), st.integers(0, 1000))
def test_every_handover_that_is_claimed_holds(
    problem: tuple[int, int, int], chosen: dict[str, Any], seed: int
) -> None:
    machine = chosen["machine"]
    for claim, program in claims(gemm_program(*problem, tile=TILE, **chosen), machine):
        for each in range(seed, seed + 3):
            verdict = trace(program, each)
            assert isinstance(verdict, Finished), f"{claim}: {verdict}"


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
@pytest.mark.parametrize("length", [16, 48, 80])
@pytest.mark.parametrize("tokens", [True, False])
def test_every_handover_of_attention_holds(machine: Machine, length: int, tokens: bool) -> None:
    found = 0
    for blocks, last in ((0, True), (0, False), (1, True), (1, False)):
        program = attention_program(
            machine, Launch(blocks), length=length, tokens=tokens, release_last=last
        )
        for claim, placed in claims(program, machine):
            found += 1
            for seed in range(3):
                verdict = trace(placed, seed)
                assert isinstance(verdict, Finished), f"{claim}: {verdict}"
    assert found > 0
