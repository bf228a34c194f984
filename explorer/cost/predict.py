"""The predicted time of a program: its tiles, one wave after the other.

Of one tile the slowest role counts, its loops no faster than their rings turn; of roles that take
turns, each has the time of all their tiles. A block's range of streamed tiles is two pieces of
half its length, both cut off another block's, of which it is the last to come. Blocks that share a
unit share its engines. What device memory has to deliver bounds the whole.

Spearman's rank correlation with the measured times is 0.85 over the 153 trials of
results/h200/gemm-8192-bfloat16 and 0.96 over the 156 of results/h200/gemm-4096-bfloat16, which
were recorded after the figures were set on earlier runs of the same two problems
(tests/unit/cost). Among those within 30% of the best it is 0.47 and 0.80, and the median
prediction is 11% too long: good enough to leave the slow ones out; which of the others is
fastest, only a measurement says.

Invariant: a prediction is a pure function of program and machine, and never stands where a
measured time is expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve, frozen

from explorer.cost.figures import Figures, NoPrediction, figures_of
from explorer.cost.ops import Cost, op_cost, workspace_cost
from explorer.cost.residency import residency
from explorer.cost.traffic import memory_bytes
from explorer.cost.walk import Walk, ring_period_us
from explorer.expr import ceildiv, evaluate, minimum
from explorer.machine import Machine
from explorer.program.launch import TILE, UNIT, stream_of
from explorer.program.nodes import Exec, Program, RoleProgram, Ticket
from explorer.program.steps import every_step, hands_over
from explorer.program.turns import turns_of


@frozen
class Prediction:
    """A predicted time, and what it is made of; all in microseconds for the whole launch.

    `matrix_us`, `copy_us`: a unit's engines. `tiles_us`: the tiles of one unit, waits included.
    `memory_us`: device memory. `resident_blocks` share a unit; `waves` tiles follow each other.
    """

    predicted_us: float
    tiles_us: float
    matrix_us: float
    copy_us: float
    memory_us: float
    resident_blocks: int
    waves: int


def predict(program: Program, machine: Machine) -> Prediction:
    """The prediction for a program; NoPrediction where its sizes are known at run time only, or
    no figures of the machine are."""
    figures = figures_of(machine.name)
    if program.scalars:
        raise NoPrediction(
            f"no prediction: {', '.join(program.scalars)} is known at run time only"
        )
    # The middle of the grid stands for all tiles: half of a triangle's loops.
    tile = {name: evaluate(extent) // 2 for name, extent in program.grid} | {TILE.name: 0}
    # Of the parts of a tile, the last one to come takes the longest.
    steps = [step for role in program.roles for step in every_step(role.body)]
    tile |= {step.last: 1 for step in steps if isinstance(step, Ticket)}
    found = residency(program, machine)
    running = found.blocks * machine.units
    tiles_us, engines = figures.block_start_us + figures.copy_latency_us, Cost()
    for count, env in _in_turn(program, found.waves, tile):
        roles = role_costs(program, machine, figures, env)
        each = sum(roles, Cost())
        tiles_us += count * max(_alone_us(program, roles, figures), found.blocks * each.engine_us)
        engines = engines + each.times(count)
    whole = {**tile, **_piece(program)}
    memory_us = memory_bytes(program, running, whole) / figures.memory_bytes_per_us
    bound_us = max(tiles_us, memory_us) + figures.memory_share * min(tiles_us, memory_us)
    return Prediction(
        predicted_us=bound_us,
        tiles_us=tiles_us,
        matrix_us=found.blocks * engines.matrix_us,
        copy_us=found.blocks * engines.copy_us,
        memory_us=memory_us,
        resident_blocks=found.blocks,
        waves=found.waves,
    )


def _in_turn(
    program: Program, waves: int, tile: Mapping[str, int]
) -> Iterator[tuple[int, Mapping[str, int]]]:
    """What a block works on, one after the other: so many times under such scalars."""
    if program.streamed is None:
        yield waves, tile
        return
    stream = stream_of(program.grid, program.launch, program.streamed)
    yield evaluate(stream.whole // stream.blocks), {**tile, **_piece(program)}
    half = minimum(ceildiv(stream.quota, 2), stream.iterations - 1)
    yield 2, {**tile, **_piece(program), program.streamed.extent.name: evaluate(half)}


def _piece(program: Program) -> dict[str, int]:
    """The scalars of a unit of a streamed launch that is a whole tile."""
    loop = program.streamed
    if loop is None:
        return {}
    extent = {loop.extent.name: evaluate(loop.iterations)}
    return {UNIT.name: 0, loop.first.name: 0, loop.part.name: 0, **extent}


def _alone_us(program: Program, roles: list[Cost], figures: Figures) -> float:
    """The time of a tile where no other block is in its way."""
    slowest_us = max(
        cost.serial_us / _turns(program, role)
        for cost, role in zip(roles, program.roles, strict=True)
    )
    if program.launch.blocks:
        return slowest_us
    return slowest_us + figures.block_start_us + figures.copy_latency_us


def _turns(program: Program, role: RoleProgram) -> int:
    """How many roles work on tiles at a time, each on its own, this one among them."""
    turns = turns_of(role.body, program.launch.blocks)
    return turns.count if turns else 1


def role_costs(
    program: Program, machine: Machine, figures: Figures, tile: Mapping[str, int]
) -> list[Cost]:
    """The cost of each role for one tile, its loops as slow as their rings; where roles take
    turns, of the one that has the first."""
    walks = [_walk(program, role, machine, figures) for role in program.roles]
    cycles = [
        cycle
        for role, walk in zip(program.roles, walks, strict=True)
        for cycle in walk.cycles(role.body, tile)
    ]
    periods_us = {
        ring.pipeline: ring_period_us(
            [cycle for cycle in cycles if cycle.pipeline == ring.pipeline], ring.depth, figures
        )
        for ring in program.barriers
    }
    return [
        evolve(walk, periods_us=periods_us).body(role.body, tile)
        for role, walk in zip(program.roles, walks, strict=True)
    ]


def _walk(program: Program, role: RoleProgram, machine: Machine, figures: Figures) -> Walk:
    threads = role.role.warps * machine.threads_per_warp

    def cost(step: Exec, env: Mapping[str, int]) -> Cost:
        if hands_over(program, step):
            return workspace_cost(step, figures, env)
        return op_cost(step, threads, machine, figures, env)

    return Walk(cost, figures)
