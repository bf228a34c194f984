"""Fragments stored with rows and columns exchanged, which is what a swapped gemm leaves.

The element-wise body that says so (`ir.swapped`) is printed as any other, but for one: 16-bit
elements reach a whole shared tile by stmatrix in its transposed form, in which a lane gives the
address of a column of an 8 x 8 block.

Invariant: each element goes where the body puts it. Source: PTX ISA, stmatrix, .trans.
"""

from __future__ import annotations

from explorer.codegen.cuda.context import Role
from explorer.codegen.cuda.copies import tile_template
from explorer.codegen.cuda.stores import group_row, matrix_pairs
from explorer.expr import TRUE, Var
from explorer.ir.nodes import Element, Map
from explorer.machine import Scope
from explorer.program.nodes import Exec


def is_turned_stage(role: Role, op: Map) -> bool:
    """Whether a body stores a fragment, transposed, to all of a shared tile of 16-bit elements."""
    (store, *more), (guard, *_) = op.stores, op.guards
    if more or guard != TRUE or store.atomic or not isinstance(store.value, Element):
        return False
    source, target = store.value.buffer, store.buffer
    fragment = role.fragments.get(source.name)
    if fragment is None or not fragment.matrix or target.scope != Scope.SHARED:
        return False
    axes = tuple(Var(name) for name, _ in op.axes)
    extents = tuple(size for _, size in op.axes)
    exchanged = store.value.indices == axes == store.indices[::-1]
    whole = source.shape == extents == target.shape[::-1]
    narrow = target.dtype.bits == 16 and fragment.columns % 16 == 0
    return exchanged and whole and narrow and bool(role.tile(target).swizzle.atom_bytes)


def turned_stage(role: Role, step: Exec) -> None:
    """All of a fragment, two blocks of 8 columns and two of 8 rows an instruction."""
    op = step.op
    assert isinstance(op, Map)
    (store,) = op.stores
    assert isinstance(store.value, Element)
    fragment = role.fragments[store.value.buffer.name]
    start = role.slot_offset(store.buffer, step.uses)
    template = tile_template(role.tile(store.buffer))
    for block in range(fragment.blocks):
        with role.out.block():
            role.out.line("const u32 row = lane / 16u * 8u + lane % 8u;")
            role.out.line(
                f"const u32 byte = ({group_row(role, fragment, block)} + warp % 4u * 16u + "
                "lane / 8u % 2u * 8u) * 2u;"
            )
            for j in range(0, fragment.columns // 8, 2):
                at = f"base + {start} + tile_at<{template}>({8 * j}u + row, byte)"
                pairs = matrix_pairs(fragment, store.buffer.dtype, block, j)
                role.out.line(f"store_matrix_turned({at}, {pairs});")


__all__ = ["is_turned_stage", "turned_stage"]
