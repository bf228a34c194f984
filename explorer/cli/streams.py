"""The standard streams of a command.

Invariant: descriptors 0 to 2 are open before anything else opens a file; under `--json` nothing
but the answer reaches stdout, whatever a user's file prints or writes to descriptor 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STDOUT, STDERR = 1, 2


def open_missing() -> None:
    """Open the null device in place of each standard stream that the caller closed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
            stream = os.fdopen(number, "r" if number == 0 else "w", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


@contextmanager
def answer_alone(wanted: bool) -> Iterator[None]:
    """Send to stderr what is printed inside, where wanted; print the answer after it."""
    if not wanted:
        yield
        return
    stdout = sys.stdout
    stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        for stream in (stdout, sys.__stdout__):
            if stream is not None:
                stream.flush()
        sys.stdout = stdout
        os.dup2(kept, STDOUT)
        os.close(kept)


def abandon_stdout() -> None:
    """Send what stdout still holds, and what exit hooks print, to the null device."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDOUT)
        os.close(null)
