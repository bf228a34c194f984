"""One role's source: its steps, with waits, signals and the registers that count them.

Threads of a warp arrive together: an arrival that the program counts by threads is made by one
lane after the warp has met, so that barriers count warps (`barrier_counts`); arrivals of cp.async
copies stay one a thread.

Invariant: the emitted barrier counts are those of the program less the lanes that do not arrive.
"""

from __future__ import annotations

from collections.abc import Callable

from explorer.codegen.cuda import copies, maps, matrix, parts, stores
from explorer.codegen.cuda.bounds import Ranges
from explorer.codegen.cuda.context import Block, Role, is_bulk, is_bulk_store
from explorer.codegen.cuda.counters import Counter, Mode, counters_of, opens, uses_open
from explorer.codegen.cuda.fold import fold, loop_range
from explorer.codegen.cuda.fragments import fragments_of
from explorer.codegen.cuda.scalars import Scalars, c_name, table_text
from explorer.codegen.text import Writer
from explorer.errors import ScheduleError
from explorer.expr import Const, evaluate, lookups
from explorer.ir.access import access
from explorer.ir.nodes import Copy, Define, Fill, Gemm, Map, Reduce
from explorer.machine import Machine, Scope
from explorer.program.counts import arrivals
from explorer.program.launch import (
    TILE,
    UNIT,
    piece_indices,
    tile_count,
    tile_indices,
    unit_count,
    unit_ordinal,
    walked_extents,
)
from explorer.program.nodes import (
    Drain,
    Exec,
    For,
    Program,
    Repeat,
    RoleProgram,
    RoleSync,
    Signal,
    Skip,
    Step,
    Ticket,
    Wait,
    When,
)
from explorer.program.steps import every_step, executed, hands_over
from explorer.program.turns import turns_of
from explorer.schedule.extensions import CopyRoute

Emitter = Callable[[Role, Exec], None]

OPS: dict[type, Emitter] = {
    Gemm: matrix.gemm,
    Fill: maps.fill,
    Map: maps.map_body,
    Reduce: maps.reduce,
    Define: maps.define,
}
COPIES: dict[tuple[Scope, Scope], Emitter] = {
    (Scope.GLOBAL, Scope.SHARED): copies.element_load,
    (Scope.FRAGMENT, Scope.GLOBAL): stores.fragment_store,
    (Scope.FRAGMENT, Scope.SHARED): stores.fragment_stage,
    (Scope.SHARED, Scope.GLOBAL): stores.store_elements,
}


def barrier_counts(program: Program, machine: Machine) -> dict[tuple[str, bool], int]:
    """The count of every barrier side as the source initialises it: lanes of a warp arrive once.

    An alternating side has one role's arrivals, a shared one those of all its roles.
    """
    lanes = machine.threads_per_warp
    result = {}
    for barriers in program.barriers:
        for full in (True, False):
            stated = barriers.full_count if full else barriers.empty_count
            result[(barriers.pipeline, full)] = stated - _silent(
                program, barriers.pipeline, full, stated, lanes
            )
    return result


def _silent(program: Program, pipeline: str, full: bool, stated: int, lanes: int) -> int:
    """Thread arrivals that the program counts and that no lane makes."""
    silent, counted = [], []
    for role in program.roles:
        for step in every_step(role.body):
            if isinstance(step, Signal) and (step.pipeline, step.full) == (pipeline, full):
                threads = role.role.warps * lanes
                quiet = role.role.warps * (lanes - 1) if step.threads else 0
                silent.append(step.blocks * quiet)
                counted.append(step.blocks * arrivals(step, threads))
                break
    # The roles of an alternating side arrive one at a time: the side's count is then one role's.
    shared = sum(counted) <= stated
    return sum(silent) if shared else max(silent, default=0)


class RoleEmitter:
    """Prints one role."""

    def __init__(self, block: Block, program: RoleProgram, out: Writer) -> None:
        whole = block.program
        walked = walked_extents(whole.grid, whole.launch)
        ranges: Ranges = {name: (0, evaluate(extent) - 1) for name, extent in walked}
        # No upper bound: whose turn a tile is must not be decided, however few there are.
        ranges = {**ranges, TILE.name: (0, None), **_piece_ranges(whole)}
        body = fold(program.body, ranges)
        self.program = RoleProgram(program.role, body, program.private, program.share)
        depths = {barriers.pipeline: barriers.depth for barriers in whole.barriers}
        self.role = Role(
            block,
            self.program,
            out,
            Scalars(ranges),
            counters_of(self.program, depths),
            fragments_of(program, block.machine),
        )
        self.out, self.block = out, block
        self.persistent = bool(whole.launch.blocks)
        self.turns = turns_of(body, whole.launch.blocks)
        self.steps = self.turns.body if self.turns else body
        self.stores = any(_bulk_store(step) for step in executed(body))
        self.role.sync_stores = self.persistent and self._left_unread(self.steps)
        self.generic = _generic_pipelines(block, self.program)

    # ------------------------------------------------------------ the role

    def emit(self) -> None:
        """The role's registers, and its steps for every tile of the block."""
        for counter in self.role.counters.values():
            self.out.line(counter.declaration())
        matrix.descriptors(self.role)
        head = self._tile_loop() if self.persistent else ""
        with self.out.block(head):
            if not self.persistent:
                self.out.line("const int v_tile = (int)blockIdx.x;")
            self._declare_indices()
            self._declare_private()
            self.body(self.steps)
            if self.turns:
                self._pass_over(self.turns.count - 1)
        if self.stores:
            # The block's shared memory is read until the last store is done.
            self.out.line("if (thread == 0u) store_wait();")

    def _declare_indices(self) -> None:
        """The piece of a tile that the unit of work is, and the tile's grid indices."""
        program = self.block.program
        for name, expr in piece_indices(program):
            self.out.line(f"const int {c_name('v', name)} = {self.role.scalars.expr(expr)};")
        if program.streamed:
            self.out.line(f"if ({c_name('v', program.streamed.extent.name)} == 0) break;")
        tiles = self.role.scalars.within(TILE.name, (0, tile_count(program) - 1))
        for name, expr in tile_indices(program.grid, program.launch):
            for table in lookups(expr):
                self.block.function(table.name, table_text(table))
            self.out.line(f"const int {c_name('v', name)} = {tiles.expr(expr)};")

    def _tile_loop(self) -> str:
        """The head of the loop over the role's tiles; what stands before it is printed."""
        first, step = "(int)blockIdx.x", "(int)gridDim.x"
        tile = c_name("v", unit_ordinal(self.block.program).name)
        count = unit_count(self.block.program)
        if self.turns:
            self._pass_over(self.turns.index)
            first += f" + {self.turns.index} * (int)gridDim.x" if self.turns.index else ""
            step = f"{self.turns.count} * {step}"
        self.out.line("#pragma unroll 1")
        return f"for (int {tile} = {first}; {tile} < {count}; {tile} += {step})"

    def _pass_over(self, tiles: int) -> None:
        assert self.turns is not None
        for skip in self.turns.skips(tiles):
            self.step(skip)

    def _declare_private(self) -> None:
        for fragment in self.role.fragments.values():
            for line in fragment.declarations():
                self.out.line(line)
        defined = [s.op.name for s in executed(self.program.body) if isinstance(s.op, Define)]
        for name in dict.fromkeys(defined):
            self.out.line(f"int {c_name('v', name)} = 0;")

    # ------------------------------------------------------------ bodies

    def body(self, steps: tuple[Step, ...]) -> None:
        """Steps in order; slots advance where their last use has been printed."""
        advances = self._advances(steps)
        index = 0
        while index < len(steps):
            taken = self._bulk_run(steps, index)
            if not taken:
                self.step(steps[index])
                taken = 1
            for done in range(index, index + taken):
                for counter in advances.get(done, ()):
                    self.out.line(counter.advance())
            index += taken
        self._fence()

    def _advances(self, steps: tuple[Step, ...]) -> dict[int, list[Counter]]:
        """Behind which step each counter moves past the cycle that a wait of this body opened."""
        result: dict[int, list[Counter]] = {}
        for index, step in enumerate(steps):
            if not isinstance(step, Wait):
                continue
            counter = self.role.counters[step.pipeline]
            if counter.mode == Mode.SAVED:
                continue
            last = index
            for later in range(index + 1, len(steps)):
                other = steps[later]
                if opens(other, step.pipeline):
                    break
                closing = isinstance(other, Signal) and other.pipeline == step.pipeline
                if uses_open(other, step.pipeline) or (closing and counter.mode == Mode.SIMPLE):
                    last = later
            result.setdefault(last, []).append(counter)
        return result

    def step(self, step: Step) -> None:
        """One step."""
        match step:
            case Exec():
                self._execute(step)
            case Wait():
                self._wait(step)
            case Signal():
                self._signal(step)
            case Skip(pipeline, _, cycles):
                count = (
                    cycles.value if isinstance(cycles, Const) else self.role.scalars.expr(cycles)
                )
                for line in self.role.counters[pipeline].skip(count):
                    self.out.line(line)
            case Drain():
                matrix.drain(self.role, step)
            case RoleSync():
                self._sync()
            case Ticket():
                self._fence()
                parts.draw(self.role, step)
            case For():
                self._loop(step)
            case When():
                self._fence()
                unread = self.role.sync_stores
                with self.out.block(f"if ({self.role.scalars.cond(step.cond)})"):
                    self.body(step.body)
                self.role.sync_stores |= unread
            case Repeat():
                self._fence()
                with self.out.block(f"while ({self.role.scalars.cond(step.cond)})"):
                    self.role.sync_stores |= self.stores
                    self.body(step.body)

    def _loop(self, step: For) -> None:
        self._fence()
        outer, var = self.role.scalars, c_name("v", step.var)
        start, stop = outer.expr(step.start), outer.expr(step.stop)
        self.role.sync_stores |= any(_bulk_store(inner) for inner in executed(step.body))
        self.out.line("#pragma unroll" if step.unroll else "#pragma unroll 1")
        with self.out.block(f"for (int {var} = {start}; {var} < {stop}; ++{var})"):
            self.role.scalars = outer.within(step.var, loop_range(step, outer.ranges))
            self.body(step.body)
            self.role.scalars = outer

    # ------------------------------------------------------------ barriers

    def _wait(self, step: Wait) -> None:
        counter = self.role.counters[step.pipeline]
        barrier = self.role.barrier(step.pipeline, step.full, counter.next_slot)
        if self.block.bounded:
            site = self.block.site(self.program.role.name, step.pipeline, step.full)
            self.out.line(
                f"wait_bounded({barrier}, {counter.parity}, record, {site}u, {counter.next_slot});"
            )
        else:
            self.out.line(f"wait({barrier}, {counter.parity});")
        if counter.mode == Mode.SAVED:
            if counter.depth > 1:
                self.out.line(counter.save())
            self.out.line(counter.advance())
        if step.full and self._landed_by_threads(step.pipeline):
            # cp.async writes through the generic proxy and nobody could fence behind its landing.
            self.out.line("fence_async();")

    def _landed_by_threads(self, pipeline: str) -> bool:
        reads = self.block.engine_reads
        return any(
            step.route == CopyRoute.ASYNC
            and any(use.pipeline == pipeline and use.buffer in reads for use in step.uses)
            for role in self.block.program.roles
            for step in executed(role.body)
        )

    def _signal(self, step: Signal) -> None:
        self._fence()
        counter = self.role.counters[step.pipeline]
        barrier = self.role.barrier(step.pipeline, step.full, counter.closing_slot)
        if self.role.sync_stores and self._stored(step.pipeline):
            self.out.line("if (thread == 0u) store_wait_read();")
            self.role.sync_stores = False
        if step.deferred:
            self.out.line(f"arrive_landed({barrier});")
        if step.threads:
            # Lane 0 speaks for what all lanes did: their accesses, or bytes that one of them
            # announced. Matrix ops have met already at their wait.
            if step.full or step.pipeline in self.generic:
                self.out.line("__syncwarp();")
            if step.blocks > 1:
                self.out.line(f"if (lane < {step.blocks}u) arrive_at({barrier}, lane);")
            else:
                self.out.line(f"if (lane == 0u) arrive({barrier});")
        elif not step.deferred:
            self.out.line(f"if ({self.role.leader}) arrive({barrier});")
        if counter.close():
            self.out.line(counter.close())

    def _left_unread(self, body: tuple[Step, ...]) -> bool:
        """Whether stores may still read shared memory when the next tile begins."""
        unread = False
        for step in body:
            if any(_bulk_store(each) for each in executed((step,))):
                unread = True
            elif isinstance(step, RoleSync) or (
                isinstance(step, Signal) and self._stored(step.pipeline)
            ):
                unread = False
        return unread

    def _stored(self, pipeline: str) -> bool:
        held = self.block.held_by(pipeline)
        return any(
            _bulk_store(step) and not held.isdisjoint(access(step.op).names)
            for step in executed(self.program.body)
        )

    def _sync(self) -> None:
        self._fence()
        if self.role.sync_stores:
            self.out.line("if (thread == 0u) store_wait_read();")
            self.role.sync_stores = False
        if self.role.warps == 1:
            self.out.line("__syncwarp();")
            return
        number = self.block.named_barrier(self.program.role.name)
        self.out.line(f"role_sync({number}u, {self.role.threads}u);")

    def _fence(self) -> None:
        """Writes of threads become visible to the copy engine and the matrix unit."""
        if self.role.unfenced:
            self.out.line("fence_async();")
            self.role.unfenced = False

    # ------------------------------------------------------------ ops

    def _bulk_run(self, steps: tuple[Step, ...], index: int) -> int:
        """Neighbouring bulk loads that one barrier counts, and the arrival that may follow, in
        one branch of one thread; how many steps that was."""
        first = steps[index]
        if not isinstance(first, Exec) or not is_bulk(first):
            return 0
        counted = self.role.counted_slot(first)
        if counted is None:
            raise ScheduleError(
                f"R-B6: bulk copy '{first.op.id}' of role '{self.program.role.name}' is counted "
                "by no pipeline that the role produces; use the element route"
            )
        run: list[Exec] = []
        for step in steps[index:]:
            if not isinstance(step, Exec) or not is_bulk(step):
                break
            if self.role.counted_slot(step) != counted:
                break
            run.append(step)
        after = steps[index + len(run)] if index + len(run) < len(steps) else None
        carried = self._carried(after, counted[0])
        barrier = self.role.barrier(counted[0], True, counted[1])
        size = sum(map(copies.bulk_bytes, run))
        with self.out.block(f"if ({self.role.leader})"):
            self.out.line(f"{'arrive_expect' if carried else 'expect'}({barrier}, {size}u);")
            for step in run:
                for line in copies.bulk_loads(self.role, step, barrier):
                    self.out.line(line)
        counter = self.role.counters[counted[0]]
        if carried and counter.close():
            self.out.line(counter.close())
        return len(run) + carried

    def _carried(self, step: Step | None, pipeline: str) -> bool:
        return (
            isinstance(step, Signal)
            and step.full
            and step.pipeline == pipeline
            and not step.threads
            and not step.deferred
            and self.role.counters[pipeline].mode == Mode.SIMPLE
        )

    def _execute(self, step: Exec) -> None:
        op = step.op
        if hands_over(self.block.program, step):
            parts.hand_over(self.role, step)
            return
        if not isinstance(op, Copy):
            OPS[type(op)](self.role, step)
            return
        if step.route == CopyRoute.ASYNC:
            copies.async_load(self.role, step)
            return
        if is_bulk_store(op):
            self._fence()
            copies.bulk_store(self.role, step)
            self.role.sync_stores = True
            return
        emitter = COPIES.get(copies.copy_kind(op))
        if emitter is None:
            source, target = copies.copy_kind(op)
            raise ScheduleError(f"{op.id}: the cuda backend has no copy from {source} to {target}")
        emitter(self.role, step)


def _piece_ranges(program: Program) -> Ranges:
    """The range of a unit's ordinal, and of what is known of its piece of a tile."""
    loop = program.streamed
    if loop is None:
        return {}
    iterations = evaluate(loop.iterations)
    return {
        UNIT.name: (0, unit_count(program) - 1),
        loop.first.name: (0, iterations - 1),
        loop.extent.name: (1, iterations),
        loop.part.name: (0, 1),
    }


def _bulk_store(step: Exec) -> bool:
    return isinstance(step.op, Copy) and is_bulk_store(step.op)


def _generic_pipelines(block: Block, role: RoleProgram) -> frozenset[str]:
    """The pipelines whose slots a role's threads touch one by one, not through an engine."""
    touched = {
        name
        for step in executed(role.body)
        if not isinstance(step.op, Gemm) and not is_bulk(step)
        for name in access(step.op).names
    }
    if block.program.launch.blocks:  # a slot that is released is filled again in a later tile
        touched |= {other for name in touched for other in block.program.sharers(name)}
    return frozenset(
        pipeline
        for ring in block.program.rings
        if ring.buffer.name in touched
        for pipeline, _ in ring.levels
    )


__all__ = ["RoleEmitter", "barrier_counts"]
