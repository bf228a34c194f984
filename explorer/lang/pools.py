"""Pools in a kernel: buffers whose offsets the author chooses, under the names of TVM's pools.

The arithmetic and the refusals are those of `memory`; what a pool gives out becomes a buffer of
the kernel, and its place stays with the kernel.

Invariant: a pool is committed, and one of tensor memory freed, before the kernel ends; conditions
on sizes that are still open stay with the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from attrs import evolve

from explorer.expr import Expr, IntLike, ceildiv, const
from explorer.ir.nodes import Buffer
from explorer.ir.pools import Pool, PoolCondition, TensorGrant
from explorer.lang.context import current, located
from explorer.lang.dtypes import element_type
from explorer.lang.loops import positive
from explorer.lang.values import BufferRef, Tile
from explorer.machine import Scope
from explorer.memory import smem_pool, tmem_pool, tmem_stages
from explorer.memory.audit import shared_conditions
from explorer.memory.conditions import Ledger, Obligation, refuse
from explorer.memory.layouts import TileLayout
from explorer.memory.places import shared_place, tensor_place
from explorer.memory.records import Allocation, TmemAllocation
from explorer.memory.smem_pool import DefaultLayout
from explorer.memory.swizzle import SwizzleMode
from explorer.memory.tmem_layouts import identity_layout

_SHARED_NAMES = ("shared.dyn", "shared")
Granted = TypeVar("Granted", Allocation, TmemAllocation)


def _buffer(what: str, granted: Allocation | TmemAllocation, scope: Scope) -> BufferRef:
    shape = tuple(positive(size, f"a size of {what}") for size in granted.shape)
    if not shape:
        raise located(f"{what} needs at least one dimension: use (1,)")
    ref = BufferRef(Buffer("", shape, granted.dtype, scope))
    current(what).buffers.append(ref)
    return ref


def _open(ledger: Sequence[Obligation]) -> Iterator[PoolCondition]:
    return (PoolCondition(each.rule, each.holds, each.message) for each in ledger)


class _Allocator(Protocol):
    """What the allocators of both memories say of their cursor."""

    @property
    def offset(self) -> IntLike: ...
    @property
    def max_offset(self) -> IntLike: ...


class KernelPool(Generic[Granted]):
    """What a pool of either memory is in a kernel: a name, a line of it, and what it gave out.

    `where` is the file and the line of its creation.
    """

    def __init__(self, title: str, scope: Scope, allocator: _Allocator) -> None:
        builder = current(title)
        self._title, self._scope, self._allocator = title, scope, allocator
        self._granted: list[tuple[BufferRef, Granted]] = []
        self._name = ""
        self.where = builder.trail.here()
        builder.pools.append(self)

    def bind_name(self, name: str) -> None:
        """Take the name of the variable that holds it."""
        self._name = self._name or current(self._title).claim(name, "pool")

    @property
    def offset(self) -> IntLike:
        """The cursor: bytes of shared memory, columns of tensor memory."""
        return self._allocator.offset

    @property
    def max_offset(self) -> IntLike:
        """The high-water mark; 0 for a pool that divides a buffer."""
        return self._allocator.max_offset

    def _give(self, what: str, granted: Granted) -> BufferRef:
        ref = _buffer(what, granted, self._scope)
        self._granted.append((ref, granted))
        return ref

    def finished(self) -> Pool:
        """Its record, when the kernel's body is complete."""
        raise NotImplementedError


class SMEMPool(KernelPool[Allocation]):
    """A bump allocator over shared memory.

    Without `ptr` the pool owns its memory, and `commit` follows the last allocation. `ptr` is a
    shared buffer of the kernel that the pool divides; `commit` then does nothing.
    """

    def __init__(self, ptr: BufferRef | None = None) -> None:
        builder = current("T.SMEMPool")
        builder.require_open("T.SMEMPool")
        if ptr is not None and not (
            isinstance(ptr, BufferRef) and ptr.buffer.scope == Scope.SHARED
        ):
            raise located(f"T.SMEMPool takes a shared buffer as ptr, got {ptr!r}")
        self._base = ptr
        self._pool = smem_pool.SMEMPool() if ptr is None else smem_pool.SMEMPool(ptr)
        self._words: set[str] = set()
        super().__init__("T.SMEMPool", Scope.SHARED, self._pool)

    def alloc(
        self,
        shape: Sequence[IntLike],
        dtype: Any = "float32",
        strides: Sequence[IntLike] | None = None,
        scope: str = "shared.dyn",
        align: int = 0,
        layout: TileLayout | DefaultLayout | None = "default",
    ) -> BufferRef:
        """A shared buffer at the cursor, rounded up to `align` bytes if that is positive."""
        if scope not in _SHARED_NAMES:
            raise located(f"pool.alloc got scope {scope!r}: it takes {' or '.join(_SHARED_NAMES)}")
        element = element_type(dtype)
        return self._give(
            "pool.alloc", self._pool.alloc(shape, element, strides, scope, align, layout)
        )

    def alloc_mma(
        self,
        shape: Sequence[IntLike],
        dtype: Any = "float16",
        swizzle_mode: str | SwizzleMode = "auto",
        align: int = 1024,
    ) -> BufferRef:
        """A matrix operand in atoms of 8 rows x 128 B ('auto'), of a mode, or 'none'."""
        element = element_type(dtype)
        granted = self._pool.alloc_mma(shape, element, swizzle_mode, align)
        return self._give("pool.alloc_mma", granted)

    def move_base_to(self, offset: IntLike) -> None:
        """Put the cursor at a byte offset, forward or back."""
        self._pool.move_base_to(offset)

    def commit(self, size: IntLike | None = None) -> None:
        """Ask for `size` bytes, by default the mark."""
        self._pool.commit(size)

    def address_word(self, allocation: Allocation) -> BufferRef:
        """The word of a tensor-memory pool that was taken from this one, as a buffer."""
        ref = self._give("T.TMEMPool", allocation)
        current("T.TMEMPool").name_buffer(ref, "tmem_addr")
        self._words.add(ref.name)
        return ref

    @property
    def pool(self) -> smem_pool.SMEMPool:
        """The allocator itself."""
        return self._pool

    def finished(self) -> Pool:
        """The pool's record; MemoryPlanError where it is not committed, or was too early."""
        name = self._name or "pool"
        ledger = Ledger()
        size = self._size(name, ledger)
        places = []
        for ref, granted in self._granted:
            allocation = evolve(granted, name=ref.name)
            places.append(shared_place(allocation, ref.name, ref.name in self._words))
            for condition in shared_conditions(allocation):
                ledger.require(condition.holds, condition.rule, condition.message)
            ledger.require(
                const(allocation.end_bytes) <= size,
                "pool-capacity",
                f"'{ref.name}' ends at byte {allocation.end_bytes} of the {size} B of '{name}'; "
                "use a larger region, or move_base_to bytes that are free again",
            )
        return Pool(
            name,
            Scope.SHARED,
            size,
            tuple(places),
            base=self._base.name if self._base is not None else "",
            conditions=tuple(_open((*self._pool.obligations, *ledger.obligations))),
        )

    def _size(self, name: str, ledger: Ledger) -> Expr:
        """The bytes that it holds: what was committed, or its base's."""
        if self._base is not None:
            return ceildiv(self._base.buffer.bits, 8)
        size = self._pool.committed_bytes
        if size is None:
            refuse("pool-commit", f"'{name}' asks for no memory; call {name}.commit()")
        mark = self._pool.max_offset
        ledger.require(
            const(mark) <= size,
            "pool-late-allocation",
            f"'{name}' gave out {mark} B and committed {size} B; call commit() after the last "
            "allocation",
        )
        return const(size)


class TMEMPool(KernelPool[TmemAllocation]):
    """A bump allocator over `total_cols` columns of tensor memory, all of which are allocated.

    The base column is written to a word of `pool`, 4 bytes, or to `tmem_addr`, a shared buffer or
    an address. `alloc_warp` allocates and `dealloc_warp`, by default the same, frees.
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
        builder = current("T.TMEMPool")
        builder.require_open("T.TMEMPool")
        if pool is not None and not isinstance(pool, SMEMPool):
            raise located(f"T.TMEMPool takes a T.SMEMPool first, got {pool!r}")
        self._pool = tmem_pool.TMEMPool(
            pool.pool if pool is not None else None,
            total_cols,
            cta_group=cta_group,
            alloc_warp=alloc_warp,
            dealloc_warp=dealloc_warp,
            tmem_addr=tmem_addr,
            sync_after_alloc=sync_after_alloc,
        )
        self._address: Any = tmem_addr
        if tmem_addr is None and pool is not None:
            self._address = pool.address_word(pool.pool.allocations[-1])
        super().__init__("T.TMEMPool", Scope.TMEM, self._pool)

    @property
    def addr(self) -> Any:
        """The word that holds the base column; what `tmem_addr` gave, where that is no buffer."""
        return self._address[0] if isinstance(self._address, BufferRef) else self._address

    def alloc(
        self,
        shape: Sequence[IntLike],
        dtype: Any = "float32",
        *,
        layout: TileLayout | None = None,
        cols: IntLike | None = None,
        datapath: str | None = None,
    ) -> BufferRef:
        """A buffer at the cursor, by its layout, its datapath 'D' or 'F', or row r in lane r."""
        element = element_type(dtype)
        granted = self._pool.alloc(shape, element, layout=layout, cols=cols, datapath=datapath)
        return self._give("tmem.alloc", granted)

    def alloc_sf(
        self, shape: Sequence[IntLike], dtype: Any, *, sf_per_mma: int, sf_reuse: int = 1
    ) -> BufferRef:
        """Scale factors: (rows, factors x sf_reuse), or (depth, rows, factors x sf_reuse)."""
        element = element_type(dtype)
        granted = self._pool.alloc_sf(shape, element, sf_per_mma=sf_per_mma, sf_reuse=sf_reuse)
        return self._give("tmem.alloc_sf", granted)

    def move_base_to(self, col: IntLike) -> None:
        """Put the cursor at a column, forward or back."""
        self._pool.move_base_to(col)

    def commit(self) -> None:
        """Let `alloc_warp` allocate all columns; once."""
        self._pool.commit()

    def dealloc(self) -> None:
        """Let `dealloc_warp` give up the permit and free all columns; once, after commit."""
        self._pool.dealloc()

    def finished(self) -> Pool:
        """The pool's record; MemoryPlanError where it is not committed, or not freed."""
        name, pool = self._name or "tmem", self._pool
        if not pool.committed:
            refuse("tmem-commit", f"'{name}' allocates nothing; call {name}.commit()")
        if not pool.deallocated:
            refuse(
                "tmem-held",
                f"the {pool.total_cols} columns of '{name}' are never freed; call "
                f"{name}.dealloc() at the end",
            )
        grant = TensorGrant(
            address=self._address.name if isinstance(self._address, BufferRef) else "",
            alloc_warp=pool.alloc_warp,
            dealloc_warp=pool.dealloc_warp,
            cta_group=pool.cta_group,
            sync_after_alloc=pool.sync_after_alloc,
        )
        places = tuple(tensor_place(granted, ref.name) for ref, granted in self._granted)
        conditions = tuple(_open(pool.obligations))
        size = const(pool.total_cols)
        return Pool(name, Scope.TMEM, size, places, grant=grant, conditions=conditions)


class TMEMStages:
    """Stage s takes `width` columns from `col_start + s * stride` of a (rows, columns) buffer.

    Columns count the buffer's elements; `stride` is `width` by default. `stages[s]` is the region
    of a stage, `stages[s, start:stop]` some of its columns, either end open.
    """

    def __init__(
        self,
        buf: BufferRef,
        col_start: IntLike,
        width: IntLike,
        stages: int = 1,
        stride: IntLike | None = None,
    ) -> None:
        current("T.TMEMStages")
        if not isinstance(buf, BufferRef) or buf.buffer.scope != Scope.TMEM:
            raise located(f"T.TMEMStages takes a buffer in tensor memory, got {buf!r}")
        self.buf = buf
        self._stages = tmem_stages.TMEMStages(_columns_of(buf), col_start, width, stages, stride)

    def __getitem__(self, item: Any) -> Tile:
        """The region of a stage, or of a slice of its columns."""
        region = self._stages[item]
        step = None if region.step == 1 else region.step
        return self.buf[:, slice(region.start, region.stop, step)]


def _columns_of(ref: BufferRef) -> TmemAllocation:
    """A buffer as stages see it: a shape, and a name for messages."""
    shape: tuple[Expr, ...] = ref.buffer.shape
    layout = identity_layout(shape[0], shape[-1])
    return TmemAllocation(ref.name, shape, ref.buffer.dtype, 0, shape[-1], layout)
