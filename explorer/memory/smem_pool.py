"""The bump allocator of shared memory, under the names of TVM's pool.

Offsets advance by whole bytes and go back only where `move_base_to` says so, which is how buffers
of disjoint lifetimes share bytes. The pool grants what TVM's grants and refuses what it refuses,
at the same offsets, and besides it refuses negative sizes, strides that do not match the shape and
swizzles of elements that straddle chunks. What else TVM grants wrongly is told by `audit`.

Invariant: a refusal leaves the pool as it was; the mark never falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias

from explorer.expr import IntLike, all_of, const, divides, maximum, round_up
from explorer.ir.dtypes import DType, dtype
from explorer.memory.conditions import Ledger, Obligation, plain, refuse, shape_of, size_of, text
from explorer.memory.layouts import TileLayout, mma_layout, row_major, strided
from explorer.memory.records import Allocation, PoolSize
from explorer.memory.swizzle import ATOM_ROWS, SwizzleMode, misfit, row_fits

_MODES = "'auto', 'none' or a SwizzleMode"


class _Owner(Enum):
    POOL = "the pool"


DefaultLayout: TypeAlias = Literal["default"]


class SMEMPool:
    """A bump allocator over one region of shared memory.

    Without `ptr` the pool owns the region, and `commit` after all allocations asks for its size.
    With `ptr`, any handle of the caller's, the caller sizes the region: `commit` does nothing and
    `max_offset` stays 0. Sizes may be symbolic.
    """

    def __init__(self, ptr: Any = _Owner.POOL) -> None:
        self.ptr = ptr
        self.offset: IntLike = 0
        self.max_offset: IntLike = 0
        self.committed_bytes: IntLike | None = None
        self._allocations: list[Allocation] = []
        self._instructions: list[PoolSize] = []
        self._ledger = Ledger()

    @property
    def owned(self) -> bool:
        """Whether the pool asks for the memory itself."""
        return self.ptr is _Owner.POOL

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """What was given out, in order."""
        return tuple(self._allocations)

    @property
    def instructions(self) -> tuple[PoolSize, ...]:
        """What the kernel must do for the pool, in order."""
        return tuple(self._instructions)

    @property
    def obligations(self) -> tuple[Obligation, ...]:
        """What must still hold when the sizes are known."""
        return self._ledger.obligations

    def alloc(
        self,
        shape: Sequence[IntLike],
        dtype: str | DType = "float32",
        strides: Sequence[IntLike] | None = None,
        scope: str = "shared.dyn",
        align: int = 0,
        layout: TileLayout | DefaultLayout | None = "default",
        *,
        name: str | None = None,
    ) -> Allocation:
        """Give out a buffer at the cursor, rounded up to `align` bytes if that is positive.

        The cursor advances by the elements' bits, rounded up to a byte. The default layout is
        row-major, or by `strides` (in elements); they do not change how far the cursor advances.
        """
        extents = shape_of(shape)
        steps = None if strides is None else shape_of(strides)
        if steps is not None and len(steps) != len(extents):
            refuse(
                "pool-strides",
                f"strides {text(steps)} for shape {text(extents)}; give one stride a dimension",
            )
        if isinstance(layout, str):
            if layout != "default":
                refuse("pool-layout", f"layout {layout!r}; use 'default', None or a TileLayout")
            layout = row_major(extents) if steps is None else strided(extents, steps)
        start = plain(round_up(self.offset, align)) if align > 0 else self.offset
        allocation = Allocation(
            name=name or f"smem_{len(self._allocations)}",
            shape=extents,
            dtype=_element(dtype),
            offset_bytes=start,
            align=align,
            scope=scope,
            strides=steps,
            layout=layout,
        )
        self._move(allocation.end_bytes)
        self._allocations.append(allocation)
        return allocation

    def alloc_mma(
        self,
        shape: Sequence[IntLike],
        dtype: str | DType = "float16",
        swizzle_mode: str | SwizzleMode = "auto",
        align: int = 1024,
        *,
        name: str | None = None,
    ) -> Allocation:
        """Give out a matrix operand in atoms of 8 rows x 128 B ('auto'), of a mode, or 'none'.

        Rows must be a positive multiple of 8 and of the atom's bytes; MemoryPlanError names the
        sizes and the mode that fits. Symbolic sizes leave that as an obligation.
        """
        extents, element = shape_of(shape), _element(dtype)
        mode = _mode(swizzle_mode)
        problem = misfit(extents, element, mode)
        if problem:
            refuse("mma-swizzle", problem)
        if mode != SwizzleMode.SWIZZLE_NONE:
            self._require_whole_atoms(extents, element, mode)
        layout = mma_layout(extents, element, mode)
        return self.alloc(extents, element, align=align, layout=layout, name=name)

    def _require_whole_atoms(
        self, extents: tuple[IntLike, ...], element: DType, mode: SwizzleMode
    ) -> None:
        rows, columns = extents[-2:]
        whole = all_of(
            row_fits(columns, element, mode), const(rows) >= 1, divides(ATOM_ROWS, rows)
        )
        self._ledger.require(
            whole,
            "mma-swizzle",
            f"shape {text(extents)} of {element} is not whole atoms of {ATOM_ROWS} rows x "
            f"{mode.atom_bytes} B ({mode.name}); use a narrower mode, or larger tiles",
        )

    def move_base_to(self, offset: IntLike) -> None:
        """Put the cursor at a byte offset, forward or back; the mark never falls."""
        self._move(size_of(offset, "the offset of move_base_to"))

    def _move(self, offset: IntLike) -> None:
        self.offset = offset
        if self.owned:
            self.max_offset = plain(maximum(self.max_offset, offset))

    def commit(self, size: IntLike | None = None) -> None:
        """Ask for `size` bytes, by default the mark; MemoryPlanError for less than the mark."""
        if not self.owned:
            return
        asked = self.max_offset if size is None else size_of(size, "the size of commit")
        self._ledger.require(
            const(asked) >= self.max_offset,
            "pool-size",
            f"commit of {asked} B is less than the {self.max_offset} B given out; "
            f"commit at least {self.max_offset}",
        )
        self.committed_bytes = asked
        self._instructions.append(PoolSize(asked))


def _element(name: str | DType) -> DType:
    return dtype(name)


def _mode(swizzle_mode: str | SwizzleMode) -> SwizzleMode:
    named = {"auto": SwizzleMode.SWIZZLE_128B_ATOM, "none": SwizzleMode.SWIZZLE_NONE}
    if isinstance(swizzle_mode, SwizzleMode):
        return swizzle_mode
    if swizzle_mode not in named:
        refuse("mma-swizzle", f"swizzle_mode {swizzle_mode!r}; use {_MODES}")
    return named[swizzle_mode]
