"""Allocations and tile ops of the surface, under TileLang's signatures.

Invariant: an op is checked as far as its sizes are known here; what depends on Params is checked
when they are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explorer.expr import FALSE, TRUE, Cond, Expr, const
from explorer.ir.nodes import Buffer, Copy, Fill, Gemm, Reduce, Region, whole
from explorer.ir.verify import show_extents, view_problem
from explorer.lang.context import current, located
from explorer.lang.dtypes import element_type
from explorer.lang.loops import positive, read_hints
from explorer.lang.values import BufferRef, Tile, as_condition, as_scalar
from explorer.machine import Scope

Annotations = Mapping[str, Any] | None


def _allocate(what: str, shape: Any, dtype: Any, scope: Scope) -> BufferRef:
    builder = current(what)
    builder.require_open(what)
    sizes = shape if isinstance(shape, list | tuple) else (shape,)
    extents = tuple(positive(size, f"a size of {what}") for size in sizes)
    if not extents:
        raise located(f"{what} needs at least one dimension: use (1,)")
    ref = BufferRef(Buffer("", extents, element_type(dtype), scope))
    builder.buffers.append(ref)
    return ref


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> BufferRef:
    """A buffer in shared memory (the unified buffer on Ascend)."""
    return _allocate("T.alloc_shared", shape, dtype, Scope.SHARED)


def alloc_fragment(shape: Any, dtype: Any, scope: str = "local.fragment") -> BufferRef:
    """A buffer spread over the registers of a role's threads."""
    return _allocate("T.alloc_fragment", shape, dtype, Scope.FRAGMENT)


def alloc_local(shape: Any, dtype: Any, scope: str = "local") -> BufferRef:
    """A buffer of which every thread has its own."""
    return _allocate("T.alloc_local", shape, dtype, Scope.LOCAL)


def alloc_tmem(shape: Any, dtype: Any) -> BufferRef:
    """A buffer in tensor memory."""
    return _allocate("T.alloc_tmem", shape, dtype, Scope.TMEM)


def alloc_l1(shape: Any, dtype: Any, scope: str = "shared.l1") -> BufferRef:
    """A buffer in Ascend's L1."""
    return _allocate("T.alloc_l1", shape, dtype, Scope.L1)


def alloc_l0a(shape: Any, dtype: Any, scope: str = "shared.l0a") -> BufferRef:
    """A buffer for the left operand of Ascend's cube unit."""
    return _allocate("T.alloc_l0a", shape, dtype, Scope.L0A)


def alloc_l0b(shape: Any, dtype: Any, scope: str = "shared.l0b") -> BufferRef:
    """A buffer for the right operand of Ascend's cube unit."""
    return _allocate("T.alloc_l0b", shape, dtype, Scope.L0B)


def alloc_l0c(shape: Any, dtype: Any, scope: str = "shared.l0c") -> BufferRef:
    """A buffer for the accumulator of Ascend's cube unit."""
    return _allocate("T.alloc_l0c", shape, dtype, Scope.L0C)


def view(src: BufferRef, shape: Any = None, dtype: Any = None) -> BufferRef:
    """The bytes of an on-chip buffer in another shape or type, by default its own.

    Annotations of a view are those of its storage. Machines with roles refuse views.
    """
    builder = current("T.view")
    builder.require_open("T.view")
    if not isinstance(src, BufferRef) or src.buffer.scope == Scope.GLOBAL:
        raise located(f"T.view takes an on-chip buffer, got {getattr(src, 'name', src)!r}")
    storage = src.buffer
    if storage.scope.private:
        raise located(f"T.view of '{storage.name}', which is private to its threads: copy it")
    sizes = storage.shape if shape is None else shape
    extents = sizes if isinstance(sizes, list | tuple) else (sizes,)
    element = storage.dtype if dtype is None else element_type(dtype)
    made = Buffer(
        "",
        tuple(positive(size, "a size of T.view") for size in extents),
        element,
        storage.scope,
        storage.home,
    )
    problem = view_problem(made, storage)
    if problem is not None:
        raise located(problem)
    ref = BufferRef(made)
    builder.buffers.append(ref)
    return ref


def reshape(src: BufferRef, shape: Any) -> BufferRef:
    """The elements of an on-chip buffer in another shape."""
    return view(src, shape)


# ---------------------------------------------------------------- regions


def _region(operand: Any, what: str) -> Region:
    if isinstance(operand, BufferRef):
        return whole(operand.buffer)
    if isinstance(operand, Tile):
        if not operand.sliced:
            raise located(
                f"{what} got the element {operand.buffer.name}[...]: give the buffer or a slice"
            )
        return operand.region()
    raise located(f"{what} takes a buffer or a slice of one, got {operand!r}")


def _extents(operand: Any, what: str) -> tuple[Expr, ...] | None:
    """The extents that an operand states; None where it gives only a start."""
    if isinstance(operand, Tile) and not operand.sliced:
        return None
    return _region(operand, what).shape


def _box_at(tile: Tile, extents: tuple[Expr, ...], what: str) -> Region:
    """The box that starts at an element and has the other side's extents, aligned at the right."""
    missing = len(tile.starts) - len(extents)
    while missing < 0 and extents[0] == const(1):
        extents, missing = extents[1:], missing + 1
    if missing < 0:
        raise located(
            f"{what} into or from '{tile.buffer.name}' of {len(tile.starts)} dimensions: "
            f"the other side has {len(extents)}"
        )
    box = (*(const(1) for _ in range(missing)), *extents)
    return Region(tile.buffer, tile.starts, box, frozenset(range(missing)))


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    annotations: Annotations = None,
    loop_layout: Any = None,
) -> None:
    """dst <- src, converted to dst's type.

    A side given as the element where it starts takes the extents of the other side. The keyword
    hints are a backend's. KernelError for extents that differ.
    """
    builder = current("T.copy")
    src_extents, dst_extents = _extents(src, "T.copy"), _extents(dst, "T.copy")
    if src_extents is None and dst_extents is None:
        ones = (const(1),)
        source, target = _box_at(src, ones, "T.copy"), _box_at(dst, ones, "T.copy")
    else:
        source = (
            _box_at(src, dst_extents or (), "T.copy")
            if src_extents is None
            else _region(src, "T.copy")
        )
        target = (
            _box_at(dst, src_extents or (), "T.copy")
            if dst_extents is None
            else _region(dst, "T.copy")
        )
    source, target = _same_rank(source, target)
    builder.emit(Copy(read_hints(annotations).op_id, source, target, builder.line), "T.copy")


def _same_rank(a: Region, b: Region) -> tuple[Region, Region]:
    """Squeeze leading extents of 1 from the region with more dimensions."""
    for first, second in ((a, b), (b, a)):
        extra = len(first.shape) - len(second.shape)
        kept = [axis for axis in range(len(first.extent)) if axis not in first.squeezed]
        if extra > 0 and all(first.extent[axis] == const(1) for axis in kept[:extra]):
            squeezed = Region(
                first.buffer, first.start, first.extent, first.squeezed | set(kept[:extra])
            )
            return (squeezed, b) if first is a else (a, squeezed)
    return a, b


def gemm(
    A: Any,  # noqa: N803
    B: Any,  # noqa: N803
    C: Any,  # noqa: N803
    transpose_A: bool = False,  # noqa: N803
    transpose_B: bool = False,  # noqa: N803
    policy: Any = None,
    clear_accum: Any = False,
    mbar: Any = None,
    annotations: Annotations = None,
) -> None:
    """C (M x N) += op(A) (M x K) op(B) (K x N); C starts at 0 where `clear_accum` holds.

    A may be a fragment. `policy` is a backend's hint; `mbar` is refused, since barriers belong to
    schedules. KernelError for shapes that do not fit.
    """
    builder = current("T.gemm")
    if mbar is not None:
        raise located("T.gemm takes no mbar: barriers belong to schedules")
    a, b, c = (_region(operand, "T.gemm") for operand in (A, B, C))
    clear: Cond = TRUE if clear_accum is True else FALSE
    if not isinstance(clear_accum, bool):
        clear = as_condition(clear_accum)
    op_id = read_hints(annotations).op_id
    builder.emit(
        Gemm(op_id, a, b, c, bool(transpose_A), bool(transpose_B), clear, builder.line), "T.gemm"
    )


def fill(buffer: Any, value: Any, annotations: Annotations = None) -> None:
    """Every element of a buffer or of a slice <- value."""
    builder = current("T.fill")
    scalar = as_scalar(value)
    builder.verify_reads(scalar.reads)
    op_id = read_hints(annotations).op_id
    builder.emit(Fill(op_id, _region(buffer, "T.fill"), scalar.value, builder.line), "T.fill")


def clear(buffer: Any, annotations: Annotations = None) -> None:
    """Every element of a buffer or of a slice <- 0."""
    fill(buffer, 0, annotations)


def _reduce(
    what: str, kind: str, src: Any, dst: Any, dim: int, keep: bool, annotations: Annotations
) -> None:
    builder = current(what)
    source, target = _region(src, what), _region(dst, what)
    rank = len(source.shape)
    if not -rank <= dim < rank:
        raise located(f"{what} along dim {dim} of '{source.buffer.name}', which has {rank}")
    axis = dim % rank
    op_id = read_hints(annotations).op_id
    builder.emit(Reduce(op_id, kind, source, target, axis, not keep, builder.line), what)


def reduce_max(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Annotations = None,
) -> None:
    """out <- the maximum along `dim`, of the old `out` too unless `clear`."""
    _reduce("T.reduce_max", "max", buffer, out, dim, not clear, annotations)


def reduce_min(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Annotations = None,
) -> None:
    """out <- the minimum along `dim`, of the old `out` too unless `clear`."""
    _reduce("T.reduce_min", "min", buffer, out, dim, not clear, annotations)


def reduce_sum(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Annotations = None,
) -> None:
    """out <- the sum along `dim`, added to the old `out` unless `clear`."""
    _reduce("T.reduce_sum", "sum", buffer, out, dim, not clear, annotations)


def reduce_absmax(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Annotations = None,
) -> None:
    """out <- the largest magnitude along `dim`, of the old `out` too unless `clear`."""
    _reduce("T.reduce_absmax", "absmax", buffer, out, dim, not clear, annotations)


def atomic_add(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: Annotations = None,
) -> None:
    """dst += value in one indivisible step; an element in T.Parallel, or whole buffers."""
    builder = current("T.atomic_add")
    if return_prev:
        raise located("T.atomic_add returns no previous value: return_prev is not supported")
    op_id = read_hints(annotations).op_id
    if isinstance(dst, Tile) and not dst.sliced and not _is_tile(value):
        builder.store(dst.buffer, dst.indices(), value, atomic=True, op_id=op_id)
        return
    builder.atomic_tile(*_atomic_regions(dst, value), op_id)


def _is_tile(value: Any) -> bool:
    return isinstance(value, BufferRef) or (isinstance(value, Tile) and value.sliced)


def _atomic_regions(dst: Any, value: Any) -> tuple[Region, Region]:
    if not _is_tile(value):
        raise located("T.atomic_add of one value takes one element: index the destination")
    source = _region(value, "T.atomic_add")
    if isinstance(dst, Tile) and not dst.sliced:
        return _box_at(dst, source.shape, "T.atomic_add"), source
    target = _region(dst, "T.atomic_add")
    if len(target.shape) != len(source.shape):
        raise located(
            f"T.atomic_add from '{source.buffer.name}' {show_extents(source.shape)} to "
            f"'{target.buffer.name}' {show_extents(target.shape)}: the extents differ"
        )
    return target, source
