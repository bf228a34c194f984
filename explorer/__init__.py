"""A constraint-solver schedule explorer and autotuner for GPU tile kernels.

    check(kernel, schedule, machine)   which rules a schedule breaks
    derive(kernel, machine, [tiles])   the search space of a plain kernel
    tune(space, ...)                   the fastest schedule, measured
    load(folder)                       a recorded run
    schedule_pipes(kernel, machine)    the predicted schedule of a pipe machine
    Workload, Problem, Peer            what a file of search_spaces/ is made of

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
    from explorer.passes.schedule_pipes import schedule_pipes as schedule_pipes
    from explorer.records import Run as Run
    from explorer.records import load as load
    from explorer.schedule.bound import Schedule as Schedule
    from explorer.space import Arrays as Arrays
    from explorer.space import Hint as Hint
    from explorer.space import Peer as Peer
    from explorer.space import Problem as Problem
    from explorer.space import SearchSpace as SearchSpace
    from explorer.space import Workload as Workload
    from explorer.space import build_space as derive
    from explorer.tune import TuneResult as TuneResult
    from explorer.tune import tune as tune

_PUBLIC = {
    "Arrays": "explorer.space:Arrays",
    "ExplorerError": "explorer.errors:ExplorerError",
    "Hint": "explorer.space:Hint",
    "Kernel": "explorer.ir.nodes:Kernel",
    "Machine": "explorer.machine:Machine",
    "Peer": "explorer.space:Peer",
    "Problem": "explorer.space:Problem",
    "Report": "explorer.constraints:Report",
    "Run": "explorer.records:Run",
    "Schedule": "explorer.schedule.bound:Schedule",
    "SearchSpace": "explorer.space:SearchSpace",
    "TuneResult": "explorer.tune:TuneResult",
    "Violation": "explorer.constraints:Violation",
    "Workload": "explorer.space:Workload",
    "check": "explorer.constraints:check",
    "derive": "explorer.space:build_space",
    "load": "explorer.records:load",
    "machine_named": "explorer.machine:machine_named",
    "schedule_pipes": "explorer.passes.schedule_pipes:schedule_pipes",
    "tune": "explorer.tune:tune",
}

__all__ = [
    "Arrays",
    "ExplorerError",
    "Hint",
    "Kernel",
    "Machine",
    "Peer",
    "Problem",
    "Report",
    "Run",
    "Schedule",
    "SearchSpace",
    "TuneResult",
    "Violation",
    "Workload",
    "check",
    "derive",
    "load",
    "machine_named",
    "schedule_pipes",
    "tune",
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
