"""Statements of a kernel as lines of TileLang's language, each with its schedule id.

TileLang 0.1.15 wants an id on every statement that a role runs: tile ops and loops carry it as an
annotation, other forms stand inside `with T.ws_op(id)`.

Invariant: the ids in the text are the ids of the IR.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from attrs import field, frozen

from explorer.errors import KernelError
from explorer.export.text import (
    cond_text,
    element_text,
    expr_text,
    region_text,
    value_text,
    variable,
)
from explorer.expr import FALSE, TRUE, Const
from explorer.ir.nodes import (
    Copy,
    Define,
    Fill,
    Gemm,
    Group,
    If,
    Literal,
    Loop,
    Map,
    Reduce,
    Region,
    Stmt,
    Store,
    While,
    whole,
)
from explorer.schedule.extensions import CopyRoute

INDENT = "    "
POLICY = "policy=T.GemmWarpPolicy.FullRow"
ROUTES: Mapping[CopyRoute, str] = {
    CopyRoute.ASYNC: 'prefer_instruction="cp_async"',
    CopyRoute.ELEMENT: "disable_tma=True",
}
_RANGES = {"serial": "T.serial", "persistent": "T.serial", "unrolled": "T.unroll"}


def quoted(name: str) -> str:
    """A string literal."""
    return json.dumps(name)


@frozen
class StatementPrinter:
    """Prints statements. `routes` gives the copies whose route the schedule fixes.

    `tagged` is false inside a group, whose statements share the group's id.
    """

    routes: Mapping[str, CopyRoute] = field(factory=dict)
    tagged: bool = True

    def lines(self, node: Stmt, indent: str) -> Iterator[str]:
        """The lines of one statement."""
        match node:
            case Copy():
                yield indent + self._copy(node)
            case Gemm():
                yield indent + self._gemm(node)
            case Fill(_, dst, value):
                target = region_text(dst)
                zero = isinstance(value, Literal) and value.value == 0
                start = f"T.clear({target}" if zero else f"T.fill({target}, {value_text(value)}"
                yield f"{indent}{start}{self._id(node.id)})"
            case Reduce() | Define():
                inner = _reduce(node) if isinstance(node, Reduce) else _define(node)
                yield from self._wrapped(node.id, [inner], indent)
            case Map():
                yield from self._map(node, indent)
            case Loop():
                yield f"{indent}for {variable(node.var, 'loop variable')} in {self._range(node)}:"
                yield from self.body(node.body, indent + INDENT)
            case If(_, cond, body):
                yield f"{indent}if {cond_text(cond)}:"
                yield from self.body(body, indent + INDENT)
            case While(_, cond, body):
                inside = list(self.body(body, INDENT))
                yield from self._wrapped(node.id, [f"while {cond_text(cond)}:", *inside], indent)
            case Group(_, body):
                inside = list(StatementPrinter(self.routes, tagged=False).body(body, ""))
                yield from self._wrapped(node.id, inside, indent)

    def body(self, statements: tuple[Stmt, ...], indent: str) -> Iterator[str]:
        """The lines of several statements."""
        for statement in statements:
            yield from self.lines(statement, indent)

    def _id(self, statement_id: str) -> str:
        return f", annotations={{T.WSID: {quoted(statement_id)}}}" if self.tagged else ""

    def _wrapped(self, statement_id: str, inner: list[str], indent: str) -> Iterator[str]:
        if self.tagged:
            yield f"{indent}with T.ws_op({quoted(statement_id)}):"
            indent += INDENT
        yield from (indent + line for line in inner)

    def _copy(self, node: Copy) -> str:
        route = self.routes.get(node.id, CopyRoute.BULK)
        option = f", {ROUTES[route]}" if route in ROUTES else ""
        src = region_text(node.src, short=_gives_shape(node.dst, node.src))
        dst = region_text(node.dst, short=_gives_shape(node.src, node.dst))
        return f"T.copy({src}, {dst}{option}{self._id(node.id)})"

    def _gemm(self, node: Gemm) -> str:
        options = [POLICY]
        if node.transpose_a:
            options.append("transpose_A=True")
        if node.transpose_b:
            options.append("transpose_B=True")
        if node.clear_accum != FALSE:
            options.append(f"clear_accum={cond_text(node.clear_accum)}")
        operands = [region_text(region) for region in (node.a, node.b, node.c)]
        return f"T.gemm({', '.join([*operands, *options])}{self._id(node.id)})"

    def _range(self, node: Loop) -> str:
        start = "" if node.start == Const(0) else f"{expr_text(node.start)}, "
        stop = expr_text(node.start + node.extent)
        if node.kind == "pipelined":
            call = f"T.Pipelined({start}{stop}, num_stages={node.num_stages}"
        else:
            call = f"{_RANGES[node.kind]}({start}{stop}"
        return f"{call}{self._id(node.id)})"

    def _map(self, node: Map, indent: str) -> Iterator[str]:
        names = ", ".join(variable(name, "axis") for name, _ in node.axes)
        extents = ", ".join(expr_text(extent) for _, extent in node.axes)
        yield f"{indent}for {names} in T.Parallel({extents}{self._id(node.id)}):"
        for store, guard in zip(node.stores, node.guards, strict=True):
            inner = indent + INDENT
            if guard != TRUE:
                yield f"{inner}if {cond_text(guard)}:"
                inner += INDENT
            yield inner + _store(store)


def _gives_shape(giver: Region, taker: Region) -> bool:
    """Whether one operand of a copy is a whole buffer of exactly the other's extent."""
    return giver == whole(giver.buffer) and giver.extent == taker.extent and not taker.squeezed


def _store(store: Store) -> str:
    target = element_text(store.buffer, store.indices)
    value = value_text(store.value)
    return f"T.atomic_add({target}, {value})" if store.atomic else f"{target} = {value}"


def _define(node: Define) -> str:
    return f"{variable(node.name, 'scalar')} = {value_text(node.value)}"


def _reduce(node: Reduce) -> str:
    for region in (node.src, node.dst):
        if region != whole(region.buffer):
            raise KernelError(
                f"reduction '{node.id}': TileLang 0.1.15 reduces whole buffers, "
                f"not part of '{region.buffer.name}'"
            )
    operands = f"{region_text(node.src)}, {region_text(node.dst)}"
    call = f"T.reduce_{variable(node.kind, 'reduction')}"
    return f"{call}({operands}, dim={node.axis}, clear={node.clear})"
