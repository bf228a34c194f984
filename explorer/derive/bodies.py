"""Scopes of a plan: what each role does in each loop, and where it synchronizes.

A pipeline stands in the innermost loop around all accesses of its buffers. In that scope the
producer acquires before its first access and commits after its last; the consumer waits and
releases likewise.

Invariant: every op of a role is placed once, in program order, in the scope that directly holds
it; an `if` is no scope, its ops stand in the scope around it.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.derive.partition import Partition
from explorer.expr import Expr, const
from explorer.ir.access import access
from explorer.ir.nodes import Group, If, Kernel, Loop, Op, Stmt, While, ops, walk
from explorer.schedule.plan import PlanEntry, PlanOp, PlanScope, PlanSync
from explorer.schedule.ws import WSScope, WSSyncKind


@frozen
class Ring:
    """A pipeline to be placed: its buffers, its scope, the roles on its sides, its stage.

    A pipeline without buffers is a token, held around the statement `section`.
    """

    name: str
    buffers: tuple[str, ...]
    scope: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    stage: Expr = const(0)
    depth: Expr = const(1)
    section: str = ""


def scope_of(kernel: Kernel, buffers: tuple[str, ...]) -> str:
    """The id of the innermost scope around every access of those buffers."""
    paths = [
        tuple(block.id for block in parents if isinstance(block, Loop | While))
        for statement, parents in walk(kernel.body)
        if not isinstance(statement, Loop | If | While | Group)
        and set(buffers)
        & {r.buffer.name for r in (*access(statement).reads, *access(statement).writes)}
    ]
    common: list[str] = []
    for level in zip(*paths, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return common[-1] if common else WSScope.ROOT


def scopes(kernel: Kernel, partition: Partition, rings: tuple[Ring, ...]) -> tuple[PlanScope, ...]:
    """The root scope and one scope a loop that any role enters, outermost first."""
    found = [_scope(WSScope.ROOT, kernel.body, partition, rings)]
    for statement, _ in walk(kernel.body):
        if isinstance(statement, Loop | While):
            found.append(_scope(statement.id, statement.body, partition, rings))
    return tuple(scope for scope in found if scope.id == WSScope.ROOT or scope.bodies)


def _scope(
    scope_id: str, body: tuple[Stmt, ...], partition: Partition, rings: tuple[Ring, ...]
) -> PlanScope:
    here = tuple(ring for ring in rings if ring.scope == scope_id)
    bodies = []
    for role in partition.roles:
        items = [item for item in _items(body) if _roles(item, partition) & {role}]
        if items:
            bodies.append((role, tuple(_synchronized(items, role, here, partition))))
    return PlanScope(scope_id, tuple(bodies))


def _items(body: tuple[Stmt, ...]) -> Iterator[Op | Loop | While | Group]:
    for statement in body:
        if isinstance(statement, If):
            yield from _items(statement.body)
        else:
            yield statement


def _roles(item: Stmt, partition: Partition) -> set[str]:
    if isinstance(item, Loop | While | Group | If):
        return set().union(*(_roles(child, partition) for child in item.body))
    return set(partition.roles_of(item.id))


def _synchronized(
    items: list[Op | Loop | While | Group],
    role: str,
    rings: tuple[Ring, ...],
    partition: Partition,
) -> Iterator[PlanEntry]:
    before: dict[int, list[PlanEntry]] = {}
    after: dict[int, list[PlanEntry]] = {}
    for ring in rings:
        if role not in (*ring.producers, *ring.consumers):
            continue
        mine = [
            item.id == ring.section or _touches(item, set(ring.buffers), role, partition)
            for item in items
        ]
        touching = [k for k, touches in enumerate(mine) if touches]
        opens, closes = (
            (WSSyncKind.PRODUCER_ACQUIRE, WSSyncKind.PRODUCER_COMMIT)
            if role in ring.producers
            else (WSSyncKind.CONSUMER_WAIT, WSSyncKind.CONSUMER_RELEASE)
        )
        # Only the producer runs ahead: an op that reads two rings needs both at one stage.
        stage = ring.stage if role in ring.producers else const(0)
        before.setdefault(touching[0], []).append(PlanSync(opens, ring.name, stage))
        after.setdefault(touching[-1], []).append(PlanSync(closes, ring.name, stage))
    for k, item in enumerate(items):
        yield from before.get(k, ())
        yield PlanOp(item.id)
        yield from after.get(k, ())


def _touches(item: Stmt, buffers: set[str], role: str, partition: Partition) -> bool:
    """Whether the ops of a role in a statement touch any of the buffers."""
    return any(
        region.buffer.name in buffers
        for op in ops((item,))
        if role in partition.roles_of(op.id)
        for region in (*access(op).reads, *access(op).writes)
    )
