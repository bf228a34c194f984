"""Pools for any sequence of calls, and layouts for any tile that they grant."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.errors import MemoryPlanError
from explorer.expr import Param, evaluate, holds
from explorer.ir.dtypes import DTYPES
from explorer.machine import B200
from explorer.memory.audit import audit_shared, overlapping
from explorer.memory.layouts import mma_layout
from explorer.memory.packing import pack
from explorer.memory.smem_pool import SMEMPool
from explorer.memory.swizzle import SwizzleMode, alignment_bytes, misfit
from explorer.memory.tmem_pool import TMEMPool

assert B200.tensor_memory is not None
TMEM = B200.tensor_memory
ELEMENTS = st.sampled_from(sorted(DTYPES))
SHAPES = st.lists(st.integers(0, 40), max_size=3).map(tuple)
ALIGNMENTS = st.sampled_from((0, 16, 128, 512, 1024))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(SHAPES, ELEMENTS, ALIGNMENTS), max_size=8))
def test_without_moves_buffers_are_disjoint_and_in_order(
    calls: list[tuple[tuple[int, ...], str, int]],
) -> None:
    pool = SMEMPool()
    for shape, name, align in calls:
        before = pool.offset
        found = pool.alloc(shape, name, align=max(align, DTYPES[name].bits // 8))
        assert evaluate(found.offset_bytes) >= evaluate(before)
        assert not align or evaluate(found.offset_bytes) % align == 0
        assert pool.max_offset == pool.offset == found.end_bytes
    assert overlapping(pool.allocations) == ()
    assert audit_shared(pool) == ()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.integers(-4, 4000), st.tuples(SHAPES, ELEMENTS)), max_size=10))
def test_the_mark_never_falls(calls: list[int | tuple[tuple[int, ...], str]]) -> None:
    pool = SMEMPool()
    for call in calls:
        mark, cursor = evaluate(pool.max_offset), pool.offset
        try:
            pool.move_base_to(call) if isinstance(call, int) else pool.alloc(*call)
        except MemoryPlanError:
            assert pool.offset == cursor
        assert evaluate(pool.max_offset) >= max(mark, evaluate(pool.offset))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 3), max_size=1),
    st.integers(1, 4),
    st.integers(1, 256),
    ELEMENTS,
    st.sampled_from(SwizzleMode),
)
def test_a_tile_fills_its_bytes_once(
    outer: list[int], atoms: int, columns: int, name: str, mode: SwizzleMode
) -> None:
    shape, element = (*outer, 8 * atoms, columns), DTYPES[name]
    if misfit(shape, element, mode) is not None:
        return
    layout = mma_layout(shape, element, mode)
    bits = layout.bits(np.arange(prod(shape)), element)
    assert (np.sort(bits) == np.arange(prod(shape)) * element.bits).all()
    # Rows of an atom stay inside the repetition that the alignment covers.
    assert mode.value == 0 or len(bits) * element.bits % (alignment_bytes(mode) * 8) == 0


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), ELEMENTS, ALIGNMENTS)
def test_a_symbolic_pool_bound_later_equals_a_known_one(
    rows: int, columns: int, name: str, align: int
) -> None:
    sizes = {"m": rows, "n": columns}
    open_pool, pool = SMEMPool(), SMEMPool()
    for one, shape in (
        (open_pool, (Param("m"), Param("n"))),
        (pool, (rows, columns)),
    ):
        one.alloc(shape, name, align=align)
        one.alloc((3, shape[0]), "int4")
        one.alloc(shape, name, align=align)
    assert tuple(a.at(sizes) for a in open_pool.allocations) == pool.allocations
    assert evaluate(open_pool.max_offset, sizes) == pool.max_offset


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 600), st.sampled_from(("float32", "float16", "int8", "int4")))
def test_an_obligation_says_what_the_known_pool_says(columns: int, name: str) -> None:
    open_pool = TMEMPool(SMEMPool())
    open_pool.alloc((128, Param("n")), name)
    kept = all(holds(o.holds, {"n": columns}) for o in open_pool.obligations)
    try:
        TMEMPool(SMEMPool()).alloc((128, columns), name)
        granted = True
    except MemoryPlanError:
        granted = False
    assert kept == granted


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 300), max_size=6))
def test_an_arena_holds_its_buffers(sizes: list[int]) -> None:
    try:
        arena = pack(sizes, TMEM)
    except MemoryPlanError:
        assert sum(sizes) > TMEM.columns
        return
    assert arena.used <= arena.allocated <= TMEM.columns
    assert arena.allocated == TMEM.columns_min or arena.allocated < 2 * arena.used
