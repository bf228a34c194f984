"""Writing so that a kill at any moment leaves either the old content or the new one.

A document is written beside its place and renamed; a log grows by whole lines that are on the disk
before the call returns. A line without its end is a kill in the middle of a write, and is dropped.

Invariant: no function here leaves a half-written file under its final name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from explorer.errors import RecordError


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole."""
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(f".{path.name}.part")
    with writing(path):
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


def append_line(path: Path, line: str) -> None:
    """Add one line to a log, and return when it is on the disk."""
    with writing(path), path.open("ab") as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def drop_torn_line(path: Path) -> None:
    """Cut a log after its last whole line; a log that is absent stays so."""
    if not path.exists():
        return
    with writing(path), path.open("r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)


def whole_lines(path: Path) -> list[str]:
    """The complete lines of a log."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    text = content[: content.rfind(b"\n") + 1]
    try:
        return text.decode().splitlines()
    except UnicodeDecodeError as problem:
        raise RecordError(f"{path} is damaged: {problem}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write into one line that names the path."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or problem
        raise RecordError(f"cannot write {path}: {reason}; --out names another folder") from None
