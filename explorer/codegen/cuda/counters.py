"""Slot and parity registers: how a role counts the cycles of a pipeline.

A wait opens the next cycle at slot `s` with parity `p`; both advance once a cycle. How much more
is kept depends on how the role uses its cycles:

- simple: each cycle is closed before the next is opened, so that its signal uses `s` as well;
- lagged: cycles are closed later (register `r` counts the closed ones), but everything that uses
  an open cycle stands behind its wait in the same body, so that `s` advances after the last use;
- saved: the open cycle's slot is copied at the wait (register `o`), for uses anywhere.

Invariant: every register holds a slot below the depth; parity flips when the slot wraps.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from explorer.codegen.cuda.scalars import c_name
from explorer.program.nodes import (
    Cycle,
    Exec,
    For,
    Repeat,
    RoleProgram,
    Signal,
    Skip,
    Step,
    Wait,
    When,
)
from explorer.program.steps import every_step, executed


class Mode(StrEnum):
    """What a counter keeps."""

    SIMPLE = "simple"
    LAGGED = "lagged"
    SAVED = "saved"


@frozen
class Counter:
    """The registers of one role for one pipeline; `full`: the role waits for the full side."""

    pipeline: str
    depth: int
    full: bool
    mode: Mode

    def _register(self, prefix: str) -> str:
        return c_name(prefix, self.pipeline)

    @property
    def parity(self) -> str:
        """The parity that the next wait passes."""
        return self._register("p")

    @property
    def next_slot(self) -> str:
        """The slot of the cycle that `s` stands on."""
        return "0u" if self.depth == 1 else self._register("s")

    @property
    def open_slot(self) -> str:
        """The slot of the cycle opened last, before `s` advances past it."""
        saved = self.mode == Mode.SAVED and self.depth > 1
        return self._register("o") if saved else self.next_slot

    @property
    def closing_slot(self) -> str:
        """The slot of the oldest cycle not yet closed."""
        counted = self.mode != Mode.SIMPLE and self.depth > 1
        return self._register("r") if counted else self.next_slot

    @property
    def last_slot(self) -> str:
        """The slot of the cycle closed last."""
        at = self.closing_slot
        return "0u" if self.depth == 1 else f"({at} ? {at} - 1u : {self.depth - 1}u)"

    def declaration(self) -> str:
        """All registers at the start of a block; an empty barrier's first phase is over."""
        names = [f"{self.parity} = {0 if self.full else 1}u"]
        if self.depth > 1:
            names.append(f"{self.next_slot} = 0u")
            if self.mode == Mode.SAVED:
                names.append(f"{self.open_slot} = 0u")
            if self.mode != Mode.SIMPLE:
                names.append(f"{self.closing_slot} = 0u")
        return f"u32 {', '.join(names)};"

    def advance(self) -> str:
        """`s` and `p` go on to the next cycle."""
        if self.depth == 1:
            return f"{self.parity} ^= 1u;"
        slot = self.next_slot
        return f"if (++{slot} == {self.depth}u) {{ {slot} = 0u; {self.parity} ^= 1u; }}"

    def save(self) -> str:
        """The open cycle's slot is kept."""
        return f"{self.open_slot} = {self.next_slot};"

    def close(self) -> str:
        """`r` goes on to the next cycle; empty where there is no such register."""
        if self.mode == Mode.SIMPLE or self.depth == 1:
            return ""
        slot = self.closing_slot
        return f"if (++{slot} == {self.depth}u) {slot} = 0u;"

    def skip(self, count: str | int) -> list[str]:
        """Pass over a number of cycles; none is open."""
        known = isinstance(count, int)
        rounds, rest = f"(u32)({count}) / {self.depth}u & 1u", f"(u32)({count}) % {self.depth}u"
        if isinstance(count, int):
            rounds, rest = f"{count // self.depth & 1}u", f"{count % self.depth}u"
        lines = [f"{self.parity} ^= {rounds};"] if not known or rounds != "0u" else []
        if self.depth == 1 or (known and rest == "0u"):
            return lines
        slot = self.next_slot
        lines.append(f"{slot} += {rest};")
        lines.append(
            f"if ({slot} >= {self.depth}u) {{ {slot} -= {self.depth}u; {self.parity} ^= 1u; }}"
        )
        return lines + ([f"{self.closing_slot} = {slot};"] if self.mode != Mode.SIMPLE else [])


def counters_of(role: RoleProgram, depths: dict[str, int]) -> dict[str, Counter]:
    """The counters of a role by pipeline."""
    result: dict[str, Counter] = {}
    for step in every_step(role.body):
        if isinstance(step, Wait | Skip) and step.pipeline not in result:
            mode = _mode(role.body, step.pipeline)
            result[step.pipeline] = Counter(step.pipeline, depths[step.pipeline], step.full, mode)
    return result


def _mode(body: tuple[Step, ...], pipeline: str) -> Mode:
    if not _covered(body, pipeline, False):
        return Mode.SAVED
    return Mode.SIMPLE if _closed_at_once(body, pipeline) else Mode.LAGGED


def uses_open(step: Step, pipeline: str) -> bool:
    """Whether a step, or one inside it, uses the open cycle of a pipeline."""
    return any(
        use.pipeline == pipeline and use.cycle == Cycle.OPEN
        for execution in executed((step,))
        for use in execution.uses
    )


def opens(step: Step, pipeline: str) -> bool:
    """Whether a step, or one inside it, opens a cycle of a pipeline."""
    return any(isinstance(s, Wait) and s.pipeline == pipeline for s in every_step((step,)))


def _covered(body: tuple[Step, ...], pipeline: str, opened: bool) -> bool:
    """Whether every use of an open cycle stands behind a wait of its own or an outer body."""
    for step in body:
        match step:
            case Wait(name) if name == pipeline:
                opened = True
            case Exec() if not opened and uses_open(step, pipeline):
                return False
            case For() | When() | Repeat():
                inner = opens(step, pipeline)
                if not _covered(step.body, pipeline, opened and not inner):
                    return False
                opened = opened and not inner
    return True


def _closed_at_once(body: tuple[Step, ...], pipeline: str) -> bool:
    """Whether each wait is followed by its signal in the same body, before the next wait."""
    opened = False
    for step in body:
        match step:
            case Wait(name) if name == pipeline:
                if opened:
                    return False
                opened = True
            case Signal(name) if name == pipeline:
                if not opened:
                    return False
                opened = False
            case For() | When() | Repeat():
                counted = any(
                    isinstance(s, Wait | Signal) and s.pipeline == pipeline
                    for s in every_step(step.body)
                )
                if counted and (opened or not _closed_at_once(step.body, pipeline)):
                    return False
    return not opened


__all__ = ["Counter", "Mode", "counters_of", "opens", "uses_open"]
