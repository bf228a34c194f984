"""Ranges of streamed tiles: every iteration once, and a tile cut at most once."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import assume, given
from hypothesis import strategies as st

from explorer.expr import Var, const, evaluate
from explorer.schedule.stream import UNITS_A_RANGE, Stream

UNIT, TILE, FIRST, PART = Var("unit"), Var("tile"), Var("first"), Var("part")


def pieces(stream: Stream) -> list[dict[str, int]]:
    """The units with iterations, each with what the formulas say of it."""
    found = []
    for unit in range(evaluate(stream.units)):
        env = {"unit": unit, "tile": evaluate(stream.tile(UNIT), {"unit": unit})}
        env["first"] = evaluate(stream.first(UNIT, TILE), env)
        env["extent"] = evaluate(stream.extent(UNIT, TILE, FIRST), env)
        env["part"] = min(env["first"], 1)
        env["cut"] = evaluate(stream.cut(UNIT, PART), env)
        assert env["extent"] >= 0
        if env["extent"]:
            found.append(env)
    return found


def of(tiles: int, iterations: int, blocks: int) -> Stream:
    return Stream(const(tiles), const(iterations), const(blocks))


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 24))
def test_the_units_hold_every_iteration_of_every_tile_once(
    tiles: int, iterations: int, blocks: int
) -> None:
    assume(tiles >= blocks)
    stream = of(tiles, iterations, blocks)
    held = [
        (each["tile"], each["first"] + i) for each in pieces(stream) for i in range(each["extent"])
    ]
    assert sorted(held) == [(tile, i) for tile in range(tiles) for i in range(iterations)]


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 24))
def test_a_tile_is_cut_at_most_once(tiles: int, iterations: int, blocks: int) -> None:
    """Its parts meet at one place of the workspace, which no other tile uses."""
    assume(tiles >= blocks)
    stream = of(tiles, iterations, blocks)
    parts: dict[int, list[dict[str, int]]] = defaultdict(list)
    for each in pieces(stream):
        if each["extent"] < iterations:
            parts[each["tile"]].append(each)
    for both in parts.values():
        assert sorted(each["part"] for each in both) == [0, 1]
        assert len({each["unit"] % blocks for each in both}) == 2
        assert len({each["cut"] for each in both}) == 1
    cuts = [both[0]["cut"] for both in parts.values()]
    assert len(set(cuts)) == len(cuts)
    assert all(0 <= cut < evaluate(stream.cuts) for cut in cuts)


@given(st.integers(2, 60), st.integers(1, 20), st.integers(1, 24))
def test_blocks_share_the_last_tiles_evenly(tiles: int, iterations: int, blocks: int) -> None:
    assume(tiles >= blocks)
    stream = of(tiles, iterations, blocks)
    work: dict[int, list[int]] = defaultdict(list)
    for each in pieces(stream):
        wave, block = divmod(each["unit"], blocks)
        assert wave == len(work[block])  # none without iterations in between
        work[block].append(each["extent"])
    assert max(map(sum, work.values())) == -(-tiles * iterations // blocks)


def test_a_block_has_whole_tiles_and_then_its_range() -> None:
    """Seven tiles of eight on three blocks: a wave, and four tiles in ranges of eleven."""
    found = pieces(of(7, 8, 3))
    mine = [(e["tile"], e["first"], e["extent"]) for e in found if e["unit"] % 3 == 1]
    assert mine == [(1, 0, 8), (4, 3, 5), (5, 0, 6)]
    assert max(e["unit"] for e in found) < 3 + UNITS_A_RANGE * 3
