"""A constraint-solver schedule explorer and autotuner for GPU tile kernels.

    check(kernel, schedule, machine)   which rules a schedule breaks
    derive(kernel, machine, [tiles])   the search space of a plain kernel
    tune(space, ...)                   the fastest schedule, measured
    tune_pipes(space, ...)             the fastest schedule of a pipe machine, predicted
    load(folder)                       a recorded run
    place_buffers(kernel, schedule)    where every on-chip buffer lies; `memory_map` prints it
    recorded(space, sizes, ...)        the recorded run of a problem, which `tune` starts from
    schedule_pipes(kernel, machine)    the predicted schedule of a pipe machine
    check_pipes(kernel, schedule, m)   what a stored one breaks
    Workload, Problem, Peer            what a file of search_spaces/ is made of
    Suite, Case                        what `explorer bench` runs through
    standard_normal(rng, shape, type)  its inputs, drawn on all cores

Everything is imported when it is first used, so that `import explorer` costs nothing. `tune` and
`derive` are functions here and packages inside; `from explorer.tune import ...` reaches those.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from explorer.constraints import Report as Report
    from explorer.constraints import Violation as Violation
    from explorer.constraints import check as check
    from explorer.errors import ExplorerError as ExplorerError
    from explorer.ir.nodes import Kernel as Kernel
    from explorer.machine import Machine as Machine
    from explorer.machine import machine_named as machine_named
    from explorer.memory.placement import memory_map as memory_map
    from explorer.passes.check_pipes import check_pipes as check_pipes
    from explorer.passes.memory import place_buffers as place_buffers
    from explorer.passes.schedule_pipes import schedule_pipes as schedule_pipes
    from explorer.records import Run as Run
    from explorer.records import load as load
    from explorer.schedule.bound import Schedule as Schedule
    from explorer.space import Arrays as Arrays
    from explorer.space import Case as Case
    from explorer.space import Hint as Hint
    from explorer.space import Peer as Peer
    from explorer.space import Problem as Problem
    from explorer.space import SearchSpace as SearchSpace
    from explorer.space import Suite as Suite
    from explorer.space import Workload as Workload
    from explorer.space import build_space as derive
    from explorer.space import standard_normal as standard_normal
    from explorer.tune import PipeReport as PipeReport
    from explorer.tune import TuneResult as TuneResult
    from explorer.tune import recorded as recorded
    from explorer.tune import tune as tune
    from explorer.tune import tune_pipes as tune_pipes

_PUBLIC = {
    "Arrays": "explorer.space:Arrays",
    "Case": "explorer.space:Case",
    "ExplorerError": "explorer.errors:ExplorerError",
    "Hint": "explorer.space:Hint",
    "Kernel": "explorer.ir.nodes:Kernel",
    "Machine": "explorer.machine:Machine",
    "Peer": "explorer.space:Peer",
    "PipeReport": "explorer.tune:PipeReport",
    "Problem": "explorer.space:Problem",
    "Report": "explorer.constraints:Report",
    "Run": "explorer.records:Run",
    "Schedule": "explorer.schedule.bound:Schedule",
    "SearchSpace": "explorer.space:SearchSpace",
    "Suite": "explorer.space:Suite",
    "TuneResult": "explorer.tune:TuneResult",
    "Violation": "explorer.constraints:Violation",
    "Workload": "explorer.space:Workload",
    "check": "explorer.constraints:check",
    "check_pipes": "explorer.passes.check_pipes:check_pipes",
    "derive": "explorer.space:build_space",
    "load": "explorer.records:load",
    "machine_named": "explorer.machine:machine_named",
    "memory_map": "explorer.memory.placement:memory_map",
    "place_buffers": "explorer.passes.memory:place_buffers",
    "recorded": "explorer.tune:recorded",
    "schedule_pipes": "explorer.passes.schedule_pipes:schedule_pipes",
    "standard_normal": "explorer.space:standard_normal",
    "tune": "explorer.tune:tune",
    "tune_pipes": "explorer.tune:tune_pipes",
}

__all__ = [
    "Arrays",
    "Case",
    "ExplorerError",
    "Hint",
    "Kernel",
    "Machine",
    "Peer",
    "PipeReport",
    "Problem",
    "Report",
    "Run",
    "Schedule",
    "SearchSpace",
    "Suite",
    "TuneResult",
    "Violation",
    "Workload",
    "check",
    "check_pipes",
    "derive",
    "load",
    "machine_named",
    "memory_map",
    "place_buffers",
    "recorded",
    "schedule_pipes",
    "standard_normal",
    "tune",
    "tune_pipes",
]


class _Package(ModuleType):
    """Keeps a public function when the import system binds the package of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'explorer' has no attribute {name!r}")
    module, attribute = _PUBLIC[name].split(":")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


sys.modules[__name__].__class__ = _Package
