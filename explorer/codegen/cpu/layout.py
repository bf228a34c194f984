"""Where everything of a program lies: a block's arena, the fragments of each warp, strides.

Invariant: the rings and barriers lie where the program's placement or `memory.shared_layout` puts
them, which takes no more than the capacity rule counted; fragments follow, one set a warp, every
row aligned to 64 bytes.
"""

from __future__ import annotations

from attrs import frozen

from explorer.codegen.cpu.elements import Place, c_type, on_chip_name, short_name
from explorer.codegen.cpu.scalars import c_name, fixed
from explorer.expr import Const, Expr, round_up
from explorer.ir.nodes import Buffer, Op
from explorer.ir.transforms import row_fragments, take_buffer
from explorer.machine import Machine
from explorer.memory.footprint import (
    SharedLayout,
    aligned,
    row_pitch_bytes,
    stored_bits,
    turned_operands,
)
from explorer.program.nodes import Exec, For, Program, Repeat, RoleProgram, Step, When
from explorer.program.shared import layout_of as shared_of

ALIGNMENT = 64


@frozen
class Fragment:
    """A private buffer of one warp, and its offset in the warp's memory."""

    buffer: Buffer
    offset_bytes: int


@frozen
class RoleLayout:
    """The private memory of one role: `warp_bytes` for each warp, from `offset_bytes` on.

    `held` are the private buffers of which every warp has its share of the rows.
    """

    offset_bytes: int
    warp_bytes: int
    fragments: tuple[Fragment, ...]
    held: frozenset[str]

    def fragment(self, name: str) -> Fragment:
        """A private buffer of the role; KeyError where it has none of that name."""
        for fragment in self.fragments:
            if fragment.buffer.name == name:
                return fragment
        raise KeyError(name)


@frozen
class Layout:
    """The memory of one block."""

    shared: SharedLayout
    turned: frozenset[str]
    roles: tuple[RoleLayout, ...]
    block_bytes: int
    machine: Machine

    def tensor(self, buffer: Buffer) -> Place:
        """A tensor, row-major."""
        shape = _sizes(buffer)
        strides = _dense(shape, buffer.pitch or (shape[-1] if shape else 1))
        name = c_name("t", buffer.name)
        return Place(buffer, name, short_name(buffer.dtype), strides, shape, True)

    def slot(self, buffer: Buffer) -> Place:
        """A slot of a shared buffer, in the orientation in which it is stored."""
        shape, short = _sizes(buffer), on_chip_name(buffer.dtype)
        element = stored_bits(buffer.dtype, self.machine) // 8
        turned = buffer.name in self.turned
        columns = shape[0] if turned else (shape[-1] if shape else 1)
        pitch = fixed(row_pitch_bytes(columns, buffer.dtype, self.machine), buffer.name) // element
        strides = (1, pitch) if turned else _dense(shape, pitch)
        return Place(buffer, c_name("s", buffer.name), short, strides, shape, False)

    def private(self, buffer: Buffer) -> Place:
        """A private buffer of one warp."""
        shape = _sizes(buffer)
        pitch = _row_bytes(buffer, self.machine) * 8 // stored_bits(buffer.dtype, self.machine)
        name = c_name("f", buffer.name)
        return Place(buffer, name, on_chip_name(buffer.dtype), _dense(shape, pitch), shape, False)


def layout_of(program: Program, machine: Machine) -> Layout:
    """The memory of a block of a program."""
    placed = [op for role in program.roles for op in ops_of(role.body)]
    turned = turned_operands(placed, machine)
    shared = shared_of(program, machine)
    offset = aligned(shared.total_bytes, ALIGNMENT)
    roles = []
    for role in program.roles:
        one = _role_layout(role, offset, machine)
        roles.append(one)
        offset += one.warp_bytes * role.role.warps
    return Layout(shared, turned, tuple(roles), max(offset, ALIGNMENT), machine)


def _role_layout(role: RoleProgram, offset: int, machine: Machine) -> RoleLayout:
    warps = role.role.warps
    held = row_fragments(tuple(ops_of(role.body)))
    fragments, used = [], 0
    for buffer in role.private:
        own = take_buffer(buffer, warps) if buffer.name in held and warps > 1 else buffer
        fragments.append(Fragment(own, used))
        sizes = _sizes(own)
        rows = 1
        for size in sizes[:-1]:
            rows *= size
        used += rows * _row_bytes(own, machine)
    return RoleLayout(offset, used, tuple(fragments), held)


def ops_of(body: tuple[Step, ...]) -> list[Op]:
    """Every op of a role's body."""
    found: list[Op] = []
    for step in body:
        if isinstance(step, Exec):
            found.append(step.op)
        elif isinstance(step, For | When | Repeat):
            found += ops_of(step.body)
    return found


def declaration(place: Place, base: str) -> str:
    """The C declaration of a place's pointer, at a base address."""
    kind = c_type(place.short)
    return f"{kind} *const {place.pointer} = ({kind} *)({base});"


def _row_bytes(buffer: Buffer, machine: Machine) -> int:
    columns: Expr = buffer.shape[-1] if buffer.shape else Const(1)
    width = stored_bits(buffer.dtype, machine) // 8
    return fixed(round_up(columns * width, ALIGNMENT), f"a row of '{buffer.name}'")


def _sizes(buffer: Buffer) -> tuple[int, ...]:
    return tuple(fixed(size, f"the shape of '{buffer.name}'") for size in buffer.shape)


def _dense(shape: tuple[int, ...], pitch: int) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for axis in reversed(range(len(shape))):
        strides.append(step)
        step = pitch if axis == len(shape) - 1 else step * shape[axis]
    return tuple(reversed(strides))
