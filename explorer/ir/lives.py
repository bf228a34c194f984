"""When the value of a buffer is held, in the order in which a kernel states its ops.

Invariant: outside its life a buffer may lose its value without any output changing, as long as
the ops run in the kernel's order. A life is one interval of op numbers; inside a loop it is that
of every single iteration only where each iteration first writes the whole buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from explorer.expr import TRUE, Const, Expr, Var
from explorer.ir.access import access
from explorer.ir.nodes import Block, If, Kernel, Loop, Map, Op, While, walk, whole
from explorer.machine import Scope


@frozen
class Life:
    """The numbers of the first and the last op between which a value is held."""

    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both values are held at once."""
        return self.first <= other.last and other.first <= self.last


@frozen
class _Touch:
    number: int
    op: Op
    blocks: tuple[Block, ...]


def lives(kernel: Kernel) -> dict[str, Life]:
    """The life of every buffer on the chip that an op touches, itself or through a view."""
    touches: dict[str, list[_Touch]] = {}
    extents: dict[str, list[int]] = {}
    number = 0
    for statement, blocks in walk(kernel.body):
        if isinstance(statement, Block):
            continue
        for block in blocks:
            extents.setdefault(block.id, []).append(number)
        found = access(statement)
        names = {region.buffer.home for region in (*found.reads, *found.writes)}
        for name in names:
            touches.setdefault(name, []).append(_Touch(number, statement, blocks))
        number += 1
    loops = {name: Life(numbers[0], numbers[-1]) for name, numbers in extents.items()}
    return {
        buffer.name: _life(buffer.name, touches[buffer.name], loops)
        for buffer in kernel.buffers
        if buffer.scope != Scope.GLOBAL and buffer.name in touches
    }


def _life(buffer: str, touches: list[_Touch], loops: dict[str, Life]) -> Life:
    first, last = touches[0].number, touches[-1].number
    for loop in _loops(touches):
        inside = [touch for touch in touches if loop in touch.blocks]
        if len(inside) == len(touches) and _rewritten(buffer, inside[0], loop):
            continue
        first, last = min(first, loops[loop.id].first), max(last, loops[loop.id].last)
    return Life(first, last)


def _loops(touches: list[_Touch]) -> Iterator[Loop | While]:
    """The loops around any of the touches, each once."""
    found = {
        block.id: block
        for touch in touches
        for block in touch.blocks
        if isinstance(block, Loop | While)
    }
    return iter(found.values())


def _rewritten(buffer: str, touch: _Touch, loop: Loop | While) -> bool:
    """Whether the first touch in a loop's body writes all of the buffer in every iteration."""
    inner = touch.blocks[touch.blocks.index(loop) + 1 :]
    return all(_always_runs(block) for block in inner) and _writes_all(touch.op, buffer)


def _always_runs(block: Block) -> bool:
    if isinstance(block, Loop):
        return isinstance(block.extent, Const) and block.extent.value > 0
    return not isinstance(block, If | While)


def _writes_all(op: Op, buffer: str) -> bool:
    found = access(op)
    if any(region.buffer.home == buffer for region in found.reads):
        return False
    if isinstance(op, Map):
        return any(
            store.buffer.home == buffer
            and guard == TRUE
            and _each_element(store.indices, store.buffer.shape, dict(op.axes))
            for store, guard in zip(op.stores, op.guards, strict=True)
        )
    return any(
        (region.start, region.extent) == (whole(region.buffer).start, region.buffer.shape)
        for region in found.writes
        if region.buffer.home == buffer
    )


def _each_element(
    indices: tuple[Expr, ...], shape: tuple[Expr, ...], axes: Mapping[str, Expr]
) -> bool:
    """Whether every index is an axis of its own that runs over the whole dimension."""
    names = [index.name for index in indices if isinstance(index, Var)]
    return len(set(names)) == len(shape) and all(
        axes.get(name) == extent for name, extent in zip(names, shape, strict=True)
    )
