"""How tensor memory is filled: datapaths D and F, and scale factors.

Tensor memory has 128 lanes of 32-bit columns. Layouts count columns in elements of the buffer; a
cell is found by their bits. Sources: PTX ISA, tcgen05 data path layouts and scale factor layouts;
TVM's layouts of the same names.

Invariant: equal to TVM's, element by element, the flawed ones of `scale_factor_layout` included;
`audit` tells which those are.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from explorer.expr import IntLike
from explorer.ir.dtypes import DType
from explorer.memory.conditions import refuse
from explorer.memory.layouts import Axis, Iter, TileLayout
from explorer.memory.swizzle import IntArray

CELL_BITS = 32
LANES = 128
SF_ROWS = 32
SF_PER_CELL = 4
DATAPATH_ROWS = {"D": 128, "F": 64}


@frozen(eq=False)
class Cells:
    """Where elements lie: lane, column, and first bit inside the cell, an array each."""

    lane: IntArray
    column: IntArray
    bit: IntArray


def cells(layout: TileLayout, elements: IntArray, element: DType) -> Cells:
    """The cells of elements, columns counted from the start of the allocation."""
    bits = layout.offsets(Axis.COLUMN, elements) * element.bits
    return Cells(layout.offsets(Axis.LANE, elements), bits // CELL_BITS, bits % CELL_BITS)


def identity_layout(rows: IntLike, columns: IntLike) -> TileLayout:
    """Row r in lane r."""
    return TileLayout([Iter(rows, 1, Axis.LANE), Iter(columns, 1, Axis.COLUMN)])


def datapath_layout(datapath: str, rows: IntLike, columns: IntLike) -> TileLayout:
    """Where an MMA of 128 rows (D) or of 64 rows (F) leaves its accumulator.

    D: row r in lane r. F: 16 rows in each quarter of the lanes. MemoryPlanError for other letters
    and other numbers of rows.
    """
    if datapath not in DATAPATH_ROWS:
        refuse("tmem-datapath", f"datapath {datapath!r} is not known; use 'D' or 'F'")
    expected = DATAPATH_ROWS[datapath]
    if rows != expected:
        other = next((name for name, count in DATAPATH_ROWS.items() if count == rows), None)
        remedy = f"use datapath {other!r}" if other else f"use {expected} rows, or pass layout="
        refuse("tmem-datapath", f"datapath {datapath!r} has {expected} rows, not {rows}; {remedy}")
    if datapath == "D":
        return identity_layout(rows, columns)
    return TileLayout(
        [Iter(4, 32, Axis.LANE), Iter(16, 1, Axis.LANE), Iter(columns, 1, Axis.COLUMN)]
    )


def scale_factor_layout(shape: Sequence[int], sf_per_mma: int, sf_reuse: int = 1) -> TileLayout:
    """Scale factors of a block-scaled MMA: (rows, factors x reuse), or (depth, rows, ...).

    32 rows lie in 32 lanes, repeated for each warp of the group; the next 32 rows are one cell to
    the right. The factors of several MMAs share a cell as far as they fill it evenly; further ones
    follow after those of all rows. `sf_reuse` MMAs in a row read the same factor. Factors of 8
    bits are assumed.
    """
    *depth, rows, _ = shape
    count = _distinct_factors(shape, sf_per_mma, sf_reuse)
    groups, mmas = rows // SF_ROWS, count // sf_per_mma
    packed = max(1, SF_PER_CELL // sf_per_mma)
    while mmas % packed:
        packed //= 2
    shard = [
        Iter(groups, SF_PER_CELL, Axis.COLUMN),
        Iter(SF_ROWS, 1, Axis.LANE),
        Iter(mmas // packed, groups * SF_PER_CELL, Axis.COLUMN),
        Iter(packed, sf_per_mma, Axis.COLUMN),
        Iter(sf_per_mma, 1, Axis.COLUMN),
        Iter(sf_reuse, 0, Axis.COLUMN),
    ]
    if depth:
        # TVM takes the axis of the first iterator, which is the lane where all rows are one group.
        axis = Axis.COLUMN if groups > 1 else Axis.LANE
        shard.insert(0, Iter(depth[0], groups * SF_PER_CELL, axis))
    return TileLayout(shard, replica=[Iter(LANES // SF_ROWS, SF_ROWS, Axis.LANE)])


def _distinct_factors(shape: Sequence[int], sf_per_mma: int, sf_reuse: int) -> int:
    """The factors stored a row; MemoryPlanError where the shape does not hold them evenly."""
    *_, rows, last = shape
    for value, what in ((sf_per_mma, "sf_per_mma"), (sf_reuse, "sf_reuse")):
        if value < 1:
            refuse("tmem-scale-factors", f"{what} is {value}; it must be at least 1")
    if last % sf_reuse:
        refuse(
            "tmem-scale-factors",
            f"the last extent {last} is not a multiple of sf_reuse {sf_reuse}; "
            f"use {-(-last // sf_reuse) * sf_reuse}",
        )
    count = last // sf_reuse
    if count < 1 or count % sf_per_mma:
        refuse(
            "tmem-scale-factors",
            f"{last} / sf_reuse {sf_reuse} = {count} factors a row are not a positive multiple "
            f"of sf_per_mma {sf_per_mma}; use {max(1, -(-count // sf_per_mma)) * sf_per_mma}",
        )
    if rows < SF_ROWS:
        refuse("tmem-scale-factors", f"{rows} rows are less than the {SF_ROWS} of a group")
    return count
