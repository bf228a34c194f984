"""Bump arithmetic: what fits, counted as the hardware counts it."""

import pytest

from explorer.errors import MemoryPlanError
from explorer.expr import Const, Param, evaluate, holds
from explorer.machine import H200, Scope
from explorer.memory.bump import Piece, SharedRequest, bump, slots_that_fit

MEMORY = H200.memory(Scope.SHARED)
assert MEMORY is not None
BLOCK = MEMORY.capacity_bytes


@pytest.mark.parametrize(("depth", "total", "fits"), [(4, 262144, False), (3, 212992, True)])
def test_a_dequantised_copy_is_counted_once(depth: int, total: int, fits: bool) -> None:
    ring = [Piece("X", 16384, 1024, depth), Piece("W", 32768, 1024, depth)]
    placed = bump([*ring, Piece("W_bf16", 65536, 1024)])
    assert placed.total_bytes == total
    assert (total <= BLOCK) == fits
    assert slots_that_fit(ring, [Piece("W_bf16", 65536, 1024)], BLOCK) == 3


def test_padding_decides_how_many_stages_fit() -> None:
    sizes = {"A": 4096, "B": 8192, "scales": 1536}
    packed = [Piece(name, size, 1) for name, size in sizes.items()]
    padded = [Piece(name, size, 1024) for name, size in sizes.items()]
    assert slots_that_fit(packed, [], 42000) == 3
    assert slots_that_fit(padded, [], 42000) == 2
    assert [bump([Piece(p.name, p.size_bytes, 1024, 3) for p in padded]).total_bytes] == [43008]


@pytest.mark.parametrize(("capacity", "fits"), [(BLOCK, True), (101376, False)])
def test_capacity_is_that_of_the_device(capacity: int, fits: bool) -> None:
    assert holds(SharedRequest(102400).fits(capacity)) == fits


@pytest.mark.parametrize(("budget", "rows"), [(48 * 1024, []), (BLOCK, [1, 2])])
def test_rows_of_16384_elements(budget: int, rows: list[int]) -> None:
    found = []
    for block_m in (1, 2, 4, 8):
        pieces = [Piece(name, 16384 * 2 * block_m) for name in ("x", "y")]
        if evaluate(bump(pieces).total_bytes) <= budget:
            found.append(block_m)
    assert found == rows


@pytest.mark.parametrize(
    ("dynamic", "static", "limit", "fits"),
    [
        (101120, 256, 101376, True),
        (101120, 257, 101376, False),
        (232448, 64, BLOCK, False),
        (49152, 16, BLOCK, True),
        (232448, 0, BLOCK, True),
    ],
)
def test_static_memory_takes_from_the_dynamic(
    dynamic: int, static: int, limit: int, fits: bool
) -> None:
    request = SharedRequest(dynamic, static)
    assert holds(request.fits(limit)) == fits
    if fits:
        request.check(limit)
        return
    numbers = f"{dynamic} B .* {static} B > {limit} B .* {limit - static} B"
    with pytest.raises(MemoryPlanError, match=numbers):
        request.check(limit)


@pytest.mark.parametrize(
    ("dynamic", "static", "opts_in"), [(49152, 0, False), (49152, 16, True), (98304, 0, True)]
)
def test_when_a_launch_opts_in(dynamic: int, static: int, opts_in: bool) -> None:
    assert SharedRequest(dynamic, static).opts_in == opts_in


def test_a_static_segment_shifts_the_base() -> None:
    assert bump([Piece("tile", 8192, 1024)], base_bytes=16).spots[0].offset_bytes == 1024


def test_every_slot_starts_aligned() -> None:
    assert Piece("ring", 1000, 128, 3).pitch_bytes == 1024
    assert bump([Piece("ring", 1000, 128, 3)]).total_bytes == 3072
    assert bump([Piece("once", 1000, 128)]).total_bytes == 1000


def test_symbolic_sizes_and_depths() -> None:
    ring = Piece("A", Param("block_M") * 128, 1024, Param("depth"))
    total = bump([Piece("pad", 64), ring]).total_bytes
    assert evaluate(total, {"block_M": 128, "depth": 3}) == 1024 + 3 * 16384
    assert Piece("k", Const(3)).size_bytes == 3
