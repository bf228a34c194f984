"""Which thread holds which element of a fragment, and in which register.

A matrix fragment of a role is divided among its warp groups by rows, and within a group into
blocks of 64 rows. Each block has the accumulator layout of wgmma: warp w of the group has rows
16 w to 16 w + 15; lane l holds, for each 8 columns j, rows l / 4 + 8 h and columns
8 j + 2 (l % 4) + e in register 4 j + 2 h + e. A row vector lies beside it (registers 2 block + h,
the same in the four lanes of a row), a column vector likewise (registers 2 j + e).

Invariant: all fragments of one role follow this rule, so that element-wise bodies over several
fragments need no exchange. Source: PTX ISA, wgmma, register fragments.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from explorer.codegen.cuda.elements import stored_type
from explorer.codegen.cuda.scalars import c_name, fixed
from explorer.errors import ScheduleError
from explorer.ir.nodes import Buffer
from explorer.machine import Machine, Scope
from explorer.program.nodes import RoleProgram

BLOCK_ROWS = 64


class Shape(StrEnum):
    """What a fragment is to its role's rows."""

    MATRIX = "matrix"
    ROWS = "rows"
    COLUMNS = "columns"


@frozen
class Fragment:
    """A private buffer of a role as registers of each thread.

    `blocks` of 64 rows a warp group, `columns` of the matrix; a vector has the other extent 1.
    """

    buffer: Buffer
    shape: Shape
    groups: int
    blocks: int
    columns: int

    @property
    def group_rows(self) -> int:
        """Rows of one warp group."""
        return self.blocks * BLOCK_ROWS

    @property
    def registers(self) -> int:
        """Elements in one array."""
        return {Shape.MATRIX: self.columns // 2, Shape.ROWS: 2 * self.blocks}.get(
            self.shape, self.columns // 4
        )

    def array(self, block: int) -> str:
        """The array that holds a block of rows; a vector has one."""
        name = c_name("f", self.buffer.name)
        return f"{name}_{block}" if self.shape == Shape.MATRIX else name

    @property
    def arrays(self) -> tuple[str, ...]:
        """All arrays."""
        return tuple(self.array(b) for b in range(self.blocks if self.matrix else 1))

    @property
    def matrix(self) -> bool:
        """Whether it has rows and columns."""
        return self.shape == Shape.MATRIX

    def declarations(self) -> list[str]:
        """The arrays' declarations."""
        kind = stored_type(self.buffer.dtype)
        return [f"{kind} {name}[{self.registers}];" for name in self.arrays]


def fragments_of(role: RoleProgram, machine: Machine) -> dict[str, Fragment]:
    """The fragments of a role by name; ScheduleError for one that no group of warps can hold."""
    buffers = [buffer for buffer in role.private if buffer.scope == Scope.FRAGMENT]
    for buffer in role.private:
        if buffer.scope != Scope.FRAGMENT:
            raise ScheduleError(
                f"fragment-layout: '{buffer.name}' is {buffer.scope}; the cuda backend keeps "
                "private data in fragments"
            )
    matrices = [buffer for buffer in buffers if len(buffer.shape) == 2]
    if buffers and not matrices:
        names = ", ".join(buffer.name for buffer in buffers)
        raise ScheduleError(f"fragment-layout: {names}: no matrix fragment gives them a layout")
    groups = role.role.warps // machine.warps_per_group
    result = {buffer.name: _matrix(buffer, role, groups, machine) for buffer in matrices}
    rows = {fixed(buffer.shape[0], buffer.name): result[buffer.name] for buffer in matrices}
    for buffer in buffers:
        if buffer.name in result:
            continue
        extent = fixed(buffer.shape[0], buffer.name) if len(buffer.shape) == 1 else 0
        beside = rows.get(extent)
        if beside is not None:
            result[buffer.name] = Fragment(buffer, Shape.ROWS, groups, beside.blocks, 1)
        elif extent and extent % 8 == 0:
            result[buffer.name] = Fragment(buffer, Shape.COLUMNS, groups, 1, extent)
        else:
            raise ScheduleError(
                f"fragment-layout: '{buffer.name}' of shape {_text(buffer)} is neither a matrix "
                "nor a vector along one"
            )
    return result


def _matrix(buffer: Buffer, role: RoleProgram, groups: int, machine: Machine) -> Fragment:
    size = machine.warps_per_group
    if not groups or role.role.warps % size or role.role.warps_lo % size:
        raise ScheduleError(
            f"fragment-layout: role '{role.role.name}' holds '{buffer.name}' on warps "
            f"[{role.role.warps_lo}, {role.role.warps_hi}), not whole warp groups of {size}"
        )
    rows, columns = (fixed(extent, f"the shape of '{buffer.name}'") for extent in buffer.shape)
    if rows % (BLOCK_ROWS * groups) or columns % 8:
        raise ScheduleError(
            f"fragment-layout: '{buffer.name}' of {rows} x {columns} in {groups} warp groups is "
            f"not whole blocks of {BLOCK_ROWS} x 8; choose a taller tile or fewer groups"
        )
    return Fragment(buffer, Shape.MATRIX, groups, rows // groups // BLOCK_ROWS, columns)


def _text(buffer: Buffer) -> str:
    return " x ".join(map(str, buffer.shape))
