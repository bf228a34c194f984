"""The space of a workload's problem on a machine: derived skeletons, and a domain per choice."""

from __future__ import annotations

from collections.abc import Mapping

from explorer.derive import Skeleton, derive_skeletons
from explorer.errors import InputError
from explorer.ir.nodes import Kernel
from explorer.machine import Machine
from explorer.schedule.extensions import Raster
from explorer.space.space import SKELETON, Choice, SearchSpace, plan_params
from explorer.space.workload import Problem, Workload, tile_values

DEPTHS = (2, 3, 4, 1, 5, 6, 7, 8)
TILE_SIZES = (16, 32, 64, 128, 256)
SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
REGISTERS = (24, 40, 56, 88, 152, 168, 208, 232, 240)


def space_of(workload: Workload, problem: Problem, machine: Machine) -> SearchSpace:
    """The space of one problem; InputError where the workload has no tiles for the machine."""
    tiles = workload.tiles_of(machine.name, problem)
    return build_space(workload.trace(problem), machine, tiles)


def build_space(
    kernel: Kernel, machine: Machine, tiles: Mapping[str, tuple[int, ...]] | None = None
) -> SearchSpace:
    """The space of a kernel with open Params, given the values of each.

    Without `tiles` every Param takes the powers of two from 16 to 256; the rules refuse those that
    do not fit.
    """
    if machine.family == "pipe":
        raise InputError(
            f"machine {machine.name} has pipes and no roles: its schedules are predicted, see "
            f"explorer tune SPACE --machine {machine.name}"
        )
    if tiles is None:
        tiles = dict.fromkeys(kernel.params, TILE_SIZES)
    tiles = {name: tile_values(name, values) for name, values in tiles.items()}
    missing = [name for name in kernel.params if name not in tiles]
    if missing:
        raise InputError(f"no values for the tile size {missing[0]!r} of kernel {kernel.name}")
    skeletons = derive_skeletons(kernel, machine)
    return SearchSpace(kernel, machine, skeletons, _choices(skeletons, machine, tiles))


def _choices(
    skeletons: tuple[Skeleton, ...], machine: Machine, tiles: Mapping[str, tuple[int, ...]]
) -> tuple[Choice, ...]:
    used = set().union(*(plan_params(skeleton.plan) for skeleton in skeletons))
    shared = machine_domains(machine)
    choices = [Choice(SKELETON, tuple(range(len(skeletons))))]
    choices += [Choice(name, tuple(values)) for name, values in tiles.items() if name in used]
    for name in sorted(used - set(tiles)):
        key = name if name in shared else name.split("_")[0]
        choices.append(Choice(name, shared[key]))
    return tuple(choices)


def machine_domains(machine: Machine) -> dict[str, tuple[int, ...]]:
    """The values of each kind of choice that a machine offers, by the prefix of its name."""
    shapes = machine.matrix_shapes
    gpu = machine.registers is not None
    # One or two blocks a unit.
    blocks = (machine.units, 2 * machine.units) if gpu else tuple(range(1, machine.units + 1))
    return {
        "depth": tuple(sorted(DEPTHS)),
        "stage": (0, 1, 2),
        "lag": (0, 1),
        "warps_producer": (1, 2, 4) if gpu else (1, 2),
        "warps_storer": (1, 2) if gpu else (1,),
        "warps": (4, 8, 12) if gpu else (1, 2, 3, 4),
        "nreg_producer": tuple(n for n in REGISTERS if n < 100),
        "nreg": tuple(n for n in REGISTERS if n > 100),
        "mma_m": tuple(sorted({shape.m for shape in shapes})),
        "mma_n": tuple(sorted({shape.n for shape in shapes})),
        "blocks": (0, *blocks) if gpu else blocks,
        "raster": tuple(range(len(Raster))),
        "group": (1, 2, 4, 8, 16),
        "cluster": machine.cluster_sizes,
        "cluster_axis": (0, 1),
        "split": SPLITS if gpu else (1,),
        "stream": (0, 1) if gpu else (0,),
    }
