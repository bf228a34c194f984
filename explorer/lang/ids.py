"""Statement ids: those that the author gave, and readable defaults for all others.

Invariant: ids are unique in a kernel, and depend on its statements and their order alone.
"""

from __future__ import annotations

from collections import Counter

from attrs import evolve

from explorer.errors import KernelError
from explorer.ir.nodes import (
    Copy,
    Define,
    Fill,
    Gemm,
    Group,
    If,
    Loop,
    Map,
    Reduce,
    Stmt,
    While,
    walk,
)


def default_id(statement: Stmt) -> str:
    """The id of a statement whose author gave none, before numbering."""
    match statement:
        case Loop():
            return statement.var
        case If():
            return "if"
        case While():
            return "while"
        case Group():
            return "group"
        case Copy():
            return f"copy_{statement.dst.buffer.name}"
        case Gemm():
            return f"gemm_{statement.c.buffer.name}"
        case Fill():
            return f"fill_{statement.dst.buffer.name}"
        case Reduce():
            return f"reduce_{statement.dst.buffer.name}"
        case Map():
            return f"map_{statement.stores[0].buffer.name}"
        case Define():
            return statement.name


def assign_ids(body: tuple[Stmt, ...], file: str) -> tuple[Stmt, ...]:
    """The statements with an id each; KernelError for one that the author gave twice."""
    given = [(s.id, s.line) for s, _ in walk(body) if s.id]
    counts = Counter(name for name, _ in given)
    for name, line in reversed(given):
        if counts[name] > 1:
            raise KernelError(
                f"{file}:{line}: the op id '{name}' names two statements: rename one"
            )
    return _assign(body, set(counts))


def _assign(body: tuple[Stmt, ...], taken: set[str]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for statement in body:
        name = statement.id
        if not name:
            stem = name = default_id(statement)
            count = 2
            while name in taken:
                name, count = f"{stem}_{count}", count + 1
            taken.add(name)
        if isinstance(statement, Loop | If | While | Group):
            result.append(evolve(statement, id=name, body=_assign(statement.body, taken)))
        else:
            result.append(evolve(statement, id=name))
    return tuple(result)
