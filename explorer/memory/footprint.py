"""Footprint arithmetic: how many bytes buffers and barriers take, and where rings lie.

The same formulas serve the capacity rule (symbolic) and the emitters (offsets), so that what was
proven is what is allocated. They count every buffer with bytes of its own, one behind the other,
each version at the alignment of its scope, which is the widest that any use asks for. A placement
(`memory.placement`) starts from `slot_form`, which aligns by use, and never takes more: its
buffers are no larger and could lie where the formulas put them. The rule is therefore an upper
bound; a schedule that fits only where buffers share bytes is refused.

Invariant: every version of a ring starts at a multiple of its scope's alignment; barriers follow
the rings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from attrs import frozen

from explorer.expr import (
    Expr,
    IntLike,
    ceildiv,
    const,
    evaluate,
    maximum,
    product,
    round_up,
)
from explorer.ir.dtypes import DType
from explorer.ir.nodes import Buffer, Gemm, Op
from explorer.ir.pools import FixedPlace
from explorer.machine import Machine, Scope, TensorMemory
from explorer.memory.swizzle import alignment_bytes
from explorer.memory.tiles import tile_layout

# tcgen05.alloc writes the base column as one 32-bit word of shared memory (PTX ISA).
ADDRESS_BYTES = 4


def turned_operands(ops: Iterable[Op], machine: Machine) -> frozenset[str]:
    """The shared buffers whose slots hold their transpose: N x K operands B, read as K x N.

    Empty where the matrix op reads both orders. A buffer that is also some gemm's K x N operand
    keeps its order.
    """
    if machine.slots is None:
        return frozenset()
    turned: set[Buffer] = set()
    straight: set[Buffer] = set()
    for op in ops:
        if isinstance(op, Gemm) and op.b.buffer.scope == Scope.SHARED:
            (turned if op.transpose_b else straight).add(op.b.buffer)
    return frozenset(b.name for b in turned - straight if len(b.shape) == 2)


def stored_bits(element: DType, machine: Machine) -> int:
    """Bits of one element in a slot or a fragment."""
    if machine.slots is None:
        return element.bits
    return max(element.bits, machine.slots.float_bits_min if element.is_float else 8)


def row_pitch_bytes(columns: IntLike, element: DType, machine: Machine) -> Expr:
    """Bytes from one row of a slot to the next; only where the machine has a slot format."""
    assert machine.slots is not None
    row = const(columns) * (stored_bits(element, machine) // 8)
    return round_up(row, _alignment(Scope.SHARED, machine)) + machine.slots.row_padding_bytes


def slot_shape(buffer: Buffer, turned: frozenset[str]) -> tuple[Expr, ...]:
    """The shape of a buffer as its slots hold it."""
    return tuple(reversed(buffer.shape)) if buffer.name in turned else buffer.shape


def slot_bytes(buffer: Buffer, machine: Machine, turned: frozenset[str] = frozenset()) -> Expr:
    """The padded size of one version of a shared buffer; `turned` as of `turned_operands`."""
    if machine.slots is None or not buffer.shape:
        return round_up(ceildiv(buffer.bits, 8), _alignment(buffer.scope, machine))
    *rows, columns = slot_shape(buffer, turned)
    return product(rows) * row_pitch_bytes(columns, buffer.dtype, machine)


@frozen
class SlotForm:
    """One version of a buffer as it lies: `boxes` boxes side by side, each of `rows` rows that are
    `row_bytes` apart; `row_bytes` is 0 where rows do not lie together.

    A version takes `version_bytes`, the next one follows after `pitch_bytes`, and each starts at a
    multiple of `alignment_bytes`.
    """

    version_bytes: int
    pitch_bytes: int
    alignment_bytes: int
    rows: int = 1
    row_bytes: int = 0
    boxes: int = 1


def slot_form(
    buffer: Buffer,
    machine: Machine,
    turned: frozenset[str] = frozenset(),
    bulk: bool = False,
    place: FixedPlace | None = None,
) -> SlotForm:
    """How a version of a buffer of fixed size lies, aligned by its use.

    `bulk` says that the copy engine fills or drains it: versions are then multiples of 128 bytes.
    `place` is where a pool of the kernel holds it.
    """
    if buffer.scope == Scope.TMEM and machine.tensor_memory is not None:
        column = machine.tensor_memory.column_bytes
        size = evaluate(tensor_columns(buffer, machine.tensor_memory)) * column
        return SlotForm(size, size, column)
    *outer, columns = map(evaluate, buffer.shape) if buffer.shape else (1,)
    rows = math.prod(outer)
    if machine.slots is not None:
        size = evaluate(slot_bytes(buffer, machine, turned))
        row_bytes = 0 if buffer.name in turned or not rows else size // rows
        return SlotForm(size, size, _alignment(buffer.scope, machine), rows, row_bytes)
    tile = tile_layout(rows, columns, buffer.dtype, place)
    alignment = alignment_bytes(tile.swizzle, bulk)
    pitch = aligned(tile.total_bytes, alignment)
    whole = tile.box_columns * buffer.dtype.bits % 8 == 0
    row_bytes = tile.row_bytes if whole else 0
    return SlotForm(tile.total_bytes, pitch, alignment, rows, row_bytes, tile.boxes)


def barriers_form(depths: Iterable[int], machine: Machine) -> SlotForm:
    """The barriers of pipelines of those depths, all together."""
    size = evaluate(barriers_bytes(depths, machine))
    alignment = min(machine.barrier_bytes, _alignment(Scope.SHARED, machine))
    return SlotForm(size, size, alignment)


def address_form() -> SlotForm:
    """The word to which the base of allocated tensor memory is written."""
    return SlotForm(ADDRESS_BYTES, ADDRESS_BYTES, ADDRESS_BYTES)


def tensor_columns(buffer: Buffer, memory: TensorMemory) -> Expr:
    """The columns of tensor memory that one version of a buffer takes."""
    rows = product(buffer.shape[:-1])
    return ceildiv(buffer.bits, maximum(rows, 1) * memory.cell_bits)


def aligned(value: int, alignment: int) -> int:
    """The smallest multiple of an alignment that is at least `value`: `round_up` of numbers."""
    return -(-value // alignment) * alignment


def _alignment(scope: Scope, machine: Machine) -> int:
    memory = machine.memory(scope)
    return memory.alignment_bytes if memory else 1


def barriers_bytes(depths: Iterable[IntLike], machine: Machine) -> Expr:
    """The size of the full and empty barriers of pipelines with those depths."""
    result: Expr = const(0)
    for depth in depths:
        result = result + const(depth) * (2 * machine.barrier_bytes)
    return result


@frozen
class Placed:
    """A ring at a byte offset; `pitch_bytes` apart for each version."""

    buffer: str
    offset_bytes: int
    pitch_bytes: int
    versions: int


@frozen
class SharedLayout:
    """Rings in order, then the barriers; `total_bytes` is the block's shared memory."""

    rings: tuple[Placed, ...]
    barriers_offset_bytes: int
    total_bytes: int

    def ring(self, buffer: str) -> Placed:
        """Where the ring of a buffer lies; KeyError where it has none."""
        for ring in self.rings:
            if ring.buffer == buffer:
                return ring
        raise KeyError(buffer)


def shared_layout(
    rings: Iterable[tuple[Buffer, int]],
    depths: Iterable[int],
    machine: Machine,
    turned: frozenset[str] = frozenset(),
) -> SharedLayout:
    """Offsets of (buffer, versions) rings of one block and of the pipelines' barriers."""
    offset = 0
    placed = []
    for buffer, versions in rings:
        if buffer.scope != Scope.SHARED:
            continue
        pitch = evaluate(slot_bytes(buffer, machine, turned))
        placed.append(Placed(buffer.name, offset, pitch, versions))
        offset += pitch * versions
    total = offset + evaluate(barriers_bytes(depths, machine))
    return SharedLayout(tuple(placed), offset, total)
