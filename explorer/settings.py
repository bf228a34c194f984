"""One frozen Settings object, the only reader of the process environment."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from attrs import frozen


@frozen
class Settings:
    """What the environment says.

    `dump` is the folder that receives every numbered compilation step (EXPLORER_DUMP), `cache` the
    folder of compiled kernels (EXPLORER_CACHE), `cc` the C compiler's command (CC). `traceback`
    asks where an internal error arose (EXPLORER_TRACEBACK).
    """

    dump: Path | None
    cache: Path
    cc: str
    traceback: bool


@cache
def settings() -> Settings:
    """Read the environment once a process."""
    dump = os.environ.get("EXPLORER_DUMP")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Settings(
        dump=Path(dump) if dump else None,
        cache=Path(os.environ.get("EXPLORER_CACHE") or Path(base) / "explorer"),
        cc=os.environ.get("CC") or "cc",
        traceback=bool(os.environ.get("EXPLORER_TRACEBACK")),
    )


def worker_environment() -> dict[str, str]:
    """The environment of a worker process: this one's, with OpenBLAS as it is by default.

    Its threads sleep as soon as they have no work (2**4 cycles), so that they do not spin on a
    core of the kernel that is timed next.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    return kept | {"OPENBLAS_THREAD_TIMEOUT": "4"}
