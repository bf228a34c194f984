"""The verifier of finished programs.

It walks every path of every role, each loop with few trips and each condition on run-time data
both ways, and asks that cycles are closed that were opened, that ops use open cycles, and that a
tile leaves nothing open.

Invariant: a program that an emitter sees has passed here.
"""

from __future__ import annotations

from attrs import Factory, define

from explorer.errors import IllegalSchedule
from explorer.expr import Cond, Expr, evaluate, holds
from explorer.ir.interpreter import execute
from explorer.ir.nodes import Define, free_vars
from explorer.program.events import no_data
from explorer.program.launch import TILE
from explorer.program.nodes import (
    Cycle,
    Exec,
    For,
    Program,
    Repeat,
    RoleProgram,
    Signal,
    Skip,
    Step,
    Ticket,
    Wait,
    When,
)
from explorer.program.printer import show_program
from explorer.program.steps import every_step, executed

_WALKED_TRIPS = 16
_TRIED_SIZES = (0, 1, 2, 3, 2 * _WALKED_TRIPS + 1)


class MalformedProgram(IllegalSchedule):
    """A program breaks its own invariants; `listing` is the program with the step marked."""

    def __init__(self, message: str, listing: str) -> None:
        super().__init__(message)
        self.listing = listing


def verify_program(program: Program) -> None:
    """MalformedProgram at the first step that breaks an invariant."""
    for role in program.roles:
        free = run_time_sizes(role.body)
        repeats = any(isinstance(step, Repeat) for step in every_step(role.body))
        for size in _TRIED_SIZES if free or repeats else (0,):
            _Walk(program, role, size, scalars=dict.fromkeys(free, size)).run()
    for barriers in program.barriers:
        if barriers.full_count < 1 or barriers.empty_count < 1:
            side = "full" if barriers.full_count < 1 else "empty"
            raise MalformedProgram(
                f"R-B5: nobody signals the {side} side of pipeline '{barriers.pipeline}'",
                show_program(program),
            )


def run_time_sizes(body: tuple[Step, ...]) -> frozenset[str]:
    """Integers in bounds and conditions that no loop and no op of the body sets."""
    used: set[str] = set()
    given: set[str] = set()

    def visit(steps: tuple[Step, ...]) -> None:
        for step in steps:
            match step:
                case Exec(Define(_, name, _)) | Ticket(name):
                    given.add(name)
                case For(var, start, stop, inner):
                    given.add(var)
                    used.update(free_vars(start) | free_vars(stop))
                    visit(inner)
                case When(cond, inner) | Repeat(cond, inner):
                    used.update(free_vars(cond))
                    visit(inner)

    visit(body)
    return frozenset(used - given)


@define
class _Walk:
    program: Program
    role: RoleProgram
    repeats: int
    unclosed: dict[tuple[str, bool], int] = Factory(dict)
    scalars: dict[str, int] = Factory(dict)

    def run(self) -> None:
        depths = {barriers.pipeline for barriers in self.program.barriers}
        for name in (TILE.name, *(name for name, _ in self.program.grid)):
            self.scalars.setdefault(name, 0)
        self.steps(self.role.body, depths)
        for (pipeline, full), count in self.unclosed.items():
            if count:
                kind = "wait" if full else "acquire"
                self.fail(f"R-D3: {count} cycles of '{pipeline}' stay open after {kind}", None)

    def fail(self, message: str, step: Step | None) -> None:
        name = self.role.role.name
        raise MalformedProgram(f"{message} (role '{name}')", show_program(self.program, step))

    def steps(self, body: tuple[Step, ...], known: set[str]) -> None:
        for step in body:
            match step:
                case Wait(pipeline, full) | Skip(pipeline, full):
                    self.known(pipeline, known, step)
                    if isinstance(step, Wait):
                        key = (pipeline, full)
                        self.unclosed[key] = self.unclosed.get(key, 0) + 1
                    elif self.unclosed.get((pipeline, full)):
                        self.fail(f"skip of '{pipeline}' while a cycle is open", step)
                case Signal(pipeline, full):
                    self.known(pipeline, known, step)
                    key = (pipeline, not full)
                    if not self.unclosed.get(key):
                        self.fail(f"R-D2: '{pipeline}' is closed without being open", step)
                    self.unclosed[key] -= 1
                case Exec():
                    self.execution(step, known)
                case For():
                    for value in self.trips(step):
                        self.scalars[step.var] = value
                        self.steps(step.body, known)
                    for inner in executed(step.body):
                        if isinstance(inner.op, Define):
                            self.scalars.pop(inner.op.name, None)
                case When():
                    self.branch(step, known)
                case Repeat():
                    self.repeat(step, known)

    def known(self, pipeline: str, known: set[str], step: Step) -> None:
        if pipeline not in known:
            self.fail(f"R-B3: there is no pipeline '{pipeline}'", step)

    def execution(self, step: Exec, known: set[str]) -> None:
        if isinstance(step.op, Define):
            self.define(step.op)
        for use in step.uses:
            self.known(use.pipeline, known, step)
            if use.cycle != Cycle.OPEN:
                continue
            sides = ((use.pipeline, True), (use.pipeline, False))
            if not any(self.unclosed.get(side) for side in sides):
                self.fail(
                    f"R-D5: '{step.op.id}' touches '{use.buffer}' outside an open span of "
                    f"'{use.pipeline}'",
                    step,
                )

    def define(self, op: Define) -> None:
        """The scalar's value, as far as it does not come from data."""
        try:
            execute(op, self.scalars, no_data)
        except KeyError:
            self.scalars.pop(op.name, None)

    def trips(self, loop: For) -> list[int]:
        """All values of a short loop, the first and the last of a long or unknown one."""
        start = self.value(loop.start)
        stop = self.value(loop.stop)
        if start is None or stop is None:
            return list(range(start or 0, (start or 0) + 3))
        if stop - start <= 2 * _WALKED_TRIPS:
            return list(range(start, stop))
        return [*range(start, start + _WALKED_TRIPS), *range(stop - _WALKED_TRIPS, stop)]

    def branch(self, step: When, known: set[str]) -> None:
        taken = self.truth(step.cond)
        if taken is None:
            self.balanced(step, step.body, known)
        elif taken:
            self.steps(step.body, known)

    def repeat(self, step: Repeat, known: set[str]) -> None:
        """As often as the condition holds, or `repeats` times where data decides."""
        for walked in range(2 * _WALKED_TRIPS):
            going_on = self.truth(step.cond)
            if going_on is False or (going_on is None and walked >= self.repeats):
                return
            self.steps(step.body, known)

    def balanced(self, step: Step, body: tuple[Step, ...], known: set[str]) -> None:
        """A body that may be left out must leave as many cycles open as it found."""
        before = dict(self.unclosed)
        self.steps(body, known)
        for (pipeline, _), count in self.unclosed.items():
            if before.get((pipeline, _), 0) != count:
                self.fail(f"R-D3: a conditional body leaves '{pipeline}' unbalanced", step)

    def value(self, expr: Expr) -> int | None:
        try:
            return evaluate(expr, self.scalars)
        except KeyError:
            return None

    def truth(self, cond: Cond) -> bool | None:
        try:
            return holds(cond, self.scalars)
        except KeyError:
            return None
