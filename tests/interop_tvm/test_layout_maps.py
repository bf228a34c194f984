"""Element-to-address maps against TVM's layouts, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from tvm.tirx.layout import S, TCol, TLane
from tvm.tirx.layout import TileLayout as TheirLayout

from explorer.errors import MemoryPlanError
from explorer.ir.dtypes import dtype as element_type
from explorer.memory.layouts import Axis, Iter, TileLayout
from explorer.memory.swizzle import SwizzleMode, misfit
from tests.interop_tvm.sequences import (
    DTYPES,
    SCALES,
    Call,
    function,
    our_pools,
    run_ours,
    run_theirs,
    their_pools,
)

pytestmark = pytest.mark.interop


def their_map(layout: Any, shape: tuple[int, ...], axis: Axis) -> np.ndarray:
    """Their offsets of all elements along an axis."""
    found = (layout.apply(element) for element in range(prod(shape)))
    return np.array([int(places.get(axis.value, 0)) for places in found])


def swizzled_cases() -> Iterator[tuple[str, tuple[int, ...], SwizzleMode]]:
    for name, given in DTYPES.items():
        element = element_type(given)
        for mode in SwizzleMode:
            atom = (mode.atom_bytes or 32) * 8 // element.bits
            for shape in ((8, atom), (16, 2 * atom), (2, 8, atom), (2, 1, 24, 3 * atom)):
                if prod(shape) <= 4096 and misfit(shape, element, mode) is None:
                    yield name, shape, mode


SWIZZLED = list(swizzled_cases())
DATAPATHS = [
    (rows, columns, name, datapath)
    for rows, datapath in ((128, "D"), (64, "F"), (128, None), (64, None), (32, None), (1, None))
    for columns, name in ((32, "float32"), (24, "float16"), (16, "int8"), (16, "float4_e2m1fn"))
]
FACTORS = [
    (shape, name, per_mma, reuse)
    for shape in (
        (32, 4),
        (32, 8),
        (128, 4),
        (128, 16),
        (64, 24),
        (2, 128, 4),
        (2, 128, 16),
        (3, 96, 8),
        (2, 32, 4),
        (1, 64, 16),
    )
    for name in SCALES
    for per_mma in (1, 2, 4)
    for reuse in (1, 2, 4)
]
# Two MMAs in half a cell: whole columns only with wider elements, which their pool takes too.
FACTORS += [((64, 6), name, 1, 1) for name in ("float16", "float32")]


def test_there_are_enough() -> None:
    assert len(SWIZZLED) >= 50


@pytest.mark.parametrize(("name", "shape", "mode"), SWIZZLED, ids=str)
def test_swizzles(name: str, shape: tuple[int, ...], mode: SwizzleMode) -> None:
    call = Call("smem", "alloc_mma", (shape,), name, (("swizzle_mode", mode),))
    with function():
        granted, found = run_theirs(call, their_pools())
        assert granted
        expected = their_map(found.layout, shape, Axis.MEMORY)
        start = int(found.elem_offset)
    _, ours = run_ours(call, our_pools())
    bits = ours.dtype.bits
    assert (ours.map.bits(np.arange(prod(shape)), ours.dtype) == expected * bits).all()
    # Their offset counts whole elements, rounded down where bytes hold no whole number of them.
    assert start == ours.offset_bytes * 8 // bits
    if ours.offset_bytes * 8 % bits == 0:
        assert (ours.bits() == (expected + start) * bits).all()


@pytest.mark.parametrize(("rows", "columns", "name", "datapath"), DATAPATHS, ids=str)
def test_datapaths(rows: int, columns: int, name: str, datapath: str | None) -> None:
    call = Call("tmem", "alloc", ((rows, columns),), name, (("datapath", datapath),))
    compare_cells(call, (rows, columns))


@pytest.mark.parametrize(("shape", "name", "per_mma", "reuse"), FACTORS, ids=str)
def test_scale_factors(shape: tuple[int, ...], name: str, per_mma: int, reuse: int) -> None:
    call = Call("tmem", "alloc_sf", (shape,), name, (("sf_per_mma", per_mma), ("sf_reuse", reuse)))
    compare_cells(call, shape)


def compare_cells(call: Call, shape: tuple[int, ...]) -> None:
    """Lane, column, bit and copies of every element; or both refuse."""
    with function():
        pools = their_pools()
        pools["tmem"].move_base_to(8)
        granted, found = run_theirs(call, pools)
        if granted:
            lanes = their_map(found.layout, shape, Axis.LANE)
            columns = their_map(found.layout, shape, Axis.COLUMN)
            copies = [(int(i.extent), int(i.stride)) for i in found.layout.replica]
    pools = our_pools()
    pools["tmem"].move_base_to(8)
    same, ours = run_ours(call, pools)
    assert same == granted
    if granted:
        cells, bits = ours.cells(), columns * ours.dtype.bits
        assert (cells.lane == lanes).all()
        assert (cells.column == bits // 32 + 8).all()
        assert (cells.bit == bits % 32).all()
        assert [(i.extent, i.stride) for i in ours.layout.replica] == copies


def test_a_layout_of_the_callers() -> None:
    shape = (2, 128, 24)
    ours = TileLayout(
        [Iter(2, 48, Axis.COLUMN), Iter(128, 1, Axis.LANE), Iter(24, 2, Axis.COLUMN)]
    )
    spec = S[shape : (48 @ TCol, 1 @ TLane, 2 @ TCol)]
    with function():
        theirs = TheirLayout(spec)
        for axis in (Axis.LANE, Axis.COLUMN):
            expected = their_map(theirs, shape, axis)
            assert (ours.offsets(axis, np.arange(prod(shape))) == expected).all()
            assert ours.span(axis) == int(theirs.span(axis.value))
        pool = their_pools()["tmem"]
        with pytest.raises(AssertionError):
            pool.alloc(shape, "float16", layout=theirs)
        pool.alloc(shape, "float32", layout=theirs)
        own = our_pools()["tmem"]
        with pytest.raises(MemoryPlanError, match="tmem-whole-columns"):
            own.alloc(shape, "float16", layout=ours)
        own.alloc(shape, "float32", layout=ours)
        assert own.offset == pool.offset
