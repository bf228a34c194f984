"""Pipe schedules as TileLang 0.1.15 source: the annotations to paste, or the whole kernel.

The versions that were selected are written with their counts and modes fixed, so that TileLang's
own scheduler has nothing left to choose about them. Flags and intervals have no form there: its
compiler derives flags again and orders tasks by its own predictions.

Invariant: buffers that have no owner are opted out, unless the kernel indexes them by hand.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from explorer.errors import KernelError
from explorer.export.statements import INDENT, StatementPrinter
from explorer.export.text import (
    cond_text,
    dtype_text,
    element_text,
    expr_text,
    region_text,
    shape_text,
    value_text,
    variable,
)
from explorer.expr import FALSE, TRUE, Binary, Compare, Const, Expr, Var
from explorer.ir.annotations import ManualMultiBuffer, UnlimitedMemory
from explorer.ir.nodes import (
    Buffer,
    Copy,
    Fill,
    Gemm,
    Group,
    If,
    Kernel,
    Loop,
    Map,
    Reduce,
    Rewrite,
    Stmt,
    While,
)
from explorer.machine import Scope
from explorer.schedule.bound import verify_binding
from explorer.schedule.pipe import PipeSchedule

_ALLOCATIONS = {
    Scope.SHARED: "alloc_shared",
    Scope.L1: "alloc_l1",
    Scope.L0A: "alloc_l0a",
    Scope.L0B: "alloc_l0b",
    Scope.L0C: "alloc_l0c",
}
THREADS = 128


def export_ascend(kernel: Kernel, schedule: PipeSchedule) -> str:
    """The annotation calls that follow the allocations; ScheduleError for another kernel's."""
    verify_binding(schedule.binding, kernel, schedule.binding.machine)
    lines = [f"# Pipe schedule {schedule.digest} of '{kernel.name}'; its times are predicted."]
    return "\n".join([*lines, *_annotations(kernel, schedule)]) + "\n"


def export_kernel_ascend(kernel: Kernel, schedule: PipeSchedule) -> str:
    """The whole kernel as a module of TileLang's Ascend dialect, all sizes fixed."""
    verify_binding(schedule.binding, kernel, schedule.binding.machine)
    fixed = kernel.at(**dict(schedule.binding.params))
    return "\n".join(_module(fixed, schedule)) + "\n"


def _annotations(kernel: Kernel, schedule: PipeSchedule) -> Iterator[str]:
    entries = []
    for ring in schedule.rings:
        if not ring.manual:
            name = variable(ring.buffer, "buffer")
            what = f'({ring.versions}, "{ring.mode}")' if ring.owners else "1"
            entries.append(f"{name}: {what}")
    if entries:
        yield f"T.annotate_buffer_versions({{{', '.join(entries)}}})"
    manual = [n for n in kernel.annotations if isinstance(n, ManualMultiBuffer)]
    if manual:
        items = ", ".join(f"{variable(n.buffer, 'buffer')}: {n.versions}" for n in manual)
        yield f"T.annotate_manual_multi_buffer({{{items}}})"
    for note in kernel.annotations:
        if isinstance(note, UnlimitedMemory):
            scopes = ", ".join(f'"{scope}"' for scope in note.scopes)
            yield f"T.annotate_unlimit_memory({scopes})"


def _module(kernel: Kernel, schedule: PipeSchedule) -> Iterator[str]:
    yield f'"""Kernel {kernel.name} with pipe schedule {schedule.digest}, for TileLang 0.1.15."""'
    yield ""
    yield "import tilelang.ascend.language as T"
    yield ""
    yield ""
    yield "@T.prim_func"
    yield f"def {variable(kernel.name, 'kernel')}("
    for tensor in kernel.tensors:
        name = variable(tensor.name, "tensor")
        yield f"{INDENT}{name}: T.Tensor({shape_text(tensor.shape)}, {dtype_text(tensor.dtype)}),"
    yield "):"
    if len(kernel.grid) != 1:
        raise KernelError(
            f"kernel '{kernel.name}' has {len(kernel.grid)} grid axes: an Ascend launch has one"
        )
    block, extent = kernel.grid[0]
    yield f"{INDENT}with T.Kernel({expr_text(extent)}) as {variable(block, 'block variable')}:"
    inner = INDENT * 2
    yield from (inner + _allocation(buffer) for buffer in kernel.buffers)
    yield from (inner + line for line in _annotations(kernel, schedule))
    yield from _AscendPrinter(block).body(kernel.body, inner)


def _allocation(buffer: Buffer) -> str:
    call = _ALLOCATIONS.get(buffer.scope)
    if call is None:
        raise KernelError(f"buffer '{buffer.name}': scope {buffer.scope} is not one of ascend950")
    name = variable(buffer.name, "buffer")
    if buffer.storage:
        shown = f"{shape_text(buffer.shape)}, {dtype_text(buffer.dtype)}"
        return f"{name} = T.view({variable(buffer.storage, 'buffer')}, {shown})"
    return f"{name} = T.{call}({shape_text(buffer.shape)}, {dtype_text(buffer.dtype)})"


@frozen
class _AscendPrinter:
    """Statements in the Ascend dialect; element-wise bodies stand in a SIMT region."""

    block: str

    def body(self, statements: tuple[Stmt, ...], indent: str) -> Iterator[str]:
        """The lines of several statements."""
        for statement in statements:
            yield from self._lines(statement, indent)

    def _lines(self, node: Stmt, indent: str) -> Iterator[str]:
        match node:
            case Copy(_, src, dst):
                yield f"{indent}T.copy({region_text(src)}, {region_text(dst)})"
            case Gemm():
                yield indent + _gemm(node)
            case Fill(_, dst, value):
                call = f"T.fill({region_text(dst)}, {value_text(value)})"
                if dst.buffer.scope == Scope.SHARED:
                    yield f"{indent}with T.SimtVF(threads={THREADS}):"
                    indent += INDENT
                yield indent + call
            case Map():
                yield from self._map(node, indent)
            case Reduce():
                raise KernelError(
                    f"line {node.line}: reduction '{node.id}' has no whole-buffer form in "
                    "TileLang's SIMT regions; write it as a T.Parallel body"
                )
            case If(_, cond, body):
                yield f"{indent}if {cond_text(cond)}:"
                yield from self.body(body, indent + INDENT)
            case Loop():
                yield from self._loop(node, indent)
            case Group(_, body):
                yield from self.body(body, indent)
            case While():
                raise KernelError(f"line {node.line}: a while loop cannot be exported for Ascend")
            case _:
                yield from StatementPrinter(tagged=False).lines(node, indent)

    def _map(self, node: Map, indent: str) -> Iterator[str]:
        names = ", ".join(variable(name, "axis") for name, _ in node.axes)
        extents = ", ".join(expr_text(extent) for _, extent in node.axes)
        yield f"{indent}with T.SimtVF(threads={THREADS}):"
        inner = indent + INDENT
        if node.axes:
            yield f"{inner}for {names} in T.Parallel({extents}):"
            inner += INDENT
        for store, guard in zip(node.stores, node.guards, strict=True):
            lead = inner
            if guard != TRUE:
                yield f"{inner}if {cond_text(guard)}:"
                lead += INDENT
            target, value = element_text(store.buffer, store.indices), value_text(store.value)
            yield lead + (
                f"T.atomic_add({target}, {value})" if store.atomic else f"{target} = {value}"
            )

    def _loop(self, node: Loop, indent: str) -> Iterator[str]:
        tiles = _tile_loop(node, self.block)
        if tiles is not None:
            head, body = tiles
            yield f"{indent}for {variable(node.var, 'loop variable')} in {head}:"
            yield from self.body(body, indent + INDENT)
            return
        start = "" if node.start == Const(0) else f"{expr_text(node.start)}, "
        stop = expr_text(node.start + node.extent)
        options = _claims(node)
        if node.num_stages:
            call = f"T.Pipelined({start}{stop}, num_stages={node.num_stages}{options})"
        else:
            name = "T.unroll" if node.kind == "unrolled" else "T.serial"
            call = f"{name}({start}{stop}{options})"
        yield f"{indent}for {variable(node.var, 'loop variable')} in {call}:"
        yield from self.body(node.body, indent + INDENT)


def _claims(node: Loop) -> str:
    if not node.multi_buffer_eligible:
        return ""
    names = ", ".join(f"{variable(name, 'buffer')}.data" for name in node.multi_buffer_eligible)
    return f', annotations={{"multi_buffer_eligible": [{names}]}}'


def _tile_loop(node: Loop, block: str) -> tuple[str, tuple[Stmt, ...]] | None:
    """A loop over tiles `wave * cores + block < total` as T.Persistent over the tile itself."""
    if node.kind != "persistent" or len(node.body) != 1 or not isinstance(node.body[0], If):
        return None
    guard = node.body[0]
    match guard.cond:
        case Compare("<", Binary("+", Binary("*", Var(var), cores), Var(name)) as tile, total):
            if (var, name) != (node.var, block):
                return None
        case _:
            return None
    body = _Tile(tile, Var(node.var)).stmts(guard.body)
    head = (
        f"T.Persistent([{expr_text(total)}], {expr_text(cores)}, {variable(block, 'block')}, "
        f"num_stages={node.num_stages}{_claims(node)})"
    )
    return head, body


class _Tile(Rewrite):
    """Replaces the tile expression by one variable."""

    def __init__(self, tile: Expr, var: Var) -> None:
        super().__init__({"\0": 0})
        object.__setattr__(self, "_tile", tile)
        object.__setattr__(self, "_var", var)

    def expr(self, expr: Expr) -> Expr:
        if expr == self._tile:  # type: ignore[attr-defined]
            return self._var  # type: ignore[attr-defined,no-any-return]
        if isinstance(expr, Binary):
            return evolve(expr, lhs=self.expr(expr.lhs), rhs=self.expr(expr.rhs))
        return expr


def _gemm(node: Gemm) -> str:
    options = [region_text(region) for region in (node.a, node.b, node.c)]
    if node.transpose_a:
        options.append("transpose_A=True")
    if node.transpose_b:
        options.append("transpose_B=True")
    if node.clear_accum != FALSE:
        options.append(f"clear_accum={cond_text(node.clear_accum)}")
    return f"T.gemm({', '.join(options)})"
