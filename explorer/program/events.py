"""Programs step by step: the leaf steps a role takes, and the cycles its waits and signals close.

Invariant: the law of cycles is stated here once (`slot`, `parity`, `RoleCycles`); the simulator,
the verifier and the printer count through it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, TypeAlias

from attrs import Factory, define, frozen

from explorer.expr import evaluate, holds
from explorer.ir.interpreter import execute
from explorer.ir.nodes import Define
from explorer.program.launch import tiles_of
from explorer.program.nodes import (
    Drain,
    Exec,
    For,
    Program,
    Repeat,
    RoleProgram,
    RoleSync,
    Signal,
    Skip,
    Step,
    Ticket,
    Wait,
    When,
)

Leaf: TypeAlias = Exec | Wait | Signal | Skip | Drain | RoleSync | Ticket


def slot(cycle: int, depth: int) -> int:
    """The ring slot of a pipeline's cycle."""
    return cycle % depth


def parity(cycle: int, depth: int, full: bool) -> int:
    """The parity that a wait for a cycle passes to its barrier; 1 on a fresh empty barrier."""
    turn = cycle // depth & 1
    return turn if full else turn ^ 1


def leaves(body: tuple[Step, ...], scalars: dict[str, int]) -> Iterator[Leaf]:
    """The leaf steps of a body in order.

    `scalars` holds the loop variables while the steps are yielded; whoever executes a scalar
    definition adds its value there before asking for the next step.
    """
    for step in body:
        match step:
            case For():
                start, stop = evaluate(step.start, scalars), evaluate(step.stop, scalars)
                for value in range(start, stop):
                    scalars[step.var] = value
                    yield from leaves(step.body, scalars)
            case When():
                if holds(step.cond, scalars):
                    yield from leaves(step.body, scalars)
            case Repeat():
                while holds(step.cond, scalars):
                    yield from leaves(step.body, scalars)
            case _:
                yield step


@define
class SideCycles:
    """Cycles that a role has opened on one side of a pipeline, and those not yet closed."""

    next: int = 0
    unclosed: deque[int] = Factory(deque)
    last_closed: int = -1

    def open(self) -> int:
        """Open the next cycle and return its number."""
        self.next += 1
        self.unclosed.append(self.next - 1)
        return self.next - 1

    def close(self) -> int:
        """Close the oldest unclosed cycle and return its number; IndexError if there is none."""
        self.last_closed = self.unclosed.popleft()
        return self.last_closed


@define
class RoleCycles:
    """The cycle counters of one role of one block, per pipeline and side."""

    sides: dict[tuple[str, bool], SideCycles] = Factory(dict)

    def side(self, pipeline: str, full: bool) -> SideCycles:
        """The counter of a pipeline; `full` is True for the consumer side, which waits for
        full."""
        return self.sides.setdefault((pipeline, full), SideCycles())

    def standing(self, pipeline: str) -> SideCycles | None:
        """The side on which the role stands, None before its first step there."""
        return self.sides.get((pipeline, True)) or self.sides.get((pipeline, False))


@frozen
class Event:
    """A wait or a signal of one role, about one cycle: `kind` as in schedules (acquire, ...)."""

    kind: str
    pipeline: str
    cycle: int
    slot: int
    parity: int

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.pipeline} cycle {self.cycle} slot {self.slot} parity {self.parity}"
        )


def role_events(
    program: Program, role: str, block: int = 0, scalars: dict[str, int] | None = None
) -> Iterator[Event]:
    """The waits and signals of a role of a block over all its tiles, with cycle, slot and parity.

    The parity of a signal is that of the phase it completes. `scalars` gives run-time integers.
    """
    found = next(each for each in program.roles if each.role.name == role)
    depths = {barriers.pipeline: barriers.depth for barriers in program.barriers}
    cycles = RoleCycles()
    for tile in tiles_of(program, block, scalars or {}):
        yield from _tile_events(found, depths, cycles, {**(scalars or {}), **tile})


def _tile_events(
    role: RoleProgram, depths: dict[str, int], cycles: RoleCycles, scalars: dict[str, int]
) -> Iterator[Event]:
    for step in leaves(role.body, scalars):
        match step:
            case Wait(pipeline, full):
                cycle = cycles.side(pipeline, full).open()
                kind = "wait" if full else "acquire"
                depth = depths[pipeline]
                at = parity(cycle, depth, full)
                yield Event(kind, pipeline, cycle, slot(cycle, depth), at)
            case Signal(pipeline, full):
                cycle = cycles.side(pipeline, not full).close()
                kind = "commit" if full else "release"
                depth = depths[pipeline]
                yield Event(kind, pipeline, cycle, slot(cycle, depth), cycle // depth & 1)
            case Skip(pipeline, full, count):
                cycles.side(pipeline, full).next += evaluate(count, scalars)
            case Ticket(last):
                scalars[last] = 1  # listed as the part that does everything
            case Exec(Define() as op):
                execute(op, scalars, no_data)


def no_data(name: str) -> Any:
    """The view of buffers where none are at hand."""
    raise KeyError(f"a scalar reads '{name}', and events are listed without data")
