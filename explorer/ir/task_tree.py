"""A kernel as a tree of tasks: what a pipe machine schedules.

Conditions are not nodes: a task or a loop carries the guards around it. A group is its statements.

Invariant: nodes keep program order; every op of the kernel is one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from attrs import frozen

from explorer.errors import KernelError
from explorer.expr import Cond
from explorer.ir.access import Access, access
from explorer.ir.nodes import Group, If, Kernel, Loop, Op, Stmt, While


@frozen
class TaskNode:
    """One op, the guards around it outermost first, and the loops around it."""

    op: Op
    guards: tuple[Cond, ...]
    loops: tuple[Loop, ...]

    @property
    def id(self) -> str:
        """The op's id."""
        return self.op.id

    @property
    def access(self) -> Access:
        """What it reads and writes."""
        return access(self.op)


@frozen
class LoopNode:
    """One loop and the nodes of its body."""

    loop: Loop
    guards: tuple[Cond, ...]
    loops: tuple[Loop, ...]
    children: tuple[PipeNode, ...]

    @property
    def id(self) -> str:
        """The loop's id."""
        return self.loop.id


PipeNode: TypeAlias = TaskNode | LoopNode


def task_tree(kernel: Kernel) -> tuple[PipeNode, ...]:
    """The outermost nodes of a kernel; KernelError for a while loop."""
    return tuple(_nodes(kernel.body, (), ()))


def _nodes(
    body: tuple[Stmt, ...], guards: tuple[Cond, ...], loops: tuple[Loop, ...]
) -> Iterator[PipeNode]:
    for statement in body:
        match statement:
            case If(_, cond, inner):
                yield from _nodes(inner, (*guards, cond), loops)
            case Group(_, inner):
                yield from _nodes(inner, guards, loops)
            case Loop():
                inside = (*loops, statement)
                children = tuple(_nodes(statement.body, guards, inside))
                yield LoopNode(statement, guards, loops, children)
            case While(name):
                raise KernelError(
                    f"line {statement.line}: '{name}' is a while loop; a pipe machine needs loops "
                    "with a trip count: use T.serial"
                )
            case _:
                yield TaskNode(statement, guards, loops)


def tasks(nodes: tuple[PipeNode, ...]) -> Iterator[TaskNode]:
    """Every task of a forest in program order."""
    for node in nodes:
        if isinstance(node, TaskNode):
            yield node
        else:
            yield from tasks(node.children)


def loop_nodes(nodes: tuple[PipeNode, ...]) -> Iterator[LoopNode]:
    """Every loop of a forest, outer before inner."""
    for node in nodes:
        if isinstance(node, LoopNode):
            yield node
            yield from loop_nodes(node.children)
