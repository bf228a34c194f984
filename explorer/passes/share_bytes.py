"""Pass over a finished program: its buffers get their places, and roles meet where bytes change
hands.

A placement orders the roles among each other; within a role of many threads all of them must be
done with one buffer before the first touches another in the same bytes, which a RoleSync sees to.

Invariant: the program computes what it did before, and its shared memory is the placement's.
"""

from __future__ import annotations

from attrs import evolve

from explorer.machine import Machine
from explorer.memory.placement import Placement
from explorer.passes.sync_warps import Sharers, Syncer, read_names
from explorer.program.arrange import packed_in_order, placement_of
from explorer.program.nodes import Program, RoleProgram
from explorer.program.requests import requests_of


def share_bytes(program: Program, machine: Machine, placement: Placement | None = None) -> Program:
    """The program at a placement of its own; the solver's where none is given."""
    chosen = placement or _placed(program, machine)
    names = [ring.buffer.name for ring in program.rings]
    sharers = {name: chosen.sharers(name) for name in names if chosen.sharers(name)}
    roles = tuple(_met(program, role, sharers) for role in program.roles)
    return evolve(program, roles=roles, placement=chosen)


def _placed(program: Program, machine: Machine) -> Placement:
    """Where the buffers lie; the solver is loaded where it has something to gain."""
    requests = requests_of(program, machine)
    found = placement_of(program, machine, requests, packed_in_order)
    if found is not None:
        return found
    from explorer.constraints.placement import place  # noqa: PLC0415

    return place(program, machine, requests)


def _met(program: Program, role: RoleProgram, sharers: Sharers) -> RoleProgram:
    if not sharers or role.role.warps * program.threads_per_warp == 1:
        return role
    bound = {
        barriers.pipeline: frozenset(
            ring.buffer.name for ring in program.rings if barriers.pipeline in dict(ring.levels)
        )
        for barriers in program.barriers
    }
    workspace = frozenset(buffer.name for buffer in program.workspace)
    read = read_names(role.body) - workspace
    syncer = Syncer(bound, read, sharers, _landed(program, sharers))
    return evolve(role, body=syncer.synced(role.body))


def _landed(program: Program, sharers: Sharers) -> dict[str, frozenset[str]]:
    """What a wait for the full side of a pipeline orders, since the copy that it waits for came
    after every touch of those that share the bytes (`program.handover`)."""
    found: dict[str, frozenset[str]] = {}
    for ring in program.rings:
        if len(ring.levels) == 1 and ring.buffer.name in sharers:
            pipeline = ring.levels[0][0]
            found[pipeline] = found.get(pipeline, frozenset()) | sharers[ring.buffer.name]
    return found


__all__ = ["share_bytes"]
