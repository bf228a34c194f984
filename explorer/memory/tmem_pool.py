"""The bump allocator of tensor-memory columns, under the names of TVM's pool.

The pool allocates all of its columns at once, by one warp, and deals them out to buffers. The
hardware writes the base column to a 4-byte word of shared memory. The pool grants what TVM's
grants and refuses what it refuses, at the same columns; besides it refuses negative sizes. What
else TVM grants wrongly is told by `audit`.

Invariant: a refusal leaves the pool as it was; deallocation follows commit, and each happens once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from explorer.expr import IntLike, const, divides, maximum
from explorer.ir.dtypes import DType
from explorer.ir.dtypes import dtype as element_type
from explorer.memory.conditions import (
    Ledger,
    Obligation,
    known,
    plain,
    refuse,
    shape_of,
    size_of,
    text,
)
from explorer.memory.layouts import Axis, TileLayout
from explorer.memory.records import (
    Allocation,
    Instruction,
    Tcgen05Alloc,
    Tcgen05Dealloc,
    Tcgen05RelinquishAllocPermit,
    TmemAllocation,
    WarpSync,
    Word,
)
from explorer.memory.smem_pool import SMEMPool
from explorer.memory.tmem_layouts import (
    CELL_BITS,
    datapath_layout,
    identity_layout,
    scale_factor_layout,
)

CTA_GROUPS = (1, 2)


class TMEMPool:
    """A bump allocator over `total_cols` columns of 32-bit cells.

    The address word is taken from `pool`, 4 bytes, unless `tmem_addr` gives one. `alloc_warp`
    allocates, and `dealloc_warp` (the same by default) frees; `sync_after_alloc` lets the lanes
    of the allocating warp meet before the address is read. `cta_group` is 1, or 2 for CTA pairs.
    """

    def __init__(
        self,
        pool: SMEMPool | None,
        total_cols: int = 512,
        *,
        cta_group: int = 1,
        alloc_warp: int = 0,
        dealloc_warp: int | None = None,
        tmem_addr: Any = None,
        sync_after_alloc: bool = True,
    ) -> None:
        if cta_group not in CTA_GROUPS:
            refuse("tmem-cta-group", f"cta_group is {cta_group!r}; use 1, or 2 for CTA pairs")
        if tmem_addr is None and pool is None:
            refuse("tmem-address", "no word for the base column; pass an SMEMPool or tmem_addr=")
        self.pool = pool
        self.total_cols = known(size_of(total_cols, "total_cols"), "total_cols")
        self.cta_group = cta_group
        self.alloc_warp = alloc_warp
        self.dealloc_warp = alloc_warp if dealloc_warp is None else dealloc_warp
        self.sync_after_alloc = sync_after_alloc
        self.offset: IntLike = 0
        self.max_offset: IntLike = 0
        self.committed = False
        self.deallocated = False
        self._allocations: list[TmemAllocation] = []
        self._instructions: list[Instruction] = []
        self._ledger = Ledger()
        if tmem_addr is None and pool is not None:
            tmem_addr = pool.alloc((1,), "uint32", align=4, name="tmem_addr")
        self._address = tmem_addr

    @property
    def addr(self) -> Any:
        """The word that holds the base column: of the pool's slot, or what `tmem_addr` gave."""
        return Word(self._address) if isinstance(self._address, Allocation) else self._address

    @property
    def allocations(self) -> tuple[TmemAllocation, ...]:
        """What was given out, in order."""
        return tuple(self._allocations)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """What the kernel must do for the pool, in order; each names the warp that does it."""
        return tuple(self._instructions)

    @property
    def obligations(self) -> tuple[Obligation, ...]:
        """What must still hold when the sizes are known."""
        return self._ledger.obligations

    def alloc(
        self,
        shape: Sequence[IntLike],
        dtype: str | DType = "float32",
        *,
        layout: TileLayout | None = None,
        cols: IntLike | None = None,
        datapath: str | None = None,
        name: str | None = None,
    ) -> TmemAllocation:
        """Give out a buffer at the cursor.

        `datapath` 'D' or 'F' says which MMA writes it, `layout` says it freely; the default puts
        row r in lane r. `cols` is the number of 32-bit columns; by default that of the layout,
        or of the elements of a 2-D shape, which must fill whole columns.
        """
        extents, element = shape_of(shape), element_type(dtype)
        if datapath is not None:
            layout = _datapath(extents, layout, datapath)
        elif layout is None and len(extents) != 2:
            refuse(
                "tmem-shape",
                f"shape {text(extents)} has {len(extents)} dimensions; pass layout= (and cols= if "
                "it takes more than its layout spans) for shapes other than (rows, columns)",
            )
        columns = self._columns(extents, element, cols, layout)
        allocation = TmemAllocation(
            name=name or f"tmem_{len(self._allocations)}",
            shape=extents,
            dtype=element,
            column=self.offset,
            columns=columns,
            layout=layout or identity_layout(extents[0], extents[1]),
        )
        end = allocation.end_column
        self._ledger.require(
            const(end) <= self.total_cols,
            "tmem-overflow",
            f"'{allocation.name}' {text(extents)} takes columns {self.offset} to {end} of "
            f"{self.total_cols}; move_base_to columns that are free again, or use a smaller tile",
        )
        self._move(end)
        self._allocations.append(allocation)
        return allocation

    def _columns(
        self,
        extents: tuple[IntLike, ...],
        element: DType,
        cols: IntLike | None,
        layout: TileLayout | None,
    ) -> IntLike:
        if cols is not None:
            return size_of(cols, "cols")
        if layout is None and extents[0] == 0:
            refuse("tmem-shape", f"shape {text(extents)} has no rows; use at least one")
        columns = extents[1] if layout is None else layout.span(Axis.COLUMN)
        bits = const(columns) * element.bits
        self._ledger.require(
            divides(CELL_BITS, bits),
            "tmem-whole-columns",
            f"shape {text(extents)} of {element} takes {columns} x {element.bits} = {plain(bits)} "
            f"bits a lane, not whole {CELL_BITS}-bit columns; pad the last extent, or pass cols=",
        )
        return plain(bits // CELL_BITS)

    def alloc_sf(
        self,
        shape: Sequence[IntLike],
        dtype: str | DType,
        *,
        sf_per_mma: int,
        sf_reuse: int = 1,
        name: str | None = None,
    ) -> TmemAllocation:
        """Give out scale factors: (rows, factors x sf_reuse), or (depth, rows, ...).

        One MMA reads `sf_per_mma` factors a row, and `sf_reuse` MMAs in a row read the same.
        Sizes are known numbers.
        """
        extents = [known(extent, "an extent of alloc_sf") for extent in shape_of(shape)]
        if len(extents) not in (2, 3):
            refuse(
                "tmem-scale-factors",
                f"shape {text(extents)} has {len(extents)} dimensions; use "
                "(rows, factors x sf_reuse) or (depth, rows, factors x sf_reuse)",
            )
        layout = scale_factor_layout(extents, sf_per_mma, sf_reuse)
        return self.alloc(extents, dtype, layout=layout, name=name)

    def move_base_to(self, col: IntLike) -> None:
        """Put the cursor at a column, forward or back; the mark never falls."""
        self._move(size_of(col, "the column of move_base_to"))

    def _move(self, column: IntLike) -> None:
        self.offset = column
        self.max_offset = plain(maximum(self.max_offset, column))

    def commit(self) -> None:
        """Let `alloc_warp` allocate all `total_cols` columns; once."""
        if self.committed:
            refuse("tmem-commit", "the pool is committed already; call commit() once")
        self.committed = True
        self._instructions.append(
            Tcgen05Alloc(self.alloc_warp, self.addr, self.total_cols, self.cta_group)
        )
        if self.sync_after_alloc:
            self._instructions.append(WarpSync(self.alloc_warp))

    def dealloc(self) -> None:
        """Let `dealloc_warp` give up the permit and free all columns; once, after commit."""
        if not self.committed:
            refuse("tmem-dealloc", "nothing is allocated yet; call commit() before dealloc()")
        if self.deallocated:
            refuse("tmem-dealloc", "the columns are freed already; call dealloc() once")
        self.deallocated = True
        warp, group = self.dealloc_warp, self.cta_group
        self._instructions += [
            Tcgen05RelinquishAllocPermit(warp, group),
            Tcgen05Dealloc(warp, self.addr, self.total_cols, group),
        ]


def _datapath(
    extents: tuple[IntLike, ...], layout: TileLayout | None, datapath: str
) -> TileLayout:
    if layout is not None:
        refuse("tmem-layout", "layout= and datapath= were both given; pass one of them")
    if len(extents) != 2:
        refuse(
            "tmem-shape",
            f"shape {text(extents)} has {len(extents)} dimensions; datapath={datapath!r} takes "
            "(rows, columns)",
        )
    return datapath_layout(datapath, extents[0], extents[1])
