"""What ptxas says about a kernel, read from the compile log.

Invariant: nothing is guessed: a log without the expected lines is an error that shows its end.
"""

from __future__ import annotations

import re

from attrs import frozen

from explorer.errors import ExplorerError

_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")
_CODE = re.compile(r"\((C\d{4})\) (.+)")
_NEEDS = re.compile(r"register target of (\d+) or higher")


class LogError(ExplorerError):
    """A compile log that cannot be read."""


@frozen
class Diagnostic:
    """A coded message of ptxas: C7508 ignores setmaxnreg, C7510 and on serialize wgmma."""

    code: str
    message: str


@frozen
class Resources:
    """What the compiled kernel takes: registers a thread, spilled bytes, static shared bytes,
    named barriers, and what ptxas had to say."""

    registers: int
    spill_bytes: int
    shared_bytes: int
    barriers: int
    diagnostics: tuple[Diagnostic, ...] = ()


def read_log(log: str) -> Resources:
    """The resources in a log of a kernel compiled with --ptxas-options=-v."""
    used = _USED.search(log)
    if used is None:
        tail = " ".join(log.split())[-200:]
        raise LogError(f"compile log: no line about used registers; it ends with: {tail}")
    spills = sum(int(stores) + int(loads) for _, stores, loads in _FRAME.findall(log))
    shared = _SHARED.search(log)
    return Resources(
        registers=int(used.group(1)),
        spill_bytes=spills,
        shared_bytes=int(shared.group(1)) if shared else 0,
        barriers=int(used.group(2) or 0),
        diagnostics=read_diagnostics(log),
    )


def read_diagnostics(log: str) -> tuple[Diagnostic, ...]:
    """The coded messages of ptxas, each once."""
    found = (Diagnostic(code, " ".join(text.split())) for code, text in _CODE.findall(log))
    return tuple(dict.fromkeys(found))


def needed_registers(log: str) -> int | None:
    """The register target that ptxas asks for where it refuses a kernel (C7602)."""
    found = _NEEDS.search(log)
    return int(found.group(1)) if found else None
