"""Rules of copy routes and of the layouts that copy engine and matrix unit demand."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.roles import gemms_of
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.expr import all_of, divides, equal
from explorer.ir.access import is_bulk_load
from explorer.ir.nodes import Copy, ops
from explorer.machine import Machine, Scope
from explorer.memory.bulk import bulk_refusal, pitch_bytes
from explorer.memory.swizzle import SwizzleMode
from explorer.schedule.extensions import CopyRoute
from explorer.schedule.plan import Plan

ASYNC_PIECE_BYTES = 4
# float32 operands are read as tf32: 19 of their bits.
MATRIX_TYPES = ("bfloat16", "float16", "float32", "float8_e4m3")
# Columns of an accumulator that a thread's four registers lie in (PTX ISA, wgmma).
FRAGMENT_COLUMNS = 8


def copy_route(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A stated route can carry its copy, and some pipeline waits for it."""
    stated = {route.op: route.route for route in plan.routes}
    bound = {name for pipeline in plan.pipelines for name in pipeline.buffers}
    for op in ops(plan.kernel.body):
        route = stated.get(op.id, CopyRoute.ELEMENT)
        if route == CopyRoute.ELEMENT or not isinstance(op, Copy) or not is_bulk_load(op):
            continue
        if not machine.async_copy:
            yield broken(f"{op.id} travels by {route}, which {machine.name} does not have")
        elif op.dst.buffer.name not in bound:
            yield broken(f"{op.id} travels by {route}, and no pipeline waits for it")
        elif route == CopyRoute.BULK and bulk_refusal(op):
            yield broken(f"bulk copy: {bulk_refusal(op)}")
        elif route == CopyRoute.ASYNC:
            pitch = pitch_bytes(op.src.buffer)
            yield require(
                divides(ASYNC_PIECE_BYTES, pitch),
                f"{op.id}: rows of {op.src.buffer.name} are {{pitch}} B apart, cp.async moves "
                f"multiples of {ASYNC_PIECE_BYTES} B",
                pitch=pitch,
            )


def operand_types(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The matrix unit has an instruction for the types of every gemm."""
    if not machine.async_matrix:
        return
    for role in plan.roles:
        for gemm in gemms_of(plan, role.name):
            a, b, c = (region.buffer.dtype for region in (gemm.a, gemm.b, gemm.c))
            if a != b or a.name not in MATRIX_TYPES or c.name != "float32":
                yield broken(
                    f"{gemm.id} multiplies {a} by {b} into {c}: {machine.name} has "
                    f"{' and '.join(MATRIX_TYPES)} into float32"
                )


def operand_order(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Operands lie along the reduction, unless the matrix unit turns elements of their width."""
    if not machine.async_matrix:
        return
    for role in plan.roles:
        for gemm in gemms_of(plan, role.name):
            for region, across in ((gemm.a, gemm.transpose_a), (gemm.b, not gemm.transpose_b)):
                element = region.buffer.dtype
                if across and element.bits not in machine.turned_bits:
                    yield broken(
                        f"{gemm.id}: the rows of {region.buffer.name} lie across the reduction, "
                        f"in which order {machine.name} reads no {element}"
                    )


def operand_swizzle(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Rows of the matrix unit's shared operands are whole swizzle atoms."""
    if not machine.async_matrix:
        return
    atom = SwizzleMode.SWIZZLE_32B_ATOM.atom_bytes
    for role in plan.roles:
        for gemm in gemms_of(plan, role.name):
            for region in (gemm.a, gemm.b):
                if region.buffer.scope != Scope.SHARED:
                    continue
                columns, element = region.buffer.shape[-1], region.buffer.dtype
                yield require(
                    divides(8 * atom, columns * element.bits),
                    f"{gemm.id}: rows of {region.buffer.name} are {{columns}} {element}, no "
                    f"multiple of an atom of {atom} B",
                    columns=columns,
                )


def staged_pieces(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The pieces of a staged store are equal, and whole where registers hold columns by eights."""
    group = FRAGMENT_COLUMNS if machine.async_matrix else 1
    first = {op.id: op.src for op in ops(plan.kernel.body) if isinstance(op, Copy)}
    for store in plan.staged:
        piece = first.get(f"{store.op}_stage")
        if store.pieces > 1 and piece is not None:
            columns, width = piece.buffer.shape[-1], piece.extent[-1]
            yield require(
                all_of(divides(group, width), equal(store.pieces * width, columns)),
                f"{store.op}: {{columns}} columns of {piece.buffer.name} are not {store.pieces} "
                f"equal pieces of a multiple of {group}",
                columns=columns,
            )


RULES = (
    Rule(
        "copy-route",
        "safety",
        "a stated copy route can carry its copy, and a pipeline waits for it",
        "R-B6; CUDA driver API: tensor map pitches are multiples of 16 B; PTX ISA: cp.async moves "
        "4, 8 or 16 B",
        "leave the route out, or state the element route",
        copy_route,
    ),
    Rule(
        "operand-types",
        "form",
        "the matrix unit has an instruction for the types of every gemm",
        "PTX ISA, wgmma, data types",
        "choose another element type",
        operand_types,
    ),
    Rule(
        "operand-order",
        "form",
        "operands lie along the reduction, unless their width allows both orders",
        "PTX ISA, wgmma: only 16-bit types have transposed operands",
        "store A as M x K and B as N x K (transpose_B), or use 16-bit elements",
        operand_order,
    ),
    Rule(
        "operand-swizzle",
        "form",
        "rows of shared matrix operands are whole swizzle atoms",
        "PTX ISA, wgmma, canonical layouts",
        "choose tile extents that are multiples of 16",
        operand_swizzle,
    ),
    Rule(
        "staged-pieces",
        "form",
        "the pieces of a staged store are equal and whole groups of columns",
        "StagedStore; PTX ISA, wgmma, register fragments",
        "use fewer pieces, or a tile whose columns they divide",
        staged_pieces,
    ),
)
