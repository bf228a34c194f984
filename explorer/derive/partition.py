"""Who may run what: role partitions of a plain kernel.

Ops fall into four duties: *load* moves global data into shared memory; *transform* prepares shared
operands from it (dequantisation, say) with what only that needs; *store* moves shared results to
global memory; everything else is *compute*. A partition gives each duty to a role of its own or
leaves it with compute, may split compute by rows between two roles, or let two roles compute
whole tiles in turn.

Invariant: integer scalars are defined by every role; nothing else runs twice except the ops of
roles that split rows or take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from attrs import evolve, frozen

from explorer.ir.access import access, is_bulk_load
from explorer.ir.nodes import Copy, Define, Gemm, Kernel, Loop, Op, While, ops, walk
from explorer.machine import Machine, Scope


class Duty(StrEnum):
    """What an op is for."""

    LOAD = "load"
    TRANSFORM = "transform"
    COMPUTE = "compute"
    STORE = "store"


@frozen
class Partition:
    """Roles in warp order, the roles of every op, and the roles that split rows or take turns."""

    roles: tuple[str, ...]
    placement: tuple[tuple[str, tuple[str, ...]], ...]
    split: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The roles by name, those that take turns joined by a slash."""
        apart = [role for role in self.roles if role not in self.turns]
        return "+".join([*apart, *(("/".join(self.turns),) if self.turns else ())])

    def roles_of(self, op: str) -> tuple[str, ...]:
        """The roles that run an op."""
        return next((roles for name, roles in self.placement if name == op), ())


# The role that a duty of its own gets. Roles that only move data come first.
_ROLE_OF = {Duty.LOAD: "producer", Duty.TRANSFORM: "transformer", Duty.STORE: "storer"}
MOVERS = (_ROLE_OF[Duty.LOAD], _ROLE_OF[Duty.STORE])
PAIR = ("consumer_0", "consumer_1")


def partitions(kernel: Kernel, machine: Machine) -> Iterator[Partition]:
    """The role partitions of a kernel on a machine, simplest first."""
    duties = duties_of(kernel)
    present = set(duties.values())
    yield _place(kernel, duties, (), ("worker",))
    if Duty.LOAD not in present:
        return
    has_gemm = any(isinstance(op, Gemm) for op in ops(kernel.body))  # its rows are independent
    splits = (("consumer",), PAIR)
    for apart in _apart(present):
        for consumers in splits if has_gemm else splits[:1]:
            yield _place(kernel, duties, apart, consumers)
    # Turns pay where one role's epilogue runs beside the matrix ops of another.
    in_turn = evolve(_place(kernel, duties, (Duty.LOAD,), PAIR), split=(), turns=PAIR)
    if machine.async_matrix and main_loop(kernel, in_turn) is not None:
        yield in_turn


def main_loop(kernel: Kernel, partition: Partition) -> Loop | None:
    """The loop that roles which take turns over tiles run one at a time: the root's only loop
    with a gemm, its trip count known ahead; None where the kernel has no such loop.

    All shared data in it is handed over. Behind it the roles may share what they stage.
    """
    loops = [s for s in kernel.body if any(isinstance(op, Gemm) for op in ops((s,)))]
    loop = loops[0] if len(loops) == 1 else None
    if not isinstance(loop, Loop):
        return None
    inside = list(ops((loop,)))
    nested = any(isinstance(s, Loop | While) for s, _ in walk(loop.body))
    scalars = any(isinstance(op, Define) for op in ops(kernel.body))
    if nested or scalars or sum(isinstance(op, Gemm) for op in inside) > 1:
        return None
    handed = handed_over(kernel, partition)
    shared = {
        region.buffer.name
        for op in inside
        for found in (access(op),)
        for region in (*found.reads, *found.writes)
        if _shared(region.buffer.scope)
    }
    return loop if shared <= set(handed) else None


def _apart(present: set[Duty]) -> Iterator[tuple[Duty, ...]]:
    """Duties with roles of their own: loads always, transforms and stores where there are any."""
    yield (Duty.LOAD,)
    if Duty.TRANSFORM in present:
        yield (Duty.LOAD, Duty.TRANSFORM)
    if Duty.STORE in present:
        yield (Duty.LOAD, Duty.STORE)


def duties_of(kernel: Kernel) -> dict[str, Duty]:
    """The duty of every op, by id."""
    found = {op.id: _own_duty(op) for op in ops(kernel.body)}
    named = {op.id: op for op in ops(kernel.body)}
    operands = {
        region.buffer.name
        for op in named.values()
        if isinstance(op, Gemm)
        for region in (op.a, op.b)
        if _shared(region.buffer.scope)
    }
    transforming = {
        name
        for name, op in named.items()
        if found[name] == Duty.COMPUTE
        and {region.buffer.name for region in access(op).writes} & operands
    }
    for name in transforming | _feeding(named, transforming):
        found[name] = Duty.TRANSFORM
    return found


def _own_duty(op: Op) -> Duty:
    if is_bulk_load(op):
        return Duty.LOAD
    if isinstance(op, Copy) and _shared(op.src.buffer.scope):
        return Duty.STORE if op.dst.buffer.scope == Scope.GLOBAL else Duty.COMPUTE
    return Duty.COMPUTE


def _shared(scope: Scope) -> bool:
    return not scope.private and scope != Scope.GLOBAL


def _feeding(named: dict[str, Op], targets: set[str]) -> set[str]:
    """Ops whose private results are read by `targets` alone."""
    readers: dict[str, set[str]] = {}
    writers: dict[str, set[str]] = {}
    for name, op in named.items():
        for region in access(op).reads:
            readers.setdefault(region.buffer.name, set()).add(name)
        for region in access(op).writes:
            writers.setdefault(region.buffer.name, set()).add(name)
    found: set[str] = set()
    for buffer, users in readers.items():
        makers = writers.get(buffer, set())
        private = any(
            region.buffer.name == buffer and region.buffer.scope.private
            for maker in makers
            for region in access(named[maker]).writes
        )
        if private and users - makers <= targets and users & targets:
            found |= makers
    return found


def _place(
    kernel: Kernel, duties: dict[str, Duty], apart: tuple[Duty, ...], compute: tuple[str, ...]
) -> Partition:
    movers = tuple(_ROLE_OF[duty] for duty in (Duty.LOAD, Duty.STORE) if duty in apart)
    others = tuple(_ROLE_OF[duty] for duty in apart if duty == Duty.TRANSFORM)
    roles = (*movers, *others, *compute)

    def roles_of(op: Op) -> tuple[str, ...]:
        if isinstance(op, Define):
            return roles
        duty = duties[op.id]
        return (_ROLE_OF[duty],) if duty in apart else compute

    return Partition(
        roles,
        tuple((op.id, roles_of(op)) for op in ops(kernel.body)),
        compute if len(compute) > 1 else (),
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
