"""What a user asks of a run: a space, a machine, sizes, a budget; and the problem that it means.

Invariant: a `Request` that exists is well formed; whether its space has such a problem is for
`problem_asked` to say.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from explorer.errors import InputError
from explorer.records import RunInfo, read_info
from explorer.space import Problem, Workload

TRIALS, SECONDS = 120, 75.0


def _or_trials(value: int | None) -> int:
    return TRIALS if value is None else value


def _or_seconds(value: float | None) -> float:
    return SECONDS if value is None else value


def _path(value: Any) -> Path | None:
    if value is None or isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise InputError(f"out must be the path of a folder, got {value!r}")
    return Path(value)


@frozen
class Request:
    """What the user asks for. `space` is a name of search_spaces/ or FILE.py:NAME.

    A run starts from recorded winners of its workload, unless `recorded` is False: a cold start.
    """

    space: str
    machine: str = "cpu"
    sizes: Mapping[str, int] = field(factory=dict)
    dtype: str | None = None
    trials: int = field(default=TRIALS, converter=_or_trials)
    seconds: float = field(default=SECONDS, converter=_or_seconds)
    seed: int | None = None
    out: Path | None = field(default=None, converter=_path)
    resume: bool = False
    recorded: bool = True

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.space, str):
            raise InputError(
                "tune takes the name of a workload or FILE.py:NAME, got a "
                f"{type(self.space).__name__}: worker processes load it from its file"
            )
        if not isinstance(self.sizes, Mapping):
            raise InputError(f"sizes gives problem sizes by name, got {self.sizes!r}")
        for name in ("trials", "seconds"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not value > 0:
                raise InputError(f"{name} must be positive, got {value!r}")
            if value > sys.float_info.max:
                raise InputError(f"{name} must be finite, got {value!r}")
        if not isinstance(self.trials, int):
            raise InputError(f"trials must be a whole number, got {self.trials!r}")
        if self.seed is not None and not (type(self.seed) is int and self.seed >= 0):
            raise InputError(f"seed must be a whole number from 0, got {self.seed!r}")
        if self.resume and self.out is None:
            raise InputError("--resume goes on with the run in --out DIR; --out is missing")


def request_of(space: str, options: Mapping[str, Any]) -> Request:
    """The request of a call's options; InputError for an unknown one."""
    known = {each.name for each in Request.__attrs_attrs__}
    unknown = sorted(set(options) - known)
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}: known are {', '.join(sorted(known))}")
    return Request(space, **options)


def problem_asked(request: Request, workload: Workload) -> Problem:
    """The problem of a request; a run that goes on keeps its own where nothing else is asked."""
    sizes, kind = dict(request.sizes), request.dtype
    if request.resume and request.out is not None:
        info = read_info(request.out)
        sizes, kind = {**dict(info.sizes), **sizes}, info.dtype if kind is None else kind
    return workload.problem(sizes, kind, request.machine)


def problem_of(info: RunInfo, workload: Workload) -> Problem:
    """The problem of a recorded run."""
    return workload.problem(dict(info.sizes), info.dtype)
