"""Rules of pools: what an author's fixed offsets must hold.

Versions of a buffer in a pool follow each other from its offset on, so that a ring takes the bytes
behind it too.

Invariant: buffers that share bytes, or columns, never hold values at the same time in the kernel's
order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from attrs import frozen

from explorer.constraints.capacity import versions
from explorer.constraints.rule import Requirement, Rule, broken, literal, require
from explorer.expr import Expr, any_of, const, divides, equal, product, round_up
from explorer.ir.lives import Life, lives
from explorer.ir.nodes import Copy, Gemm, ops
from explorer.ir.pools import FixedPlace, Pool
from explorer.machine import Machine, Scope
from explorer.memory.bulk import BOX_EXTENT_MAX, bulk_refusal
from explorer.memory.layouts import Axis, mma_layout
from explorer.memory.packing import legal_allocation
from explorer.memory.places import layout_of
from explorer.memory.swizzle import BULK_BYTES, ORDINARY_BYTES
from explorer.schedule.plan import Plan

# Versions of shared buffers start at multiples of this: bulk copies write 128-byte lines.
PITCH_BYTES = 128


@frozen
class _Held:
    """Bytes or columns from `start` to `end`, and when they hold a value; None: always."""

    name: str
    start: Expr
    end: Expr
    versions: Expr
    life: Life | None

    def meets(self, other: _Held) -> bool:
        """Whether both hold values at once."""
        return self.life is None or other.life is None or self.life.meets(other.life)


def pool_overlap(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Two places of one memory share nothing, or their values are never held at once."""
    found = lives(plan.kernel) if plan.kernel.pools else {}
    for held, unit in _regions(plan, found):
        for one, other in combinations(held, 2):
            if one.meets(other):
                yield require(
                    any_of(one.end <= other.start, other.end <= one.start),
                    f"{one.name} x {{v}} takes {unit} {{s}} to {{e}}, {other.name} x {{w}} takes "
                    "{t} to {f}, and both hold values at once",
                    v=one.versions,
                    s=one.start,
                    e=one.end,
                    w=other.versions,
                    t=other.start,
                    f=other.end,
                )


def _regions(plan: Plan, found: dict[str, Life]) -> Iterator[tuple[list[_Held], str]]:
    """What lies in each memory that pools divide: one that they own, or a buffer's bytes."""
    for pool in plan.kernel.pools:
        # What no op touches holds nothing, but for the word of tensor memory's base.
        used = (place for place in pool.places if place.permanent or place.buffer in found)
        held = [_held(plan, pool, place, found) for place in used]
        if pool.base and pool.base in found:
            held.append(_Held(pool.base, const(0), pool.size, const(1), found[pool.base]))
        yield held, _unit(pool)


def _unit(pool: Pool) -> str:
    return "columns" if pool.scope == Scope.TMEM else "bytes"


def _held(plan: Plan, pool: Pool, place: FixedPlace, found: dict[str, Life]) -> _Held:
    count = versions(plan, place.buffer)
    step = 1 if pool.scope == Scope.TMEM else max(place.alignment, PITCH_BYTES)
    pitch = round_up(place.size, step)
    end = place.offset + (count - 1) * pitch + place.size
    life = None if place.permanent else found.get(place.buffer)
    return _Held(place.buffer, place.offset, end, count, life)


def pool_conditions(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """All versions lie in the pool, and what it asked of sizes that were open then holds."""
    for pool in plan.kernel.pools:
        for held in (_held(plan, pool, place, {}) for place in pool.places):
            yield require(
                held.end <= pool.size,
                f"{held.name} x {{v}} ends at {{e}}, pool {pool.name} has {{n}} {_unit(pool)}",
                v=held.versions,
                e=held.end,
                n=pool.size,
            )
        for condition in pool.conditions:
            text = literal(f"{condition.message} ({condition.rule})")
            yield require(condition.holds, text)


def pool_layout(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The emitters lay a buffer out as its pool does, and its use can take that.

    They know boxes of one swizzle's atoms side by side, and plain rows. Where slots are padded
    they take neither offsets nor layouts from pools.
    """
    if machine.slots is not None:
        return
    for pool in plan.kernel.pools:
        for place in pool.places if pool.scope == Scope.SHARED else ():
            yield from _laid_out(plan, place)


def _laid_out(plan: Plan, place: FixedPlace) -> Iterator[Requirement]:
    buffer = plan.kernel.buffer(place.buffer)
    layout = layout_of(place)
    if layout != mma_layout(buffer.shape, buffer.dtype, layout.swizzle):
        yield broken(f"{buffer.name} has strides or a layout of its own, which nothing emits")
        return
    columns, boxed = buffer.shape[-1], bool(place.swizzle_bytes)
    if boxed:
        outer = product(buffer.shape[:-2])
        atom = place.swizzle_bytes * 8 // buffer.dtype.bits
        yield require(
            any_of(equal(outer, 1), columns <= atom),
            f"{buffer.name} is {{outer}} tiles of {{boxes}} boxes: allocate tile by tile",
            outer=outer,
            boxes=columns // atom,
        )
    for op in ops(plan.kernel.body):
        if (
            isinstance(op, Gemm)
            and not boxed
            and place.buffer in (op.a.buffer.name, op.b.buffer.name)
        ):
            yield broken(f"{buffer.name} is an operand of {op.id} without a swizzle")
        if isinstance(op, Copy) and place.buffer in (op.src.buffer.name, op.dst.buffer.name):
            bulk = not bulk_refusal(op)
            need = BULK_BYTES if bulk else ORDINARY_BYTES
            yield require(
                divides(need, place.offset),
                f"{buffer.name} starts at byte {{offset}}, {op.id} needs a multiple of {need}",
                offset=place.offset,
            )
            if bulk and not boxed:
                yield require(
                    columns <= BOX_EXTENT_MAX,
                    f"{buffer.name} has plain rows of {{columns}} elements, a box of {op.id} at "
                    f"most {BOX_EXTENT_MAX}",
                    columns=columns,
                )


def pool_columns(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A pool of tensor memory asks for a number of columns that the hardware allocates."""
    memory = machine.tensor_memory
    for pool in plan.kernel.pools:
        if pool.scope == Scope.TMEM and memory is not None:
            for place in pool.places:
                yield require(
                    const(layout_of(place).span(Axis.LANE)) <= memory.lanes,
                    f"{place.buffer} takes {{lanes}} lanes of {memory.lanes}",
                    lanes=layout_of(place).span(Axis.LANE),
                )
            legal = [n for n in range(memory.columns + 1) if legal_allocation(n, memory)]
            yield require(
                any_of(*(equal(pool.size, n) for n in legal)),
                f"pool {pool.name} allocates {{columns}} columns, which is not one of "
                f"{', '.join(map(str, legal))}",
                columns=pool.size,
            )


def buffer_views(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Roles hand whole buffers over, by name."""
    for buffer in plan.kernel.buffers:
        if buffer.storage:
            yield broken(f"{buffer.name} is a view of {buffer.storage}")


RULES = (
    Rule(
        "buffer-views",
        "form",
        "every buffer of a kernel with roles has bytes of its own",
        "what roles hand over and wait for is named by buffer",
        "use one shape and type, or a pool that lets buffers share bytes",
        buffer_views,
    ),
    Rule(
        "pool-conditions",
        "safety",
        "the places that pools gave out are aligned for their elements and swizzles, and inside",
        "alloc_pool; PTX ISA, matrix descriptors: a swizzled tile starts a repetition",
        "other tile sizes, or another align or layout in the kernel",
        pool_conditions,
    ),
    Rule(
        "pool-overlap",
        "safety",
        "buffers of a pool that share bytes, all versions counted, hold no values at once",
        "alloc_pool, move_base_to; lives in the kernel's order",
        "move_base_to bytes that are free, past the versions of the buffers before",
        pool_overlap,
    ),
    Rule(
        "pool-layout",
        "form",
        "a buffer of a pool lies in boxes of its swizzle, or in plain rows, as its ops can take",
        "alloc_pool; CUDA driver API, tensor maps; PTX ISA, matrix descriptors",
        "alloc_mma for operands and for rows of bulk copies, alloc(align=128) for others",
        pool_layout,
    ),
    Rule(
        "pool-columns",
        "safety",
        "a pool of tensor memory allocates a power of two of columns, of which buffers take the "
        "lanes that there are",
        "C23; PTX ISA, tcgen05.alloc",
        "round total_cols up to a power of two",
        pool_columns,
    ),
)
