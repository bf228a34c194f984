"""What identifies a study: the key under which its trials may be compared and continued.

A function is identified by the whole file that it is written in, so that globals and helpers
count too, and by the files beside it that this one imports; one that a factory made, by the plain
values that it captured as well.

Invariant: whatever changes a verdict or a time changes the key; a function whose file cannot be
read has no identity, and nothing measured with it is reused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from explorer.constraints import rules_digest
from explorer.data import digest
from explorer.ir.access import outputs
from explorer.ir.printer import kernel_digest
from explorer.records import Contract, StudyKey
from explorer.space import Problem, SearchSpace, Workload


def source_digest(function: Callable[..., Any], workload: str) -> str | None:
    """The digest of a workload's function, None where no file of it can be read."""
    try:
        parts = _parts(function)
    except (OSError, AttributeError):
        return None
    return digest(workload, *parts)


def _parts(function: Callable[..., Any]) -> list[str]:
    """Name, files and captures of a function, and those of the functions it captures."""
    code = function.__code__
    own = Path(code.co_filename)
    files = (own, *_beside(own, function.__globals__))
    parts = [code.co_qualname, *(sha256(path.read_bytes()).hexdigest() for path in files)]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # a name that the factory never bound
            continue
        if isinstance(value, FunctionType) and value is not function:
            parts += [name, *_parts(value)]
        elif value is None or isinstance(value, bool | int | float | str):
            parts += [name, repr(value)]
    return parts


def _beside(own: Path, members: dict[str, Any]) -> list[Path]:
    """The other files of a folder that a file has imported, or has imported from."""
    found = set()
    for value in members.values():
        module = value
        if not isinstance(value, ModuleType):
            module = sys.modules.get(str(getattr(value, "__module__", "")))
        origin = getattr(module, "__file__", None)
        if origin and Path(origin).parent == own.parent:
            found.add(Path(origin))
    return sorted(found - {own})


def study_key(
    workload: Workload,
    problem: Problem,
    space: SearchSpace,
    *,
    device: str,
    toolchain: str,
    peer: str,
    repeats: int,
    limit_s: float,
) -> StudyKey:
    """The key of a study of one problem on one device."""
    contract = Contract(
        tolerance=workload.bound(space.machine.name, problem.dtype),
        outputs=tuple(buffer.name for buffer in outputs(space.kernel)),
        inputs=source_digest(workload.inputs, workload.name),
        reference=source_digest(workload.reference, workload.name),
        repeats=repeats,
        limit_s=limit_s,
        peer=peer,
    )
    return StudyKey(
        space=space.digest,
        kernel=kernel_digest(space.kernel),
        rules=rules_digest(),
        problem=str(problem),
        device=device,
        toolchain=toolchain,
        contract=contract,
    )
