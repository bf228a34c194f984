"""What a kernel means: its execution in NumPy, one block after the other.

Every backend is tested against it. `execute` runs one op on whatever arrays the caller hands
it, so that the simulator of schedules shares the meaning of ops and differs only in who runs
what when.

Invariant: reads outside a tensor give 0 and writes there vanish; outside an on-chip buffer both
are errors. On-chip buffers start poisoned (NaN, or a bit pattern), so that reading what nobody
wrote shows in the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from explorer.errors import KernelError
from explorer.expr import Expr, Var, evaluate, holds
from explorer.ir.access import outputs
from explorer.ir.dtypes import DType
from explorer.ir.elementwise import convert, evaluate_value, execute_map, matrix_dtype
from explorer.ir.nodes import (
    Buffer,
    Copy,
    Define,
    Fill,
    Gemm,
    Group,
    If,
    Kernel,
    Loop,
    Map,
    Op,
    Reduce,
    Region,
    Stmt,
    While,
)
from explorer.machine import Scope

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
View: TypeAlias = Callable[[str], Array]

_POISON_BYTE = 0xA5
_EXACT_FLOAT64 = 2**53


def run(kernel: Kernel, inputs: Mapping[str, Array], **scalars: int) -> dict[str, Array]:
    """Execute a concrete kernel on `inputs` (tensor name -> array) and return what it writes.

    A tensor that is written but not given starts poisoned; one that is given is not modified.
    Run-time sizes are taken from the shapes of the tensors or from `scalars`. KernelError for open
    Params, missing tensors and wrong shapes.
    """
    if kernel.params:
        raise KernelError(
            f"kernel '{kernel.name}' has open Params {', '.join(kernel.params)}: "
            "fix them with kernel.at(...) before running it"
        )
    written = outputs(kernel)
    env = dict(scalars)
    memory = _tensors(kernel, inputs, written, env)
    local = {b.name: poisoned(_sizes(b, env), b.dtype) for b in kernel.buffers if not b.storage}
    memory |= local
    memory |= {
        b.name: seen(local[b.storage], b, _sizes(b, env)) for b in kernel.buffers if b.storage
    }
    for position in grid_points(kernel, env):
        for name, array in local.items():
            array[...] = poison(kernel.buffer(name).dtype)
        run_body(kernel.body, env | position, memory.__getitem__)
    return {tensor.name: memory[tensor.name] for tensor in written}


def grid_points(kernel: Kernel, env: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Block positions in launch order, the first grid axis fastest."""
    names = [name for name, _ in kernel.grid]
    extents = [range(evaluate(extent, env)) for _, extent in kernel.grid]
    for position in itertools.product(*reversed(extents)):
        yield dict(zip(names, reversed(position), strict=True))


def run_body(body: tuple[Stmt, ...], env: dict[str, int], view: View) -> None:
    """Execute statements in program order; `env` holds the scalars and is updated in place."""
    for statement in body:
        match statement:
            case Loop(_, var, start, extent, _, _, inner):
                first = evaluate(start, env)
                for step in range(evaluate(extent, env)):
                    env[var] = first + step
                    run_body(inner, env, view)
            case If(_, cond, inner):
                if holds(cond, env):
                    run_body(inner, env, view)
            case While(_, cond, inner):
                while holds(cond, env):
                    run_body(inner, env, view)
            case Group(_, inner):
                run_body(inner, env, view)
            case _:
                execute(statement, env, view)


def execute(op: Op, scalars: dict[str, int], view: View) -> None:
    """Execute one op. `view(name)` is the array that stands for a buffer; Define sets a scalar."""
    match op:
        case Copy(_, src, dst):
            write_region(dst, read_region(src, scalars, view), scalars, view)
        case Gemm():
            _gemm(op, scalars, view)
        case Fill(_, dst, value):
            filled = np.broadcast_to(
                evaluate_value(value, scalars, view), region_shape(dst, scalars)
            )
            write_region(dst, filled, scalars, view)
        case Reduce():
            _reduce(op, scalars, view)
        case Map():
            execute_map(op, scalars, view)
        case Define(_, name, value):
            scalars[name] = int(evaluate_value(value, scalars, view))


def region_shape(region: Region, scalars: Mapping[str, int]) -> tuple[int, ...]:
    """The extents of a region without its squeezed dimensions, as ints."""
    return tuple(evaluate(extent, scalars) for extent in region.shape)


def read_region(region: Region, scalars: Mapping[str, int], view: View) -> Array:
    """The elements of a region, 0 where it leaves its tensor; squeezed dimensions are gone."""
    array = view(region.buffer.name)
    box, inside, offsets = _clip(region, scalars, array.shape)
    squeezed = tuple(region.squeezed)
    if all(a.stop - a.start == extent for a, extent in zip(inside, box, strict=True)):
        return np.squeeze(array[inside], axis=squeezed)
    padded = np.zeros(box, dtype=array.dtype)
    padded[offsets] = array[inside]
    return np.squeeze(padded, axis=squeezed)


def write_region(region: Region, values: Array, scalars: Mapping[str, int], view: View) -> None:
    """Store `values`, converted to the buffer's type, where the region lies in its tensor."""
    array = view(region.buffer.name)
    box, inside, offsets = _clip(region, scalars, array.shape)
    shape = tuple(e for axis, e in enumerate(box) if axis not in region.squeezed)
    if values.shape != shape:
        raise KernelError(
            f"the region of '{region.buffer.name}' has extents {shape}, its source {values.shape}"
        )
    array[inside] = convert(values.reshape(box)[offsets], region.buffer.dtype)


def _clip(
    region: Region, scalars: Mapping[str, int], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]:
    """The region's box, the part inside the array, and that part's place within the box."""
    starts = [evaluate(start, scalars) for start in region.start]
    box = tuple(evaluate(extent, scalars) for extent in region.extent)
    inside, offsets = [], []
    for start, extent, size in zip(starts, box, shape, strict=True):
        low, high = min(max(start, 0), size), min(max(start + extent, 0), size)
        if high - low < extent and region.buffer.scope != Scope.GLOBAL:
            raise KernelError(
                f"'{region.buffer.name}' is accessed at {start}:{start + extent} of {size}"
            )
        inside.append(slice(low, max(low, high)))
        offsets.append(slice(low - start, max(low, high) - start))
    return box, tuple(inside), tuple(offsets)


def _gemm(op: Gemm, scalars: Mapping[str, int], view: View) -> None:
    a, b = read_region(op.a, scalars, view), read_region(op.b, scalars, view)
    a, b = (a.T if op.transpose_a else a), (b.T if op.transpose_b else b)
    accumulator = op.c.buffer.dtype
    if accumulator.is_float:
        compute = matrix_dtype(accumulator)
        result = np.matmul(a.astype(compute), b.astype(compute))
    else:
        result = _integer_matmul(a, b)
    if not holds(op.clear_accum, scalars):
        result = result + read_region(op.c, scalars, view).astype(result.dtype)
    write_region(op.c, result, scalars, view)


def _integer_matmul(a: Array, b: Array) -> Array:
    """Exact integer product; through float64 where every partial sum is exact there."""
    a, b = a.astype(np.int64), b.astype(np.int64)
    bound = int(np.abs(a).max(initial=0)) * int(np.abs(b).max(initial=0)) * max(a.shape[1], 1)
    if bound >= _EXACT_FLOAT64:
        product: Array = np.matmul(a, b)
        return product
    exact: Array = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return exact.astype(np.int64)


def _reduce(op: Reduce, scalars: Mapping[str, int], view: View) -> None:
    source = read_region(op.src, scalars, view)
    compute = np.float64 if source.dtype == np.float64 else np.float32
    if not op.src.buffer.dtype.is_float:
        compute = np.int64  # type: ignore[assignment]
    source = source.astype(compute)
    if op.kind == "absmax":
        source = np.abs(source)
    combine = {"max": np.maximum, "absmax": np.maximum, "min": np.minimum, "sum": np.add}[op.kind]
    result: Array = combine.reduce(source, axis=op.axis)
    result = result.reshape(region_shape(op.dst, scalars))
    if not op.clear:
        result = combine(result, read_region(op.dst, scalars, view).astype(compute))
    write_region(op.dst, result, scalars, view)


# ---------------------------------------------------------------- memory


def poison(element: DType) -> Any:
    """The value of an element that nobody wrote: NaN, or the byte 0xA5 repeated."""
    if element.is_float and element.bits >= 8:
        return np.nan
    if element.kind == "bool":
        return True
    if element.bits < 8:
        return -6 if element.kind in ("int", "float") else 10
    pattern = int.from_bytes(bytes([_POISON_BYTE]) * (element.bits // 8), "little")
    return pattern - (1 << element.bits) * (element.kind == "int")


def poisoned(shape: tuple[int, ...], element: DType) -> Array:
    """An array of a stored type whose elements nobody wrote yet."""
    return np.full(shape, poison(element), dtype=element.numpy)


def seen(storage: Array, view: Buffer, shape: tuple[int, ...]) -> Array:
    """The array that a view shows of its storage: the same memory."""
    result: Array = storage.reshape(-1).view(view.dtype.numpy).reshape(shape)
    return result


def _sizes(buffer: Buffer, env: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(size, env) for size in buffer.shape)


def _tensors(
    kernel: Kernel,
    inputs: Mapping[str, Array],
    written: tuple[Buffer, ...],
    env: dict[str, int],
) -> dict[str, Array]:
    known = {tensor.name for tensor in kernel.tensors}
    if unknown := sorted(set(inputs) - known):
        raise KernelError(
            f"kernel '{kernel.name}' has no tensor '{unknown[0]}': "
            f"it has {', '.join(t.name for t in kernel.tensors)}"
        )
    for tensor in kernel.tensors:
        if tensor.name in inputs:
            _bind_sizes(tensor.shape, inputs[tensor.name].shape, env)
    memory = {}
    for tensor in kernel.tensors:
        shape = _sizes(tensor, env)
        if tensor.name not in inputs:
            if tensor not in written:
                raise KernelError(f"kernel '{kernel.name}': no array for tensor '{tensor.name}'")
            memory[tensor.name] = poisoned(shape, tensor.dtype)
            continue
        given = np.asarray(inputs[tensor.name])
        if given.shape != shape:
            raise KernelError(
                f"kernel '{kernel.name}': tensor '{tensor.name}' has shape {shape}, "
                f"its array {given.shape}"
            )
        memory[tensor.name] = convert(given, tensor.dtype).copy()
    return memory


def _bind_sizes(shape: tuple[Expr, ...], given: tuple[int, ...], env: dict[str, int]) -> None:
    for size, extent in zip(shape, given, strict=False):
        if isinstance(size, Var):
            env.setdefault(size.name, extent)
