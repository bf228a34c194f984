"""Who may run what: role partitions of a plain kernel.

A partition gives every op its roles. The single-role partition runs the kernel as written; a
producer partition gives all global-to-shared copies to one role and the rest to one consumer, or
to several that split the rows.

Invariant: integer scalars are defined by every role that uses them; nothing else runs twice except
the ops of consumers that split rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.ir.access import access, is_bulk_load
from explorer.ir.nodes import Define, Gemm, Kernel, Op, ops
from explorer.machine import Machine, Scope


@frozen
class Partition:
    """Roles in warp order, the roles of every op, and the roles that split rows."""

    roles: tuple[str, ...]
    placement: tuple[tuple[str, tuple[str, ...]], ...]
    split: tuple[str, ...] = ()

    def roles_of(self, op: str) -> tuple[str, ...]:
        """The roles that run an op."""
        return next((roles for name, roles in self.placement if name == op), ())


def partitions(kernel: Kernel, machine: Machine) -> Iterator[Partition]:
    """The role partitions of a kernel on a machine, simplest first."""
    yield _place(kernel, ("worker",), (), ("worker",))
    if any(is_bulk_load(op) for op in ops(kernel.body)):
        yield _place(kernel, ("producer", "consumer"), ("producer",), ("consumer",))
        if rows_split(kernel):
            pair = ("consumer_0", "consumer_1")
            yield _place(kernel, ("producer", *pair), ("producer",), pair)


def rows_split(kernel: Kernel) -> bool:
    """Whether consumers can share the kernel's rows: it has a gemm, whose rows are independent."""
    return any(isinstance(op, Gemm) for op in ops(kernel.body))


def _place(
    kernel: Kernel, roles: tuple[str, ...], loaders: tuple[str, ...], others: tuple[str, ...]
) -> Partition:
    def roles_of(op: Op) -> tuple[str, ...]:
        if isinstance(op, Define):
            return roles
        return loaders if loaders and is_bulk_load(op) else others

    return Partition(
        roles,
        tuple((op.id, roles_of(op)) for op in ops(kernel.body)),
        others if len(others) > 1 else (),
    )


def handed_over(kernel: Kernel, partition: Partition) -> tuple[str, ...]:
    """The on-chip buffers that one role writes and another reads, in order of allocation."""
    writers: dict[str, set[str]] = {}
    readers: dict[str, set[str]] = {}
    for op in ops(kernel.body):
        roles = partition.roles_of(op.id)
        found = access(op)
        for regions, users in ((found.writes, writers), (found.reads, readers)):
            for region in regions:
                users.setdefault(region.buffer.name, set()).update(roles)
    return tuple(
        buffer.name
        for buffer in kernel.buffers
        if not buffer.scope.private
        and buffer.scope != Scope.GLOBAL
        and readers.get(buffer.name, set()) - writers.get(buffer.name, set())
    )
