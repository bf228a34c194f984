"""The memory map of a schedule, printed and drawn."""

from __future__ import annotations

from pathlib import Path

from explorer.errors import InputError
from explorer.ir.nodes import Kernel
from explorer.machine import Machine
from explorer.memory.placement import memory_map
from explorer.passes.memory import place_buffers
from explorer.schedule.bound import Schedule


def print_memory(
    kernel: Kernel, schedule: Schedule, machine: Machine, figure: Path | None = None
) -> None:
    """Print where every on-chip buffer lies; with `figure`, draw it to that file too."""
    placement = place_buffers(kernel, schedule, machine)
    print(f"memory\n{memory_map(placement)}")
    if figure is None:
        return
    from explorer.report import plot_memory_map  # noqa: PLC0415

    try:
        plot_memory_map(placement).savefig(figure)
    except (OSError, ValueError) as problem:
        raise InputError(f"{figure} cannot be written as a figure: {problem}") from None
    print(f"memory map drawn to {figure}")
