"""What a placement says about itself: spans, sharers, the text of its map."""

from __future__ import annotations

from attrs import evolve

from explorer.machine import Scope
from explorer.memory.placement import (
    ALWAYS,
    BARRIERS,
    TENSOR_ADDRESS,
    Footprint,
    Lifetime,
    PlacedBuffer,
    Placement,
    memory_map,
)

RING = PlacedBuffer(
    "A", Scope.SHARED, 1024, 3000, 3072, 3, 1024, Lifetime(0, 2, "copy_A", "mma"), 1000, 1
)
STAGING = PlacedBuffer(
    "C", Scope.SHARED, 1024, 2048, 2048, 1, 1024, Lifetime(3, 4, "stage", "store"), 64, 2
)
WORDS = PlacedBuffer(BARRIERS, Scope.SHARED, 0, 48, 48, 1, 8, ALWAYS)
ADDRESS = PlacedBuffer(TENSOR_ADDRESS, Scope.SHARED, 48, 4, 4, 1, 4, ALWAYS)
COLUMNS = PlacedBuffer("acc", Scope.TMEM, 0, 65536, 65536, 1, 512, Lifetime(2, 4, "mma", "take"))
PLACED = Placement(
    (RING, STAGING, WORDS, ADDRESS, COLUMNS),
    (
        Footprint(Scope.SHARED, 10168, 12288, 10168, True),
        Footprint(Scope.TMEM, 65536, 65536, 131072, False),
    ),
)


def test_sizes_and_padding() -> None:
    assert (RING.size_bytes, RING.end_bytes, RING.padding_bytes) == (9144, 10168, 144)
    assert (STAGING.size_bytes, STAGING.padding_bytes) == (2048, 0)


def test_rows_lie_in_every_box() -> None:
    assert RING.spans(2, (1, 3)) == ((1024 + 2 * 3072 + 1000, 1024 + 2 * 3072 + 3000),)
    assert STAGING.spans(0, (0, 4)) == ((1024, 1280), (2048, 2304))
    assert STAGING.spans(0, None) == ((1024, 3072),)
    assert evolve(STAGING, row_bytes=0).spans(0, (0, 4)) == ((1024, 3072),)


def test_who_shares_bytes() -> None:
    assert PLACED.sharers("A") == {"C"}
    assert PLACED.sharers(BARRIERS) == frozenset()
    assert PLACED.sharers("acc") == frozenset()  # another memory
    assert PLACED.sharers("nobody") == frozenset()
    touching = evolve(STAGING, buffer="D", offset_bytes=RING.end_bytes)
    assert not touching.overlaps(RING)


def test_the_layout_that_emitters_read() -> None:
    shared = PLACED.shared
    assert [ring.buffer for ring in shared.rings] == ["A", "C"]
    assert (shared.barriers_offset_bytes, shared.total_bytes) == (0, 10168)
    ring = shared.ring("A")
    assert (ring.offset_bytes, ring.pitch_bytes, ring.versions) == (1024, 3072, 3)
    none = Placement((), ()).shared
    assert (none.rings, none.barriers_offset_bytes, none.total_bytes) == ((), 0, 0)


def test_the_map_as_text() -> None:
    lines = memory_map(PLACED).split("\n")
    assert lines[0] == "shared: 10168 B (minimal, proven; 12288 B without sharing)"
    assert lines[1].split() == [
        *("offset", "bytes", "versions", "pitch", "align", "padding", "buffer", "lifetime")
    ]
    assert lines[2].split() == ["0", "48", "1", "48", "8", "0", BARRIERS, "always"]
    ring = next(line for line in lines if " A " in line)
    assert ring.split()[:7] == ["1024", "9144", "3", "3072", "1024", "144", "A"]
    assert ring.endswith("copy_A .. mma (shares bytes with C)")
    tensor = "tmem: 65536 B, allocated as 131072 B (not proven minimal; 65536 B without sharing)"
    assert tensor in lines
