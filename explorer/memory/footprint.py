"""Footprint arithmetic: how many bytes buffers and barriers take, and where rings lie.

The same formulas serve the capacity rule (symbolic) and the emitters (offsets), so that what was
proven is what is allocated.

Invariant: every version of a ring starts at a multiple of its scope's alignment; barriers follow
the rings.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from explorer.expr import Expr, IntLike, ceildiv, const, evaluate, product, round_up
from explorer.ir.dtypes import DType
from explorer.ir.nodes import Buffer, Gemm, Op
from explorer.machine import Machine, Scope


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
