"""What the roles of a schedule do, as text: of a run's best schedule, of a file, of a space."""

from __future__ import annotations

import shutil
from pathlib import Path

from explorer.cli.memory import print_memory
from explorer.cli.options import problem_on
from explorer.errors import ExplorerError
from explorer.ir.nodes import Kernel
from explorer.machine import Machine, machine_named
from explorer.passes.show import show_schedule
from explorer.records import Run, read_schedule
from explorer.schedule.bound import Schedule
from explorer.schedule.printer import show_schedule as schedule_text
from explorer.space import Workload, space_of

# Narrower columns fold almost every line, and wider ones are not read in one glance.
WIDTHS = (100, 140)
LINES = 24


def print_roles(
    kernel: Kernel, schedule: Schedule, machine: Machine, block: int = 0, lines: int = LINES
) -> None:
    """Print offsets, role programs and first steps, as wide as the terminal within `WIDTHS`."""
    least, most = WIDTHS
    width = min(max(shutil.get_terminal_size((120, 24)).columns, least), most)
    print(show_schedule(kernel, schedule, machine, block, lines, width), end="")


def print_schedule(
    kernel: Kernel,
    schedule: Schedule,
    machine: Machine,
    block: int,
    lines: int,
    figure: Path | None,
    legal: bool,
) -> None:
    """Print a schedule, its role programs and its memory; of an illegal one what can be made."""
    print(schedule_text(schedule), end="")
    try:
        print_roles(kernel, schedule, machine, block, lines)
        print_memory(kernel, schedule, machine, figure)
    except Exception as problem:  # passes take for granted what the rules say
        if legal:
            raise
        told = str(problem).split("\n", maxsplit=1)[0]
        print(f"no role programs: {told or type(problem).__name__}")


def print_best_roles(run: Run, block: int = 0, lines: int = LINES) -> None:
    """Print the role programs of a run's best schedule, or why its space gives none any more."""
    from explorer.runtime import load_workload  # noqa: PLC0415
    from explorer.tune import problem_of  # noqa: PLC0415

    if run.best is None:
        return
    try:
        workload = load_workload(run.info.space)
        kernel = workload.trace(problem_of(run.info, workload))
        print_roles(kernel, run.best.schedule, run.info.machine, block, lines)
        print_memory(kernel, run.best.schedule, run.info.machine)
    except ExplorerError as problem:
        print(f"no role programs: {problem}")


def schedule_of(
    workload: Workload, machine: str, sizes: list[str], dtype: str | None, file: Path | None
) -> tuple[Kernel, Schedule, Machine]:
    """A kernel, and the schedule in a file; without one, a legal schedule that is not timed."""
    from explorer.tune import first_legal  # noqa: PLC0415

    problem, target = problem_on(workload, machine_named(machine), sizes, dtype)
    if file is not None:
        return workload.trace(problem), read_schedule(file), target
    space = space_of(workload, problem, target)
    return space.kernel, first_legal(space), target
