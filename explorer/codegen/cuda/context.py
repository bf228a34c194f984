"""What the emitters of ops know: the block's memory, and the role that they print for.

Invariant: every address in the source is `base`, the block's shared memory, plus the offsets of
the program's placement or of `memory.shared_layout`; neither takes more than the capacity rule
counted.
"""

from __future__ import annotations

from attrs import Factory, define, field

from explorer.codegen.cuda.bounds import known
from explorer.codegen.cuda.counters import Counter
from explorer.codegen.cuda.fragments import Fragment
from explorer.codegen.cuda.plan import Site, TensorMap
from explorer.codegen.cuda.scalars import Scalars, fixed
from explorer.codegen.text import Writer
from explorer.errors import ScheduleError
from explorer.expr import Const, Expr, compare, product
from explorer.ir.nodes import Buffer, Copy, Gemm
from explorer.ir.pools import FixedPlace
from explorer.machine import Machine, Scope
from explorer.memory.bulk import bulk_refusal
from explorer.memory.footprint import SharedLayout
from explorer.memory.tiles import BoxedTile, tile_layout
from explorer.program.nodes import Cycle, Exec, Program, RoleProgram, Use
from explorer.program.shared import layout_of
from explorer.program.steps import executed
from explorer.schedule.extensions import CopyRoute


@define
class Block:
    """The whole kernel: memory, barriers, tensor maps, and the functions it needs."""

    program: Program
    machine: Machine
    bounded: bool
    shared: SharedLayout
    tiles: dict[str, BoxedTile]
    engine_reads: frozenset[str]
    maps: list[TensorMap] = Factory(list)
    sites: list[Site] = Factory(list)
    functions: dict[str, str] = Factory(dict)
    named_barriers: dict[str, int] = Factory(dict)

    def barrier_offset(self, pipeline: str, full: bool) -> int:
        """Where the barriers of one side of a pipeline start."""
        offset = self.shared.barriers_offset_bytes
        for barriers in self.program.barriers:
            size = barriers.depth * self.machine.barrier_bytes
            if barriers.pipeline == pipeline:
                return offset if full else offset + size
            offset += 2 * size
        raise KeyError(pipeline)

    def held_by(self, pipeline: str) -> frozenset[str]:
        """The buffers that lie in the slots of a pipeline, and those that share their bytes."""
        rings = self.program.rings
        names = {ring.buffer.name for ring in rings if pipeline in dict(ring.levels)}
        return frozenset(names.union(*map(self.program.sharers, names)))

    def map_name(self, tensor_map: TensorMap) -> str:
        """The kernel parameter of a tensor map; equal maps are passed once."""
        if tensor_map not in self.maps:
            self.maps.append(tensor_map)
        return f"&map_{self.maps.index(tensor_map)}"

    def site(self, role: str, pipeline: str, full: bool) -> int:
        """The number of a wait, for hang reports."""
        site = Site(role, pipeline, full)
        if site not in self.sites:
            self.sites.append(site)
        return self.sites.index(site)

    def function(self, name: str, text: str) -> str:
        """Ask for a generated function."""
        self.functions[name] = text
        return name

    def named_barrier(self, role: str) -> int:
        """The number of a role's own barrier; 0 is the block's."""
        return self.named_barriers.setdefault(role, len(self.named_barriers) + 1)


def block_of(program: Program, machine: Machine, bounded: bool) -> Block:
    """The block of a program, nothing printed yet."""
    for ring in program.rings:
        if ring.buffer.scope == Scope.TMEM:
            raise ScheduleError(
                f"tensor-capacity: {ring.buffer.name} is in tensor memory, which code for "
                f"{machine.arch} does not use; accumulate in a fragment"
            )
    shared = layout_of(program, machine)
    steps = [step for role in program.roles for step in executed(role.body)]
    tiles = {
        ring.buffer.name: _tile(ring.buffer, program.fixed_place(ring.buffer.name))
        for ring in program.rings
    }
    reads = frozenset(name for step in steps for name in _engine_reads(step))
    reads |= _shared_with_engines(program, reads)
    return Block(program, machine, bounded, shared, tiles, reads)


def _shared_with_engines(program: Program, reads: frozenset[str]) -> frozenset[str]:
    """The buffers in whose bytes an engine reads or writes another one."""
    steps = [step for role in program.roles for step in executed(role.body)]
    filled = {
        step.op.dst.buffer.name for step in steps if isinstance(step.op, Copy) and is_bulk(step)
    }
    return frozenset(other for name in {*reads, *filled} for other in program.sharers(name))


def _tile(buffer: Buffer, place: FixedPlace | None) -> BoxedTile:
    rows = fixed(product(buffer.shape[:-1]), f"the shape of '{buffer.name}'")
    columns = fixed(buffer.shape[-1], f"the shape of '{buffer.name}'") if buffer.shape else 1
    return tile_layout(rows, columns, buffer.dtype, place)


def _engine_reads(step: Exec) -> tuple[str, ...]:
    """The shared buffers that the matrix unit or the copy engine reads in an op."""
    match step.op:
        case Gemm(_, a, b):
            return tuple(s.buffer.name for s in (a, b) if s.buffer.scope == Scope.SHARED)
        case Copy() if is_bulk_store(step.op):
            return (step.op.src.buffer.name,)
    return ()


def is_bulk_store(op: Copy) -> bool:
    """Whether a copy from shared memory to a tensor travels by the copy engine."""
    inward = op.src.buffer.scope == Scope.SHARED and op.dst.buffer.scope == Scope.GLOBAL
    return inward and not bulk_refusal(op)


@define
class Role:
    """One role on its way into source."""

    block: Block
    program: RoleProgram
    out: Writer
    scalars: Scalars
    counters: dict[str, Counter]
    fragments: dict[str, Fragment]
    sync_stores: bool = False
    unfenced: bool = field(default=False, init=False)

    @property
    def warps(self) -> int:
        """Warps of the role."""
        return self.program.role.warps

    @property
    def threads(self) -> int:
        """Threads of the role."""
        return self.warps * self.block.machine.threads_per_warp

    @property
    def group(self) -> str:
        """The number of a thread's warp group within the role."""
        size = self.block.machine.warps_per_group
        return "0" if self.warps <= size else f"(int)(warp / {size}u)"

    @property
    def leader(self) -> str:
        """The condition that one thread of the role, and always a converged one, is left."""
        return "elect()" if self.warps == 1 else "warp == 0u && elect()"

    def tile(self, buffer: Buffer) -> BoxedTile:
        """How a shared buffer lies."""
        return self.block.tiles[buffer.name]

    def slot_offset(self, buffer: Buffer, uses: tuple[Use, ...]) -> str:
        """The offset of the version of a shared buffer that an op is bound to."""
        ring = self.block.program.ring(buffer.name)
        placed = self.block.shared.ring(buffer.name)
        text = f"{placed.offset_bytes}u"
        scale = placed.pitch_bytes * placed.versions
        bound = {use.pipeline: use for use in uses if use.buffer == buffer.name}
        for pipeline, depth in ring.levels:
            scale //= depth
            if depth > 1:
                text += f" + {self.slot_of(bound.get(pipeline), pipeline)} * {scale}u"
        return text

    def slot_of(self, use: Use | None, pipeline: str) -> str:
        """The slot of a pipeline that a use is bound to."""
        counter = self.counters.get(pipeline)
        if use is None or counter is None:
            raise ScheduleError(
                f"R-D5: role '{self.program.role.name}' uses '{pipeline}' without standing on it"
            )
        if use.cycle == Cycle.OPEN:
            return counter.open_slot
        return counter.next_slot if use.cycle == Cycle.NEXT else counter.last_slot

    def barrier(self, pipeline: str, full: bool, slot: str) -> str:
        """The address of a barrier."""
        offset = self.block.barrier_offset(pipeline, full)
        size = self.block.machine.barrier_bytes
        return f"base + {offset}u" + ("" if slot == "0u" else f" + {size}u * {slot}")

    def inside(self, expr: Expr, limit: Expr | int, text: str = "") -> str:
        """The condition `expr < limit`; empty where it always holds."""
        cond = compare("<", expr, limit)
        if known(cond, self.scalars.ranges):
            return ""
        bound = self.scalars.expr(limit if isinstance(limit, Expr) else Const(limit))
        return f"{text or self.scalars.expr(expr)} < {bound}"

    def counted_slot(self, step: Exec) -> tuple[str, str] | None:
        """(pipeline, slot) whose full barrier counts the bytes of a bulk copy."""
        assert isinstance(step.op, Copy)
        for use in reversed(step.uses):
            counter = self.counters.get(use.pipeline)
            producing = counter is not None and not counter.full
            if use.buffer == step.op.dst.buffer.name and use.cycle == Cycle.OPEN and producing:
                return use.pipeline, self.slot_of(use, use.pipeline)
        return None


def is_bulk(step: object) -> bool:
    """Whether a step is a copy into shared memory by the copy engine."""
    return isinstance(step, Exec) and step.route == CopyRoute.BULK
