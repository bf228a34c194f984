"""Numbered dumps: what every pass made, as text, in the folder that the settings name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from explorer.errors import EnvironmentFault
from explorer.ir.printer import show_kernel
from explorer.passes.plan import Entry, Nest, Plan
from explorer.program.counts import role_threads
from explorer.program.nodes import Program
from explorer.program.printer import show_program, show_steps
from explorer.settings import settings


def dump_plan(plan: Plan, number: int, name: str) -> None:
    """Write `NN_<pass>.txt` into a folder of the schedule's; nothing without a dump folder."""
    if settings().dump is not None:
        _write(plan, f"{number:02d}_{name}.txt", show_plan(plan))


def dump_program(program: Program, plan: Plan, number: int) -> None:
    """Write the finished program after the passes."""
    if settings().dump is not None:
        _write(plan, f"{number:02d}_program.txt", show_program(program))


def _write(plan: Plan, name: str, text: str) -> None:
    root = settings().dump or Path()
    folder = root / f"{plan.kernel.name}-{plan.schedule.digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    except OSError as problem:
        raise EnvironmentFault(
            f"the dump folder {root} cannot be used: {problem.strerror or problem}; "
            "set EXPLORER_DUMP to a writable folder"
        ) from None


def show_plan(plan: Plan) -> str:
    """The kernel and every role's tree, or its steps once it has them."""
    lines = [show_kernel(plan.kernel)]
    for ring in plan.rings:
        lines.append(f"ring {ring.buffer.name} {ring.levels}")
    for barriers in plan.barriers:
        lines.append(str(barriers))
    for role in plan.roles:
        threads = role_threads(role.role, plan.machine)
        lines.append(f"role {role.role.name} share {role.share[0]}/{role.share[1]}")
        lines += show_steps(role.steps, threads, "  ") if role.steps else _tree(role.tree, threads)
    return "\n".join(lines) + "\n"


def _tree(nest: Nest, threads: int, indent: str = "  ") -> Iterator[str]:
    for item in nest.entries:
        stage = "" if item.stage is None else f" @{item.stage}"
        if isinstance(item, Entry):
            for line in show_steps(item.steps, threads, indent):
                yield line + stage
        else:
            yield f"{indent}scope {item.scope}{stage} if {item.guard}"
            yield from _tree(item, threads, indent + "  ")
            yield from show_steps(item.after, threads, indent)
