"""How many blocks a unit holds at a time, and how many tiles one after the other each works on.

Invariant: a unit holds what shared memory and the registers at entry allow, at least one block.
"""

from __future__ import annotations

from attrs import frozen

from explorer.expr import evaluate
from explorer.machine import Machine
from explorer.program.launch import block_count, shared_by, tile_count
from explorer.program.nodes import Program
from explorer.program.shared import layout_of


@frozen
class Residency:
    """`blocks` on a unit at a time; `waves` of tiles follow each other in the place of each."""

    blocks: int
    waves: int


def residency(program: Program, machine: Machine) -> Residency:
    """The residency of a launch."""
    launched = block_count(program)
    blocks = max(1, min(_ceildiv(launched, machine.units), blocks_a_unit(program, machine)))
    running = max(1, min(launched, blocks * machine.units))
    return Residency(blocks, _ceildiv(tile_count(program), running))


def blocks_a_unit(program: Program, machine: Machine) -> int:
    """Blocks that fit on a unit together; the compiler may take all registers that it can, but for
    those of other blocks that the launch counts on."""
    limits = []
    if machine.shared_per_unit_bytes:
        shared = shared_bytes(program, machine) + machine.reserved_bytes
        limits.append(machine.shared_per_unit_bytes // shared)
    if machine.registers is not None:
        file, threads = machine.registers, program.num_warps * program.threads_per_warp
        requested = max(role.role.max_nreg or 0 for role in program.roles)
        sharing = evaluate(shared_by(program.launch.blocks, machine))
        entry = min(file.total // (threads * sharing), requested or file.request_max)
        limits.append(file.total // (threads * entry))
        limits.append(machine.threads_per_unit // threads or 1)
    return max(1, min(limits, default=1))


def shared_bytes(program: Program, machine: Machine) -> int:
    """Shared memory of a block: rings and barriers."""
    return layout_of(program, machine).total_bytes


def _ceildiv(value: int, divisor: int) -> int:
    return -(-value // divisor)
