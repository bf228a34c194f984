"""Role programs as C functions: one a role, run by each of its warps for all tiles of its block.

Cycles are counters: a role keeps, per pipeline, how many it has opened and closed, and slot and
parity follow from them, as `program.events` says.

Invariant: a role that stands on both sides of one pipeline is refused; waits are bounded, and one
that gives up ends the role.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import Factory, define, frozen

from explorer.codegen.cpu.context import OpContext, ProgramContext
from explorer.codegen.cpu.copies import emit_copy
from explorer.codegen.cpu.elements import Place
from explorer.codegen.cpu.gemms import emit_gemm
from explorer.codegen.cpu.layout import declaration, ops_of
from explorer.codegen.cpu.loops import emit_define, emit_fill, emit_map, emit_reduce
from explorer.codegen.cpu.scalars import c_cond, c_expr, quoted, var_name
from explorer.codegen.cpu.sharing import share_of
from explorer.codegen.text import Writer
from explorer.errors import KernelError
from explorer.expr import lookups
from explorer.ir.access import access
from explorer.ir.nodes import Copy, Define, Fill, Gemm, Map, Op, Reduce
from explorer.machine import Scope
from explorer.program.launch import tile_count, tile_indices
from explorer.program.nodes import (
    Cycle,
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
    Wait,
    When,
)

OP_EMITTERS: dict[type, Callable[[Any, OpContext], None]] = {
    Copy: emit_copy,
    Gemm: emit_gemm,
    Fill: emit_fill,
    Map: emit_map,
    Reduce: emit_reduce,
    Define: emit_define,
}
UNROLLED_TRIPS = 16


@frozen
class Site:
    """A place where a role waits; its index in the source is its number."""

    role: str
    pipeline: str
    side: str


def role_name(index: int) -> str:
    """The C function of a role."""
    return f"ex_role_{index}"


@define
class RoleEmitter:
    """Writes the function of one role."""

    program: Program
    index: int
    context: ProgramContext
    sites: list[Site]
    writer: Writer = Factory(lambda: Writer("    "))
    standing: dict[str, bool] = Factory(dict)

    @property
    def role(self) -> RoleProgram:
        return self.program.roles[self.index]

    @property
    def warps(self) -> int:
        return self.role.role.warps

    def function(self) -> str:
        """The source of the role's function."""
        self.find_sides(self.role.body)
        writer, role = self.writer, self.role.role
        writer.line(f"/* {quoted(role.name)}: warps {role.warps_lo} .. {role.warps_hi - 1} */")
        with writer.block(f"static void {role_name(self.index)}(const int block, const int warp)"):
            self.declarations()
            count = tile_count(self.program)
            indices = tile_indices(self.program.grid, self.program.launch)
            for table in dict.fromkeys(each for _, expr in indices for each in lookups(expr)):
                values = ", ".join(map(str, table.values))
                writer.line(f"static const unsigned short {table.name}[] = {{{values}}};")
            with writer.block(f"for (long tile = block; tile < {count}; tile += EX_BLOCKS)"):
                for name, expr in indices:
                    writer.line(f"const long {var_name(name)} = {c_expr(expr)};")
                    writer.line(f"(void){var_name(name)};")
                self.steps(self.role.body)
        return "\n".join(writer.lines) + "\n"

    def find_sides(self, body: tuple[Step, ...]) -> None:
        for step in body:
            if isinstance(step, For | When | Repeat):
                self.find_sides(step.body)
            elif isinstance(step, Wait | Signal | Skip):
                produces = step.full if isinstance(step, Signal) else not step.full
                if self.standing.setdefault(step.pipeline, produces) != produces:
                    raise KernelError(
                        f"role '{self.role.role.name}' stands on both sides of pipeline "
                        f"'{step.pipeline}', which the cpu backend does not emit"
                    )

    def declarations(self) -> None:
        writer, layout = self.writer, self.context.layout
        mine = layout.roles[self.index]
        writer.line("char *const arena = ex_arena + (size_t)block * EX_BLOCK_BYTES;")
        writer.line(f"const long part = warp - {self.role.role.warps_lo};")
        writer.line(f"char *const mine = arena + {mine.offset_bytes} + part * {mine.warp_bytes};")
        writer.line("unsigned meeting = 0;")
        writer.line("(void)arena, (void)mine, (void)part, (void)meeting;")
        offset = layout.shared.barriers_offset_bytes
        for number, barriers in enumerate(self.program.barriers):
            if barriers.pipeline in self.standing:
                full = f"(ex_barrier *)(arena + {offset})"
                writer.line(f"/* pipeline {number}: {quoted(barriers.pipeline)} */")
                writer.line(
                    f"ex_barrier *const full_{number} = {full}, "
                    f"*const empty_{number} = full_{number} + {barriers.depth};"
                )
                writer.line(f"unsigned long open_{number} = 0, closed_{number} = 0;")
                writer.line(f"unsigned long last_{number} = 0;")
                writer.line(f"(void)full_{number}, (void)empty_{number}, (void)last_{number};")
            offset += 2 * barriers.depth * layout.machine.barrier_bytes
        names = {op.name: None for op in ops_of(self.role.body) if isinstance(op, Define)}
        for name in names:
            writer.line(f"long {var_name(name)} = 0;")

    def steps(self, body: tuple[Step, ...]) -> None:
        for step in body:
            self.step(step)

    def step(self, step: Step) -> None:
        writer = self.writer
        match step:
            case Exec():
                self.execute(step)
            case Wait(pipeline, full):
                self.wait(pipeline, full)
            case Signal():
                self.signal(step)
            case Skip(pipeline, _, cycles):
                number = self.number(pipeline)
                writer.line(f"open_{number} += {c_expr(cycles)}, closed_{number} = open_{number};")
            case Drain():
                raise KernelError("the cpu backend has no asynchronous matrix ops to drain")
            case RoleSync():
                self.meet()
            case For(var, start, stop, inner, unroll):
                name = var_name(var)
                if unroll:
                    writer.line(f"EX_UNROLL({UNROLLED_TRIPS})")
                head = f"for (long {name} = {c_expr(start)}; {name} < {c_expr(stop)}; {name}++)"
                with writer.block(head):
                    self.steps(inner)
            case When(cond, inner):
                with writer.block(f"if ({c_cond(cond)})"):
                    self.steps(inner)
            case Repeat(cond, inner):
                with writer.block(f"while ({c_cond(cond)})"):
                    self.steps(inner)

    # ------------------------------------------------------------ synchronization

    def number(self, pipeline: str) -> int:
        return [each.pipeline for each in self.program.barriers].index(pipeline)

    def depth(self, pipeline: str) -> int:
        return self.program.barriers[self.number(pipeline)].depth

    def site(self, pipeline: str, side: str) -> int:
        self.sites.append(Site(quoted(self.role.role.name), quoted(pipeline), side))
        return len(self.sites) - 1

    def wait(self, pipeline: str, full: bool) -> None:
        number, depth = self.number(pipeline), self.depth(pipeline)
        side = "full" if full else "empty"
        site = self.site(pipeline, side)
        turn = f"(open_{number} / {depth} & 1)" + ("" if full else " ^ 1")
        slot = f"open_{number} % {depth}"
        self.writer.line(
            f"if (ex_wait(&{side}_{number}[{slot}], {turn}, block, warp, {site}, {slot})) return;"
        )
        self.writer.line(f"open_{number}++;")

    def signal(self, step: Signal) -> None:
        if not step.threads or step.deferred or step.matrix:
            raise KernelError("the cpu backend has no bulk, deferred or matrix arrivals")
        number = self.number(step.pipeline)
        side = "full" if step.full else "empty"
        slot = f"closed_{number} % {self.depth(step.pipeline)}"
        self.writer.line(f"ex_arrive(&{side}_{number}[{slot}]);")
        self.writer.line(f"last_{number} = closed_{number}++;")

    def meet(self) -> None:
        if self.warps == 1:
            return
        meeting = f"&ex_meeting_{self.index}[block]"
        site = self.site("", "meeting")
        self.writer.line(f"ex_arrive({meeting});")
        self.writer.line(f"if (ex_wait({meeting}, meeting, block, warp, {site}, 0)) return;")
        self.writer.line("meeting ^= 1;")

    # ------------------------------------------------------------ ops

    def execute(self, step: Exec) -> None:
        if step.asynchronous:
            raise KernelError(f"'{step.op.id}': the cpu backend has no asynchronous matrix ops")
        held = self.context.layout.roles[self.index].held
        op = share_of(step.op, held, self.warps) if self.warps > 1 else step.op
        self.writer.line(f"/* {quoted(step.op.id)} */")
        with self.writer.block("" if op is not None else "if (part == 0)"):
            self.emit(step, step.op if op is None else op)

    def emit(self, step: Exec, op: Op) -> None:
        places, slots = self.places(step, op)
        context = OpContext(self.context, self.writer, places, slots, step.op, self.warps)
        OP_EMITTERS[type(op)](op, context)

    def places(self, step: Exec, op: Op) -> tuple[dict[str, Place], dict[str, str]]:
        """Declare the pointer of every buffer that the op touches."""
        layout = self.context.layout
        places: dict[str, Place] = {}
        slots: dict[str, str] = {}
        touched = access(op)
        for region in (*touched.reads, *touched.writes):
            buffer = region.buffer
            if buffer.name in places:
                continue
            if buffer.scope == Scope.GLOBAL:
                place = layout.tensor(buffer)
                base = f"ex_tensors[{self.tensor_index(buffer.name)}]"
            elif buffer.scope.private:
                fragment = layout.roles[self.index].fragment(buffer.name)
                place = layout.private(fragment.buffer)
                base = f"mine + {fragment.offset_bytes}"
            else:
                slots[buffer.name] = self.slot(step, buffer.name)
                ring = layout.shared.ring(buffer.name)
                place = layout.slot(self.program.ring(buffer.name).buffer)
                base = f"arena + {ring.offset_bytes} + ({slots[buffer.name]}) * {ring.pitch_bytes}"
            places[buffer.name] = place
            self.writer.line(declaration(place, base))
        return places, slots

    def tensor_index(self, name: str) -> int:
        return [tensor.name for tensor in self.program.tensors].index(name)

    def slot(self, step: Exec, buffer: str) -> str:
        """The version of a ring buffer that the op is bound to."""
        cycles = {use.pipeline: use.cycle for use in step.uses if use.buffer == buffer}
        text = "0"
        for pipeline, depth in self.program.ring(buffer).levels:
            number = self.number(pipeline)
            cycle = {
                Cycle.OPEN: f"(open_{number} - 1)",
                Cycle.LAST: f"last_{number}",
                Cycle.NEXT: f"open_{number}",
            }[cycles[pipeline]]
            inner = f"{cycle} % {depth}"
            text = inner if text == "0" else f"({text}) * {depth} + {inner}"
        return text
