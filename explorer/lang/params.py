"""The open Params of a kernel, in the order in which its text uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from attrs import evolve

from explorer.expr import (
    Binary,
    Compare,
    Cond,
    Expr,
    Logic,
    Not,
    Param,
    Select,
)
from explorer.ir.nodes import (
    Copy,
    Define,
    Fill,
    Gemm,
    If,
    Kernel,
    Loop,
    Map,
    Reduce,
    Region,
    Stmt,
    While,
    walk,
)
from explorer.ir.values import value_exprs

K = TypeVar("K", bound=Kernel)


def kernel_params(kernel: K) -> K:
    """The kernel with its `params` set to the Params that occur in it."""
    found: dict[str, None] = {}
    for node in _nodes(kernel):
        for name in _params(node):
            found.setdefault(name)
    return evolve(kernel, params=tuple(found))


def _params(node: Expr | Cond) -> Iterator[str]:
    match node:
        case Param(name):
            yield name
        case Binary(_, lhs, rhs) | Compare(_, lhs, rhs):
            yield from _params(lhs)
            yield from _params(rhs)
        case Select(cond, then, otherwise):
            for part in (cond, then, otherwise):
                yield from _params(part)
        case Not(operand):
            yield from _params(operand)
        case Logic(_, operands):
            for operand in operands:
                yield from _params(operand)


def _nodes(kernel: Kernel) -> Iterator[Expr | Cond]:
    for tensor in kernel.tensors:
        yield from tensor.shape
    for _, extent in kernel.grid:
        yield extent
    yield kernel.threads
    for buffer in kernel.buffers:
        yield from buffer.shape
    for pool in kernel.pools:
        yield pool.size
        yield from (place.offset for place in pool.places)
    for statement, _ in walk(kernel.body):
        yield from _statement(statement)


def _region(region: Region) -> Iterator[Expr]:
    yield from region.start
    yield from region.extent


def _statement(statement: Stmt) -> Iterator[Expr | Cond]:
    match statement:
        case Copy(_, src, dst):
            yield from (*_region(src), *_region(dst))
        case Gemm(_, a, b, c, _, _, clear):
            yield from (*_region(a), *_region(b), *_region(c))
            yield clear
        case Fill(_, dst, value):
            yield from (*_region(dst), *value_exprs(value))
        case Reduce(_, _, src, dst):
            yield from (*_region(src), *_region(dst))
        case Map(_, axes, stores, guards):
            yield from (extent for _, extent in axes)
            for store in stores:
                yield from (*store.indices, *value_exprs(store.value))
            yield from guards
        case Define(_, _, value):
            yield from value_exprs(value)
        case Loop(_, _, start, extent):
            yield from (start, extent)
        case If(_, cond) | While(_, cond):
            yield cond
