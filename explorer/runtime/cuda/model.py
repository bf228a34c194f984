"""The rules' model of a kernel against what the compiler made of it.

The rules count shared bytes, named barriers and registers before anything is compiled. If the
compiler disagrees, one of the two is wrong, and every schedule the search judged is in doubt.

Invariant: a kernel that is launched has passed here.
"""

from __future__ import annotations

from explorer.codegen.cuda import LaunchPlan
from explorer.errors import ExplorerError
from explorer.runtime.cuda.log import Resources

# ptxas: setmaxnreg ignored (C7508); wgmma serialized, or a wait added for it (C7510 and on).
_IGNORED_REQUESTS = "C7508"
_SERIALIZED = tuple(f"C75{number}" for number in range(10, 20))


class ModelMismatch(ExplorerError):
    """The compiler's figures differ from those that the rules proved."""


def compare(plan: LaunchPlan, found: Resources) -> None:
    """ModelMismatch names every figure on which rules and compiler differ."""
    told = plan.prediction
    differing = []
    if found.shared_bytes or told.shared_bytes != plan.shared_bytes:
        differing.append(
            f"shared memory: rules {told.shared_bytes} B, compiler "
            f"{plan.shared_bytes + found.shared_bytes} B"
        )
    if told.named_barriers != found.barriers:
        differing.append(f"named barriers: rules {told.named_barriers}, compiler {found.barriers}")
    exact, limit = told.registers_exact, told.entry_registers
    if (exact and found.registers != limit) or found.registers > limit:
        most = "" if exact else "at most "
        differing.append(f"registers at entry: rules {most}{limit}, compiler {found.registers}")
    if differing:
        raise ModelMismatch(f"model-mismatch: {'; '.join(differing)}")


def changed_schedule(found: Resources) -> str:
    """How the compiler departed from the schedule, in one line; empty if it did not."""
    reasons = []
    if found.spill_bytes:
        reasons.append(
            f"register-spill: {found.spill_bytes} B spilled; ask for more registers or a smaller "
            "tile"
        )
    for diagnostic in found.diagnostics:
        if diagnostic.code == _IGNORED_REQUESTS:
            reasons.append(f"register-plan: not applied ({diagnostic.code} {diagnostic.message})")
        elif diagnostic.code in _SERIALIZED:
            reasons.append(f"matrix-serialized: {diagnostic.code} {diagnostic.message}")
    return "; ".join(dict.fromkeys(reasons))
