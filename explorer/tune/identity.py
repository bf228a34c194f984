"""What identifies a study: the key under which its trials may be compared and continued.

Invariant: whatever changes a verdict or a time changes the key; a function whose source cannot be
read has no identity, and nothing measured with it is reused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from explorer.constraints import rules_digest
from explorer.data import digest
from explorer.ir.access import outputs
from explorer.ir.printer import kernel_digest
from explorer.records import Contract, StudyKey
from explorer.space import Problem, SearchSpace, Workload


def source_digest(function: Callable[..., Any]) -> str | None:
    """The digest of a function's source, None where it has none or captures values."""
    closure = getattr(function, "__closure__", None)
    try:
        return None if closure else digest(inspect.getsource(function))
    except (OSError, TypeError):
        return None


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
        tolerance=workload.tolerance[problem.dtype.name],
        outputs=tuple(buffer.name for buffer in outputs(space.kernel)),
        inputs=source_digest(workload.inputs),
        reference=source_digest(workload.reference),
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
