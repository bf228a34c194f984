"""The machine description refined by the device that is there.

Invariant: capacities and the number of multiprocessors come from the device that will run the
kernels, never from a family's data sheet (C16).
"""

from __future__ import annotations

from attrs import evolve

from explorer.errors import EnvironmentFault
from explorer.machine import Machine, MemoryScope, Scope
from explorer.runtime.cuda.loaded import device_name, shared_limit_bytes


def cuda_machine(machine: Machine) -> Machine:
    """The machine as the present device is; EnvironmentFault where there is none of its kind."""
    name = device_name()
    import cupy  # noqa: PLC0415

    device = cupy.cuda.Device()
    wanted = "".join(each for each in machine.arch if each.isdigit())
    if device.compute_capability != wanted:
        raise EnvironmentFault(
            f"machine {machine.name} is compute capability {wanted}, {name} is "
            f"{device.compute_capability}"
        )
    shared = machine.memory(Scope.SHARED)
    assert shared is not None
    memories = tuple(
        MemoryScope(Scope.SHARED, shared_limit_bytes(), shared.alignment_bytes)
        if memory.scope == Scope.SHARED
        else memory
        for memory in machine.memories
    )
    units = int(device.attributes["MultiProcessorCount"])
    return evolve(machine, units=units, memories=memories)
