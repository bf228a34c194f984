"""Winners as TileLang 0.1.15 source: the annotation to paste, or the whole kernel.

Invariant: everything printed is derived from the kernel and the schedule that is bound to it;
what TileLang cannot express is refused by name, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.errors import KernelError
from explorer.export.annotation import annotation_lines
from explorer.export.limits import RELEASE, WARP_THREADS, require_expressible
from explorer.export.merge import merge_splits
from explorer.export.persistent import tile_loop
from explorer.export.statements import INDENT, StatementPrinter
from explorer.export.text import dtype_text, expr_text, shape_text, variable
from explorer.expr import Expr, Var, symbols
from explorer.ir.nodes import Buffer, Kernel
from explorer.machine import Scope
from explorer.schedule.bound import Schedule, verify_binding
from explorer.schedule.extensions import Raster
from explorer.schedule.plan import scheduled_kernel
from explorer.schedule.ws import WSSchedule

_ALLOCATIONS = {
    Scope.SHARED: "alloc_shared",
    Scope.FRAGMENT: "alloc_fragment",
    Scope.LOCAL: "alloc_local",
    Scope.TMEM: "alloc_tmem",
}


@frozen
class _Export:
    """A kernel in the form that TileLang runs, its WSSchedule, and what both were made from.

    `grid` is the grid of tiles, which a persistent launch has replaced in `kernel`; `digest` is
    that of the schedule as it was given. `allocated` are the buffers that the author's kernel has.
    """

    kernel: Kernel
    ws: WSSchedule
    schedule: Schedule
    grid: tuple[tuple[str, Expr], ...]
    digest: str
    allocated: tuple[Buffer, ...]

    @property
    def threads(self) -> int:
        return self.ws.num_warps * WARP_THREADS

    @property
    def printer(self) -> StatementPrinter:
        return StatementPrinter({each.op: each.route for each in self.schedule.extensions.routes})


def export_tilelang(kernel: Kernel, schedule: Schedule) -> str:
    """The text that an author pastes into a TileLang kernel.

    Tile sizes and thread count, the launch, the calls that follow the allocations, and the body
    with the ids that the schedule refers to; the launch and the body are comments.
    `kernel` is the plain kernel with its Params open. ScheduleError where the schedule is bound to
    another kernel, or where TileLang 0.1.15 cannot express it.
    """
    return "\n".join(_paste(_prepare(kernel, schedule, fixed=False))) + "\n"


def export_kernel_tilelang(kernel: Kernel, schedule: Schedule) -> str:
    """The whole kernel as a TileLang module, all sizes fixed, ids and schedule attached.

    Errors as `export_tilelang`; KernelError for what has no TileLang form.
    """
    return "\n".join(_module(_prepare(kernel, schedule, fixed=True))) + "\n"


def _prepare(kernel: Kernel, schedule: Schedule, fixed: bool) -> _Export:
    verify_binding(schedule.binding, kernel, schedule.binding.machine)
    made = schedule.digest
    schedule = merge_splits(schedule)
    require_expressible(schedule)
    variable(kernel.name, "kernel")
    rewritten = scheduled_kernel(kernel, schedule.extensions)
    if fixed:
        rewritten = rewritten.at(**schedule.params)
    looped, ws = tile_loop(rewritten, schedule.ws, schedule.extensions.launch)
    return _Export(looped, ws, schedule, rewritten.grid, made, kernel.buffers)


def _paste(export: _Export) -> Iterator[str]:
    schedule, kernel = export.schedule, export.kernel
    yield f"# Schedule {export.digest} of kernel '{kernel.name}' for {schedule.binding.machine},"
    yield f"# in the terms of TileLang {RELEASE}."
    for name, value in schedule.binding.params:
        yield f"{variable(name, 'tile size')} = {value}"
    yield f"threads = {export.threads}"
    yield ""
    yield "# The launch:"
    yield f"#   {_launch(kernel, 'threads')}"
    yield "# After the allocations:"
    yield from _changed_allocations(export)
    yield from _after_allocations(export, "")
    yield "# The body, with the ids that the schedule refers to:"
    yield from (f"#   {line}" for line in export.printer.body(kernel.body, ""))
    for tile in schedule.extensions.matrix:
        op = variable(tile.op, "gemm")
        yield f"# Gemm '{op}' was planned with instruction tiles of {tile.m} x {tile.n};"
        yield "# TileLang picks its own from the tile sizes and the policy."


def _module(export: _Export) -> Iterator[str]:
    kernel = export.kernel
    title = f"Kernel {kernel.name} with schedule {export.digest}, for TileLang {RELEASE}."
    yield f'"""{title}"""'
    yield ""
    yield "import tilelang.language as T"
    yield ""
    yield ""
    yield "@T.prim_func"
    yield f"def {kernel.name}("
    yield from (f"{INDENT}{_tensor(tensor)}," for tensor in kernel.tensors)
    yield from (f"{INDENT}{variable(name, 'scalar')}: T.int32," for name in kernel.scalars)
    yield "):"
    yield f"{INDENT}{_launch(kernel, str(export.threads))}"
    inner = INDENT * 2
    yield from (inner + _allocation(buffer) for buffer in kernel.buffers)
    yield from _after_allocations(export, inner)
    yield from export.printer.body(kernel.body, inner)


def _launch(kernel: Kernel, threads: str) -> str:
    names = ", ".join(variable(name, "block variable") for name, _ in kernel.grid)
    extents = ", ".join(expr_text(extent) for _, extent in kernel.grid)
    target = names if len(kernel.grid) == 1 else f"({names})"
    return f"with T.Kernel({extents}, threads={threads}) as {target}:"


def _tensor(tensor: Buffer) -> str:
    for extent in tensor.shape:
        if any(isinstance(symbol, Var) for symbol in symbols(extent)):
            raise KernelError(
                f"tensor '{tensor.name}' has the run-time size {extent}: "
                "an exported kernel has all sizes fixed"
            )
    name = variable(tensor.name, "tensor")
    shape, element = shape_text(tensor.shape), dtype_text(tensor.dtype)
    if tensor.pitch:
        return f"{name}: T.StridedTensor({shape}, {shape_text(tensor.strides)}, {element})"
    return f"{name}: T.Tensor({shape}, {element})"


def _allocation(buffer: Buffer) -> str:
    call = _ALLOCATIONS.get(buffer.scope)
    if call is None:
        raise KernelError(f"buffer '{buffer.name}': scope {buffer.scope} is not one of a GPU")
    name = variable(buffer.name, "buffer")
    return f"{name} = T.{call}({shape_text(buffer.shape)}, {dtype_text(buffer.dtype)})"


def _changed_allocations(export: _Export) -> Iterator[str]:
    """The buffers that the author's kernel has not, or has in another shape."""
    names = {buffer.name for buffer in export.allocated}
    for buffer in export.kernel.buffers:
        if buffer not in export.allocated:
            note = "  # in place of the one there" if buffer.name in names else ""
            yield _allocation(buffer) + note


def _after_allocations(export: _Export, indent: str) -> Iterator[str]:
    if any(role.max_nreg for role in export.ws.roles):
        # ptxas drops every setmaxnreg (C7508) unless it knows the registers a thread enters with.
        yield f"{indent}T.annotate_min_blocks_per_sm(1)"
    yield from _raster(export, indent)
    yield from annotation_lines(export.ws, indent)


def _raster(export: _Export, indent: str) -> Iterator[str]:
    """TileLang's swizzle walks strips of the second axis, every second one backwards; it has no
    Hilbert curve."""
    launch = export.schedule.extensions.launch
    if launch.raster == Raster.HILBERT:
        yield f"{indent}# the schedule's Hilbert raster has no counterpart here: tiles go by rows"
        return
    if launch.blocks or len(export.grid) < 2 or launch.raster == Raster.ROW:
        return
    whole = expr_text(export.grid[1][1])
    strip = whole if launch.raster == Raster.COLUMN else str(launch.group)
    yield f'{indent}T.use_swizzle({strip}, order="row")'
