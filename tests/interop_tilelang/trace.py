"""One role's control flow, executed on integers, to the sequence of its barrier events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from tilelang import tvm

tirx = tvm.tirx
_LIMIT = 200_000
_BINARY = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "And": lambda a, b: bool(a) and bool(b),
    "Or": lambda a, b: bool(a) or bool(b),
}
_CALLS = {
    "tirx.bitwise_and": lambda a, b: a & b,
    "tirx.bitwise_xor": lambda a, b: a ^ b,
    "tirx.shift_right": lambda a, b: a >> b,
    "tirx.if_then_else": lambda c, a, b: a if c else b,
}
_ARRIVES = ("tirx.ptx_arrive_barrier", "tl.ptx_cp_async_barrier_noinc", "tl.tcgen05_mma_arrive")


@frozen
class Event:
    """A wait, or an arrive, on one slot of one side of a pipeline; `parity` of waits only."""

    kind: str
    pipeline: str
    side: str
    slot: int
    parity: int | None = None


class Unknown(Exception):
    """A value that depends on data, or a statement that is not interpreted."""


class Tracer:
    """Interprets scalars, loops, guards and barrier calls; everything else is skipped.

    A bulk load that arrives by itself is an arrive; one that only counts bytes is no event.
    """

    def __init__(self, barriers: Mapping[Any, tuple[str, str]], values: Mapping[Any, int]) -> None:
        self._barriers = barriers
        self._values: dict[Any, int] = dict(values)
        self._cells: dict[Any, int] = {}
        self._steps = 0
        self.events: list[Event] = []

    def run(self, stmt: Any) -> None:
        self._steps += 1
        if self._steps > _LIMIT:
            raise Unknown("step limit")
        match type(stmt).__name__:
            case "SeqStmt":
                for child in stmt.seq:
                    self.run(child)
            case "AttrStmt":
                self.run(stmt.body)
            case "AllocBuffer":
                if hasattr(stmt, "body"):
                    self.run(stmt.body)
            case "Bind":
                self._bind(self._values, stmt.var, stmt.value)
            case "For":
                self._for(stmt)
            case "While":
                while self.value(stmt.condition):
                    self.run(stmt.body)
            case "IfThenElse":
                if self.value(stmt.condition):
                    self.run(stmt.then_case)
                elif stmt.else_case is not None:
                    self.run(stmt.else_case)
            case "BufferStore":
                if "int" in str(stmt.buffer.dtype):
                    self._bind(self._cells, self._cell(stmt.buffer, stmt.indices), stmt.value)
            case "Evaluate":
                self._call(stmt.value)
            case kind:
                raise Unknown(f"statement {kind}")

    def _for(self, stmt: Any) -> None:
        if stmt.kind == tirx.ForKind.PARALLEL:
            return
        start = self.value(stmt.min)
        for value in range(start, start + self.value(stmt.extent)):
            self._values[stmt.loop_var] = value
            self.run(stmt.body)

    def _bind(self, table: dict[Any, int], key: Any, value: Any) -> None:
        try:
            table[key] = self.value(value)
        except Unknown:
            table.pop(key, None)

    def _call(self, call: Any) -> None:
        if not isinstance(call, tirx.Call):
            return
        if call.op.name == "tl.mbarrier_wait_parity":
            self.events.append(
                Event("wait", *self._barrier(call.args[0]), self.value(call.args[1]))
            )
        elif call.op.name in _ARRIVES:
            self.events.append(Event("arrive", *self._barrier(call.args[0])))
        elif "barrier" in (call.annotations or {}) and int(call.annotations.get("emit_arrive", 0)):
            self.events.append(Event("arrive", *self._barrier(call.annotations["barrier"])))

    def _barrier(self, ref: Any) -> tuple[str, str, int]:
        if isinstance(ref, tirx.BufferLoad):
            data, slot = ref.buffer.data, ref.indices[0]
        else:
            data, slot = ref.args[1], ref.args[2]
        if data not in self._barriers:
            raise Unknown(f"barrier {ref}")
        return (*self._barriers[data], self.value(slot))

    def _cell(self, buffer: Any, indices: Any) -> tuple[Any, ...]:
        return (buffer.data, *(self.value(index) for index in indices))

    def value(self, expr: Any) -> int:
        """The integer that an expression stands for; Unknown where it depends on data."""
        match type(expr).__name__:
            case "int" | "bool" | "IntImm":
                return int(expr)
            case "Var" if expr in self._values:
                return self._values[expr]
            case "BufferLoad":
                cell = self._cell(expr.buffer, expr.indices)
                if cell in self._cells:
                    return self._cells[cell]
            case "Cast":
                return self.value(expr.value)
            case "Not":
                return int(not self.value(expr.a))
            case "Select":
                return self.value(
                    expr.true_value if self.value(expr.condition) else expr.false_value
                )
            case "Call" if expr.op.name in _CALLS:
                return int(_CALLS[expr.op.name](*(self.value(arg) for arg in expr.args)))
            case kind if kind in _BINARY:
                return int(_BINARY[kind](self.value(expr.a), self.value(expr.b)))
        raise Unknown(str(expr))
