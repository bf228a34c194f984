"""Pipes and predicted cycles of tile ops on ascend950.

Figures are those of tilelang 0.1.15's latency model (`estimate_latency`): completion overheads in
cycles, bandwidths in bytes per cycle, throughputs in operations per cycle. Copies between global
memory and the unified buffer carry the payload of both vector cores.

Invariant: every op has at least one pipe, a latency and an interval of at least one cycle; they
are predictions, never measurements.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.derive.ranges import constant
from explorer.errors import KernelError
from explorer.expr import product
from explorer.ir.access import access
from explorer.ir.nodes import (
    Arith,
    Cast,
    Copy,
    Define,
    Fill,
    Gemm,
    Map,
    Op,
    Reduce,
    Region,
    Unary,
    Value,
    Where,
)
from explorer.machine import Pipe, Scope

_GLOBAL, _UB, _L1 = Scope.GLOBAL, Scope.SHARED, Scope.L1


@frozen
class Route:
    """A path of a copy: its pipe, completion overhead, bandwidth, least interval, payload factor,
    and the memory ports that it shares with others."""

    pipe: Pipe
    base_cycles: int
    bytes_per_cycle: int
    least_cycles: int = 1
    cores: int = 1
    ports: tuple[str, ...] = ()


ROUTES: dict[tuple[Scope, Scope], Route] = {
    (_GLOBAL, _UB): Route(Pipe.MTE2, 90, 100, 13, 2, ("hbm.aiv",)),
    (_UB, _GLOBAL): Route(Pipe.MTE3, 180, 115, 10, 2, ("hbm.aiv", "hbm.store")),
    (_UB, _L1): Route(Pipe.MTE3, 43, 256, 1, 2),
    (_GLOBAL, _L1): Route(Pipe.MTE2, 190, 100, 64, 1, ("hbm.aic",)),
    (_L1, Scope.L0A): Route(Pipe.MTE1, 5, 256, 3),
    (_L1, Scope.L0B): Route(Pipe.MTE1, 5, 256, 3),
    (Scope.L0C, _UB): Route(Pipe.FIXPIPE, 58, 128, 2),
    (Scope.L0C, _GLOBAL): Route(Pipe.FIXPIPE, 200, 128, 2, 1, ("hbm.aic", "hbm.store")),
}
_CUBE = {"float16": 8192, "bfloat16": 8192, "float32": 512}
_CUBE_WIDE, _CUBE_BASE, _CUBE_FLOAT32_BASE = 16384, 8, 67
_LANES = {"/": 13, "%": 13, "//": 13}
_LANE, _SPECIAL = 51, 8
_UB_BYTES_PER_CYCLE = 256


@frozen
class OpCost:
    """What one op occupies, and for how long."""

    pipes: tuple[Pipe, ...]
    latency: int
    interval: int
    ports: tuple[str, ...] = ()


def op_cost(op: Op) -> OpCost:
    """The pipes and cycles of a concrete op; KernelError for a copy that no pipe carries."""
    match op:
        case Copy(_, src, dst):
            return _copy(op, src, dst)
        case Gemm():
            return _gemm(op)
        case Define():
            return OpCost((Pipe.SCALAR,), 1, 1)
        case Fill(_, dst, _) if dst.buffer.scope == _L1:
            cycles = max(1, _bytes(dst) // 100)
            return OpCost((Pipe.MTE2,), cycles, cycles)
        case Fill() | Reduce() | Map():
            cycles = max(1, -(-_operations(op) // 1) + _traffic(op) // _UB_BYTES_PER_CYCLE)
            return OpCost((Pipe.VECTOR,), cycles, cycles)


def _copy(op: Copy, src: Region, dst: Region) -> OpCost:
    scopes = (src.buffer.scope, dst.buffer.scope)
    if scopes[0] == scopes[1] == _UB:
        cycles = max(1, 2 * _bytes(src) // _UB_BYTES_PER_CYCLE)
        return OpCost((Pipe.VECTOR,), cycles, cycles)
    route = ROUTES.get(scopes)
    if route is None:
        raise KernelError(
            f"line {op.line}: no pipe of ascend950 copies from {scopes[0]} to {scopes[1]} "
            f"('{op.id}'): go through shared, shared.l1 or an L0 buffer"
        )
    moved = max(_bytes(src), _bytes(dst)) * route.cores
    busy = -(-moved // route.bytes_per_cycle)
    interval = max(route.least_cycles, busy)
    return OpCost((route.pipe,), route.base_cycles + busy, interval, route.ports)


def _gemm(op: Gemm) -> OpCost:
    m, n = (constant(extent, 16) for extent in op.c.shape)
    k = constant(op.a.shape[0] if op.transpose_a else op.a.shape[1], 16)
    element = op.a.buffer.dtype
    rate = _CUBE.get(element.name, _CUBE_WIDE)
    work = 2 * _aligned(m, 16) * _aligned(n, 16) * _aligned(k, 256 // element.bits or 1)
    busy = max(1, -(-work // rate))
    base = _CUBE_FLOAT32_BASE if element.name == "float32" else _CUBE_BASE
    if op.a.buffer.scope == Scope.L0A and op.b.buffer.scope == Scope.L0B:
        return OpCost((Pipe.CUBE,), base + busy, busy)
    load = -(-(_bytes(op.a) + _bytes(op.b)) // 256)
    return OpCost((Pipe.MTE1, Pipe.CUBE), base + busy + load, max(busy, load))


def _aligned(extent: int, group: int) -> int:
    return -(-extent // group) * group


def _bytes(region: Region) -> int:
    elements = constant(product(region.extent), 1)
    return -(-elements * region.buffer.dtype.bits // 8)


def _traffic(op: Op) -> int:
    touched = access(op)
    regions = (*touched.reads, *touched.writes)
    return sum(_bytes(region) for region in regions if not region.buffer.scope.private)


def _operations(op: Op) -> int:
    """Cycles of the arithmetic of a vector op."""
    if isinstance(op, Map):
        lanes = constant(product(extent for _, extent in op.axes), 1)
        rates = [rate for store in op.stores for rate in _rates(store.value)]
        return sum(-(-lanes // rate) for rate in rates)
    if isinstance(op, Reduce):
        return -(-constant(product(op.src.extent), 1) // _LANE)
    return 1


def _rates(value: Value) -> Iterator[int]:
    match value:
        case Unary(name, operand):
            yield _LANE if name in ("neg", "abs", "not") else _SPECIAL
            yield from _rates(operand)
        case Arith(name, lhs, rhs):
            yield _LANES.get(name, _LANE)
            yield from _rates(lhs)
            yield from _rates(rhs)
        case Where(cond, then, otherwise):
            yield _LANE
            for part in (cond, then, otherwise):
                yield from _rates(part)
        case Cast(_, operand):
            yield _LANE
            yield from _rates(operand)
