"""Fills, element-wise bodies, reductions and scalar definitions.

An element-wise body that touches a fragment runs over the fragment's registers, each thread for
the elements it holds; any other body is dealt out to the role's threads.

Invariant: a body over fragments indexes each of them by its own loop variables, so that nothing is
exchanged between threads.
"""

from __future__ import annotations

from attrs import frozen

from explorer.codegen.cuda.context import Role
from explorer.codegen.cuda.copies import tile_template
from explorer.codegen.cuda.elements import (
    Values,
    compute_type,
    stored_text,
    stored_type,
    widened_text,
)
from explorer.codegen.cuda.fragments import BLOCK_ROWS, Fragment, Shape
from explorer.codegen.cuda.scalars import Scalars, c_name, fixed
from explorer.codegen.cuda.turned import is_turned_stage, turned_stage
from explorer.errors import ScheduleError
from explorer.expr import TRUE, Const, Expr, Var, all_of, compare, const, product
from explorer.ir.access import map_elements
from explorer.ir.nodes import Buffer, Define, Element, Fill, Map, Reduce
from explorer.ir.values import compute_dtype
from explorer.machine import Scope
from explorer.program.nodes import Exec, Use


@frozen
class _Lanes:
    """Where a body stands: `row` and `column` axes of its fragments, and the block of rows."""

    row: str = ""
    column: str = ""
    block: int = 0


def define(role: Role, step: Exec) -> None:
    """An integer scalar, the same in every thread."""
    op = step.op
    assert isinstance(op, Define)
    values = _values(role, step.uses, role.scalars, _Lanes())
    role.out.line(f"{c_name('v', op.name)} = (int)({values.text(op.value)});")


def fill(role: Role, step: Exec) -> None:
    """A fragment or a shared buffer filled with one value."""
    op = step.op
    assert isinstance(op, Fill)
    buffer = op.dst.buffer
    value = _values(role, step.uses, role.scalars, _Lanes()).stored(op.value, buffer.dtype)
    fragment = role.fragments.get(buffer.name)
    if fragment is None:
        _fill_shared(role, step, value)
        return
    if op.dst.extent != buffer.shape:
        raise ScheduleError(f"{op.id}: fills part of '{buffer.name}'; fill the whole fragment")
    for array in fragment.arrays:
        role.out.line("#pragma unroll")
        role.out.line(f"for (int x = 0; x < {fragment.registers}; ++x) {array}[x] = {value};")


def _fill_shared(role: Role, step: Exec, value: str) -> None:
    op = step.op
    assert isinstance(op, Fill)
    buffer = op.dst.buffer
    if buffer.scope != Scope.SHARED or op.dst.extent != buffer.shape:
        raise ScheduleError(f"{op.id}: only whole fragments and shared buffers are filled")
    layout = role.tile(buffer)
    kind = stored_type(buffer.dtype)
    start = role.slot_offset(buffer, step.uses)
    count = layout.rows * layout.columns
    with role.out.block(f"for (int i = (int)thread; i < {count}; i += {role.threads})"):
        role.out.line(f"(({kind}*)(smem + {start}))[i] = {value};")
    role.unfenced |= buffer.name in role.block.engine_reads


def map_body(role: Role, step: Exec) -> None:
    """An element-wise body."""
    op = step.op
    assert isinstance(op, Map)
    held = [e for e in map_elements(op) if e.buffer.name in role.fragments]
    matrix = next((e for e in held if role.fragments[e.buffer.name].matrix), None)
    if is_turned_stage(role, op):
        turned_stage(role, step)
    elif matrix is not None:
        _over_matrix(role, step, matrix)
    elif held:
        _over_vector(role, step, held[0])
    else:
        _over_threads(role, step)
    written = {store.buffer.name for store in op.stores}
    role.unfenced |= bool(written & role.block.engine_reads)


def _axis(index: Expr, op: Map) -> str:
    if isinstance(index, Var) and index.name in dict(op.axes):
        return index.name
    raise ScheduleError(f"{op.id}: index '{index}' of a fragment must be a loop variable itself")


def _axes_scalars(role: Role, op: Map) -> Scalars:
    scalars = role.scalars
    for name, extent in op.axes:
        scalars = scalars.within(name, (0, fixed(extent, f"axis '{name}' of {op.id}") - 1))
    return scalars


def _over_matrix(role: Role, step: Exec, element: Element) -> None:
    op = step.op
    assert isinstance(op, Map)
    fragment = role.fragments[element.buffer.name]
    row, column = (_axis(index, op) for index in element.indices)
    extents = (dict(op.axes)[row], dict(op.axes)[column])
    if len(op.axes) != 2 or extents != element.buffer.shape:
        raise ScheduleError(f"{op.id}: runs over part of '{element.buffer.name}'")
    for block in range(fragment.blocks):
        with role.out.block():
            role.out.line(f"const int first = {_first_row(role, fragment, block)};")
            role.out.line("#pragma unroll")
            with role.out.block(f"for (int x = 0; x < {fragment.registers}; ++x)"):
                role.out.line(f"const int {c_name('v', row)} = first + 8 * (x >> 1 & 1);")
                role.out.line(
                    f"const int {c_name('v', column)} = "
                    "8 * (x >> 2) + 2 * (int)(lane % 4u) + (x & 1);"
                )
                _stores(role, step, _Lanes(row, column, block))


def _over_vector(role: Role, step: Exec, element: Element) -> None:
    """A body over row or column vectors alone; lanes that share an element compute it alike."""
    op = step.op
    assert isinstance(op, Map)
    fragment = role.fragments[element.buffer.name]
    axis = _axis(element.indices[0], op)
    if len(op.axes) != 1 or dict(op.axes)[axis] != element.buffer.shape[0]:
        raise ScheduleError(f"{op.id}: runs over part of '{element.buffer.name}'")
    if any(not store.buffer.scope.private for store in op.stores):
        raise ScheduleError(f"{op.id}: stores a fragment vector outside fragments")
    rows = fragment.shape == Shape.ROWS
    role.out.line("#pragma unroll")
    with role.out.block(f"for (int x = 0; x < {fragment.registers}; ++x)"):
        if rows:
            place = f"{_first_row(role, fragment, 0)} + 64 * (x >> 1) + 8 * (x & 1)"
        else:
            place = "8 * (x >> 1) + 2 * (int)(lane % 4u) + (x & 1)"
        role.out.line(f"const int {c_name('v', axis)} = {place};")
        _stores(role, step, _Lanes(axis if rows else "", "" if rows else axis, -1))


def _over_threads(role: Role, step: Exec) -> None:
    op = step.op
    assert isinstance(op, Map)
    count = fixed(product(extent for _, extent in op.axes), f"the extent of {op.id}")
    with role.out.block(f"for (int i = (int)thread; i < {count}; i += {role.threads})"):
        rest = "i"
        for position, (name, extent) in enumerate(reversed(op.axes)):
            last = position == len(op.axes) - 1
            digit = rest if last else f"{rest} % {fixed(extent, name)}"
            role.out.line(f"const int {c_name('v', name)} = {digit};")
            rest = f"({rest} / {fixed(extent, name)})"
        _stores(role, step, _Lanes())


def _stores(role: Role, step: Exec, lanes: _Lanes) -> None:
    op = step.op
    assert isinstance(op, Map)
    scalars = _axes_scalars(role, op)
    values = _values(role, step.uses, scalars, lanes)
    for store, guard in zip(op.stores, op.guards, strict=True):
        if store.atomic:
            raise ScheduleError(f"{op.id}: the cuda backend has no atomic stores")
        conditions = [] if guard == TRUE else [scalars.cond(guard)]
        place = _place(role, step.uses, scalars, lanes, store.buffer, store.indices)
        if store.buffer.scope == Scope.GLOBAL:
            conditions += _inside(scalars, store.buffer, store.indices)
        statement = f"{place} = {values.stored(store.value, store.buffer.dtype)};"
        test = " && ".join(conditions)
        role.out.line(f"if ({test}) {statement}" if test else statement)


def _inside(scalars: Scalars, buffer: Buffer, indices: tuple[Expr, ...]) -> list[str]:
    cond = all_of(
        *(
            all_of(compare("<=", 0, index), compare("<", index, size))
            for index, size in zip(indices, buffer.shape, strict=True)
        )
    )
    text = scalars.cond(cond)
    return [] if text == "true" else [text]


def _values(role: Role, uses: tuple[Use, ...], scalars: Scalars, lanes: _Lanes) -> Values:
    def load(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        text = widened_text(_place(role, uses, scalars, lanes, buffer, indices), buffer.dtype)
        if buffer.scope != Scope.GLOBAL:
            return text
        inside = _inside(scalars, buffer, indices)
        kind = compute_type(compute_dtype(Element(buffer, indices)))
        return f"({inside[0]} ? {text} : ({kind})0)" if inside else text

    return Values(scalars, load)


def _place(
    role: Role,
    uses: tuple[Use, ...],
    scalars: Scalars,
    lanes: _Lanes,
    buffer: Buffer,
    indices: tuple[Expr, ...],
) -> str:
    """One element as an lvalue."""
    fragment = role.fragments.get(buffer.name)
    if fragment is not None:
        return _register(fragment, lanes, indices)
    linear: Expr = const(0)
    for axis, index in enumerate(indices):
        linear = linear + index * product(buffer.shape[axis + 1 :])
    if buffer.scope == Scope.GLOBAL:
        wide = " + ".join(
            f"(long long){scalars.expr(index)} * {fixed(buffer.strides[axis], buffer.name)}ll"
            for axis, index in enumerate(indices)
            if index != Const(0)
        )
        return f"{c_name('t', buffer.name)}[{wide or '0'}]"
    layout = role.tile(buffer)
    row: Expr = const(0)
    for axis, index in enumerate(indices[:-1]):
        row = row + index * product(buffer.shape[axis + 1 : -1])
    byte = scalars.expr(indices[-1] * layout.element_bytes) if indices else "0"
    at = f"tile_at<{tile_template(layout)}>({scalars.expr(row)}, {byte})"
    return f"*({stored_type(buffer.dtype)}*)(smem + {role.slot_offset(buffer, uses)} + {at})"


def _register(fragment: Fragment, lanes: _Lanes, indices: tuple[Expr, ...]) -> str:
    names = tuple(index.name if isinstance(index, Var) else "" for index in indices)
    wanted = {
        Shape.MATRIX: (lanes.row, lanes.column),
        Shape.ROWS: (lanes.row,),
        Shape.COLUMNS: (lanes.column,),
    }[fragment.shape]
    if names != wanted or "" in names:
        raise ScheduleError(
            f"'{fragment.buffer.name}' is indexed by {', '.join(map(str, indices))}; a fragment "
            "is indexed by the loop variables of its rows and columns"
        )
    if fragment.matrix or lanes.block < 0:
        return f"{fragment.array(max(lanes.block, 0))}[x]"
    if fragment.shape == Shape.ROWS:
        return f"{fragment.array(0)}[{2 * lanes.block} + (x >> 1 & 1)]"
    return f"{fragment.array(0)}[2 * (x >> 2) + (x & 1)]"


def reduce(role: Role, step: Exec) -> None:
    """A matrix fragment reduced along its rows, into a vector beside it."""
    op = step.op
    assert isinstance(op, Reduce)
    source, target = role.fragments.get(op.src.buffer.name), role.fragments.get(op.dst.buffer.name)
    fits = source is not None and source.matrix and target is not None
    if not fits or op.axis != 1 or target is None or target.shape != Shape.ROWS or source is None:
        raise ScheduleError(f"{op.id}: only the columns of a matrix fragment are reduced")
    combine = {"max": "most({a}, {b})", "min": "least({a}, {b})", "sum": "{a} + {b}"}
    rule = combine.get("max" if op.kind == "absmax" else op.kind, "")
    for block in range(source.blocks):
        for half in range(2):
            with role.out.block():
                _reduce_row(role, op, source, target, rule, block, half)


def _reduce_row(
    role: Role, op: Reduce, source: Fragment, target: Fragment, rule: str, block: int, half: int
) -> None:
    kind = compute_type(compute_dtype(Element(source.buffer, ())))

    def read(register: str) -> str:
        text = widened_text(register, source.buffer.dtype)
        return f"abs({text})" if op.kind == "absmax" else text

    array = source.array(block)
    role.out.line(f"{kind} a = {read(f'{array}[{2 * half}]')};")
    role.out.line("#pragma unroll")
    with role.out.block(f"for (int x = 1; x < {source.columns // 4}; ++x)"):
        register = f"{array}[4 * (x >> 1) + {2 * half} + (x & 1)]"
        role.out.line(f"a = {rule.format(a='a', b=read(register))};")
    for distance in (1, 2):
        role.out.line(
            f"a = {rule.format(a='a', b=f'__shfl_xor_sync(0xffffffffu, a, {distance})')};"
        )
    place = f"{target.array(0)}[{2 * block + half}]"
    if not op.clear:
        role.out.line(f"a = {rule.format(a=widened_text(place, target.buffer.dtype), b='a')};")
    kind_of = compute_dtype(Element(source.buffer, ()))
    role.out.line(f"{place} = {stored_text('a', kind_of, target.buffer.dtype)};")


def _first_row(role: Role, fragment: Fragment, block: int) -> str:
    first = BLOCK_ROWS * block
    lead = f"{role.group} * {fragment.group_rows} + " if fragment.groups > 1 else ""
    return f"({lead}{first} + (int)(warp % 4u * 16u + lane / 4u))"
