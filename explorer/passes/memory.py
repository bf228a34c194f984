"""From a kernel and a schedule to where every on-chip buffer lies.

Invariant: the placement is that of the program that the passes make.
"""

from __future__ import annotations

from explorer.ir.nodes import Kernel
from explorer.machine import Machine, machine_named
from explorer.memory.placement import Placement
from explorer.passes import materialize
from explorer.schedule.bound import Schedule


def place_buffers(
    kernel: Kernel, schedule: Schedule, machine: Machine | str = "h200"
) -> Placement:
    """Where every on-chip buffer of a kernel lies under a schedule made for it.

    `kernel` has its Params open. ScheduleError and IllegalSchedule as of `materialize`.
    """
    target = machine_named(machine) if isinstance(machine, str) else machine
    placement = materialize(kernel, schedule, target).placement
    assert placement is not None
    return placement
