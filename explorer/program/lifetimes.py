"""When the buffers of a program hold values: from which op of a tile to which other one.

Invariant: a buffer that is not named holds none; one that a loop touches is held from the first
op of the loop that touches it to the last, whatever happens between.
"""

from __future__ import annotations

from explorer.ir.access import access
from explorer.memory.placement import Lifetime
from explorer.program.handover import loop
from explorer.program.nodes import Program
from explorer.program.steps import every_step, executed


def lifetimes(program: Program) -> dict[str, Lifetime]:
    """From which op of a tile to which other one each buffer holds a value.

    In a loop a buffer is held from its first to its last op, since the next iteration writes some
    version while another one is read.
    """
    order = op_order(program)
    number = {name: place for place, name in enumerate(order)}
    found: dict[str, set[int]] = {}
    for role in program.roles:
        for step in role.body:
            inside = list(executed((step,)))
            touched = {name for each in inside for name in access(each.op).names}
            looped = any(loop(each) for each in every_step((step,)))
            for name in touched:
                found.setdefault(name, set()).update(
                    number[each.op.id]
                    for each in inside
                    if looped or name in access(each.op).names
                )
    return {
        name: Lifetime(min(at), max(at), order[min(at)], order[max(at)])
        for name, at in found.items()
    }


def op_order(program: Program) -> tuple[str, ...]:
    """All ops in an order that every role keeps and in which data is written before it is read,
    as far as the roles agree on one."""
    later: dict[str, set[str]] = {}
    writer: dict[str, str] = {}
    for role in program.roles:
        ids = list(dict.fromkeys(step.op.id for step in executed(role.body)))
        for place, one in enumerate(ids):
            later.setdefault(one, set()).update(ids[place + 1 : place + 2])
        for step in executed(role.body):
            for region in access(step.op).writes:
                writer.setdefault(region.buffer.name, step.op.id)
    names = {ring.buffer.name for ring in program.rings}
    for role in program.roles:
        for step in executed(role.body):
            for region in access(step.op).reads:
                write = writer.get(region.buffer.name, step.op.id)
                if region.buffer.name in names and not _leads(later, step.op.id, write):
                    later[write].add(step.op.id)
    return _sorted(later)


def _leads(later: dict[str, set[str]], first: str, second: str) -> bool:
    """Whether one op comes before another one, or is that one."""
    seen, front = {first}, [first]
    while front:
        for name in later[front.pop()] - seen:
            seen.add(name)
            front.append(name)
    return second in seen


def _sorted(later: dict[str, set[str]]) -> tuple[str, ...]:
    """A topological order, of several the one nearest to that of the keys; where roles differ in
    their order, that of the first one."""
    waiting = dict.fromkeys(later, 0)
    for name in (name for names in later.values() for name in names):
        waiting[name] += 1
    order: list[str] = []
    while waiting:
        name = next((each for each, count in waiting.items() if not count), next(iter(waiting)))
        del waiting[name]
        order.append(name)
        for follower in later[name] & waiting.keys():
            waiting[follower] -= 1
    return tuple(order)
