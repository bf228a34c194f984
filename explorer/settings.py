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
    folder of compiled kernels (EXPLORER_CACHE), `cc` the C compiler's command (CC).
    """

    dump: Path | None
    cache: Path
    cc: str


@cache
def settings() -> Settings:
    """Read the environment once a process."""
    dump = os.environ.get("EXPLORER_DUMP")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Settings(
        dump=Path(dump) if dump else None,
        cache=Path(os.environ.get("EXPLORER_CACHE") or Path(base) / "explorer"),
        cc=os.environ.get("CC") or "cc",
    )
