"""Matrix ops: wgmma on shared operands, through descriptors.

An operand is K-major where its rows follow the reduction (A stored M x K, B stored N x K) and
MN-major otherwise. Both lie in swizzled boxes (memory.tiles); the descriptor holds the box's
start, the distance of eight rows (SBO) and, for MN-major operands, of two boxes (LBO). One
instruction takes 32 bytes of the reduction: 8 of tf32, 16 of 16-bit types, 32 of fp8. Moving on by
one adds bytes to the start: 32 within an atom for K-major operands, 16 rows for MN-major ones,
which have 16-bit elements.

Invariant: one gemm op is one committed group, so that `Drain` counts ops. Source: PTX ISA, wgmma,
matrix descriptors and canonical layouts.
"""

from __future__ import annotations

from attrs import frozen

from explorer.codegen.cuda.bounds import known
from explorer.codegen.cuda.context import Role
from explorer.codegen.cuda.fragments import BLOCK_ROWS, Fragment
from explorer.codegen.cuda.prelude import matrix_function, matrix_name, settle_function
from explorer.codegen.cuda.scalars import c_name, fixed
from explorer.codegen.cuda.views import shared_view
from explorer.errors import ScheduleError
from explorer.ir.nodes import Gemm, Region
from explorer.machine import Scope
from explorer.memory.tiles import BoxedTile
from explorer.program.nodes import Drain, Exec
from explorer.program.steps import executed

_SWIZZLE_MODE = {128: 1, 64: 2, 32: 3}
_STEP_BYTES = 32
_KINDS = {"bfloat16": "bf16", "float16": "f16", "float32": "tf32", "float8_e4m3": "e4m3"}


@frozen
class Operand:
    """One operand of a gemm as the matrix unit reads it."""

    layout: BoxedTile
    k_major: bool

    @property
    def descriptor(self) -> int:
        """The descriptor without its start address."""
        rows_bytes = 8 * self.layout.row_bytes
        boxes_bytes = 16 if self.k_major else self.layout.box_bytes
        mode = _SWIZZLE_MODE[self.layout.swizzle.atom_bytes]
        return mode << 62 | rows_bytes >> 4 << 32 | boxes_bytes >> 4 << 16

    @property
    def step(self) -> int:
        """Elements of the reduction in one instruction."""
        return _STEP_BYTES // self.layout.element_bytes

    def k_bytes(self, step: int) -> int:
        """Bytes from the start to the `step`-th instruction's part of the reduction."""
        if not self.k_major:
            return step * self.step * self.layout.row_bytes
        per_box = self.layout.row_bytes // _STEP_BYTES
        return step // per_box * self.layout.box_bytes + step % per_box * _STEP_BYTES

    def outer_bytes(self, index: int) -> int:
        """Bytes from the start to row (of A) or column (of B) `index`."""
        if self.k_major:
            return index * self.layout.row_bytes
        return index // self.layout.box_columns * self.layout.box_bytes


def operand(role: Role, region: Region, k_major: bool, op: Gemm) -> Operand:
    """An operand; ScheduleError where the matrix unit cannot read it."""
    if region.buffer.scope != Scope.SHARED:
        raise ScheduleError(
            f"{op.id}: operand '{region.buffer.name}' is {region.buffer.scope}; the cuda backend "
            "reads operands from shared memory"
        )
    layout = role.tile(region.buffer)
    if not layout.swizzle.atom_bytes:
        raise ScheduleError(
            f"operand-swizzle: {op.id}: rows of '{region.buffer.name}' are "
            f"{layout.columns * layout.element_bytes} B, no multiple of a 32-byte atom; "
            "choose a tile extent that is a multiple of 16"
        )
    return Operand(layout, k_major)


def _operands(role: Role, op: Gemm) -> tuple[Operand, Operand]:
    return operand(role, op.a, not op.transpose_a, op), operand(role, op.b, op.transpose_b, op)


def descriptors(role: Role) -> None:
    """Descriptors of all operands of a role, versions aside, once a block."""
    seen: set[str] = set()
    for step in executed(role.program.body):
        if not isinstance(step.op, Gemm):
            continue
        for region, side in zip((step.op.a, step.op.b), _operands(role, step.op), strict=True):
            name = _descriptor(region, side)
            placed = role.block.shared.ring(region.buffer.name)
            if name not in seen:
                seen.add(name)
                role.out.line(
                    f"const u64 {name} = 0x{side.descriptor:016x}ull | "
                    f"(u64)(((base + {placed.offset_bytes}u) & 0x3ffffu) >> 4);"
                )


def _descriptor(region: Region, side: Operand) -> str:
    return c_name("d", region.buffer.name) + ("_k" if side.k_major else "_m")


def gemm(role: Role, step: Exec) -> None:
    """All instructions of one gemm, as one group; it completes in place unless asynchronous."""
    op = step.op
    assert isinstance(op, Gemm)
    kind = _KINDS.get(op.a.buffer.dtype.name)
    if kind is None or op.b.buffer.dtype != op.a.buffer.dtype:
        raise ScheduleError(
            f"{op.id}: no matrix instruction for {op.a.buffer.dtype} x {op.b.buffer.dtype}; "
            f"the cuda backend has {', '.join(_KINDS)}"
        )
    a, b = _operands(role, op)
    if not (a.k_major and b.k_major) and op.a.buffer.dtype.bits != 16:
        raise ScheduleError(
            f"operand-order: {op.id}: {op.a.buffer.dtype} operands lie along the reduction only; "
            "store A as M x K and B as N x K"
        )
    target = role.fragments[op.c.buffer.name]
    n = _instruction_columns(role, op, target)
    name = matrix_name(n, kind, not a.k_major, not b.k_major)
    role.block.function(name, matrix_function(n, kind, a.step, not a.k_major, not b.k_major))
    accumulate = _accumulate(role, op)
    with role.out.block():
        role.out.line(f"const u64 a = {_start(role, op.a, a, step, True)},")
        role.out.line(f"          b = {_start(role, op.b, b, step, False)};")
        role.out.line("mma_fence();")
        for k in range(_steps(op, a.step)):
            for column in range(0, target.columns, n):
                for block in range(target.blocks):
                    at = a.k_bytes(k) + a.outer_bytes(BLOCK_ROWS * block)
                    bt = b.k_bytes(k) + b.outer_bytes(column)
                    add = accumulate if k == 0 else "1"
                    role.out.line(
                        f"{name}<{column // 2}>({target.array(block)}, a + {at >> 4}u, "
                        f"b + {bt >> 4}u, {add});"
                    )
        role.out.line("mma_commit();")
    if not step.asynchronous:
        role.out.line("mma_wait<0>();")
        settle(role, (target,))


def _accumulate(role: Role, op: Gemm) -> str:
    clears = known(op.clear_accum, role.scalars.ranges)
    if clears is None:
        return f"!{role.scalars.cond(op.clear_accum)}"
    return "0" if clears else "1"


def _steps(op: Gemm, step: int) -> int:
    extent = op.a.extent[0] if op.transpose_a else op.a.extent[-1]
    reduction = fixed(extent, f"the reduction of {op.id}")
    if reduction % step:
        raise ScheduleError(
            f"matrix-tile: {op.id}: a reduction of {reduction} is not whole steps of {step}"
        )
    return reduction // step


def _instruction_columns(role: Role, op: Gemm, target: Fragment) -> int:
    if not target.matrix or target.buffer.dtype.name != "float32":
        raise ScheduleError(f"{op.id}: accumulates in float32 fragments only")
    chosen = {name: (m, n) for name, m, n in role.block.program.matrix}
    m, n = chosen.get(op.id, (BLOCK_ROWS, min(target.columns, 256)))
    if m != BLOCK_ROWS or n % 8 or n > 256 or target.columns % n:
        raise ScheduleError(
            f"matrix-tile: {op.id}: {target.columns} columns are not whole instructions of "
            f"{m} x {n}"
        )
    return n


def _start(role: Role, region: Region, side: Operand, step: Exec, rows: bool) -> str:
    """The descriptor of the first instruction of a warp group."""
    view = shared_view(region)
    placed = role.block.shared.ring(region.buffer.name)
    text = _descriptor(region, side)
    offset = role.slot_offset(region.buffer, step.uses).partition(" + ")[2]
    if offset:
        text += f" + (u64)(({offset}) >> 4)" if "+" in offset else _scaled(offset)
    first = view.row if side.k_major else view.column
    begin = fixed(first, f"the start of '{region.buffer.name}' in a gemm")
    skipped = fixed(view.column if side.k_major else view.row, "a part of the reduction")
    if begin or skipped:
        text += f" + {side.outer_bytes(begin) + side.k_bytes(skipped // side.step) >> 4}u"
    fragment = role.fragments[step.op.c.buffer.name] if isinstance(step.op, Gemm) else None
    if rows and fragment is not None and fragment.groups > 1:
        text += f" + (u64)((u32){role.group} * {side.outer_bytes(fragment.group_rows) >> 4}u)"
    assert placed.pitch_bytes % 16 == 0
    return text


def _scaled(offset: str) -> str:
    slot, _, scale = offset.rpartition(" * ")
    return f" + (u64)({slot} * {int(scale[:-1]) >> 4}u)"


def settle(role: Role, fragments: tuple[Fragment, ...]) -> None:
    """Keep uses of accumulators behind the wait before."""
    for fragment in fragments:
        role.block.function(f"settle_{fragment.registers}", settle_function(fragment.registers))
        for array in fragment.arrays:
            role.out.line(f"settle({array});")


def drain(role: Role, step: Drain) -> None:
    """Wait until at most so many gemms of the role are under way."""
    role.out.line(f"mma_wait<{step.pending}>();")
    if step.pending == 0:
        names = {
            each.op.c.buffer.name
            for each in executed(role.program.body)
            if isinstance(each.op, Gemm)
        }
        settle(role, tuple(role.fragments[name] for name in sorted(names)))
