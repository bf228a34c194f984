"""What worker processes and their owners say to each other: JSON lines over pipes of their own.

Invariant: nothing but messages travels on these pipes; what kernels and users' code print goes to
the worker's error file.
"""

from __future__ import annotations

import json
import os
import select
import time

from attrs import frozen

from explorer.data import structure, unstructure
from explorer.records.outcomes import Outcome

MESSAGE_BYTES_MAX = 64 << 20


@frozen
class Start:
    """Load the workload, draw inputs, compute the reference."""

    workload: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    machine: str
    tolerance: float
    limit_s: float
    seed: int


@frozen
class Measure:
    """Check a library's result, then time it."""

    library: str
    repeats: int


@frozen
class Race:
    """Time libraries, and the peer after them, in turns."""

    libraries: tuple[str, ...]
    rounds: int
    with_peer: bool


@frozen
class Ready:
    """The worker has inputs and reference."""


@frozen
class Doing:
    """What the worker does before it is ready."""

    what: str


@frozen
class Began:
    """The worker begins with an entry of a race, or a step of a measurement."""

    entry: int


@frozen
class Ended:
    """The outcome of a measurement."""

    outcome: Outcome


@frozen
class Raced:
    """Samples in microseconds per entry; None where it failed or is missing."""

    samples_us: tuple[tuple[float, ...] | None, ...]


@frozen
class Refused:
    """The request cannot be served, and why; `fault` if the environment is to blame."""

    message: str
    fault: bool


@frozen
class Compile:
    """Compile a source for an architecture."""

    source: str
    arch: str


@frozen
class CompileEnded:
    """The compiled kernel in base64, the compiler's log and its seconds."""

    cubin: str
    log: str
    seconds: float


Command = Start | Measure | Race | Compile
Message = Command | Ready | Doing | Began | Ended | Raced | CompileEnded | Refused
_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        Start, Measure, Race, Compile, Ready, Doing, Began, Ended, Raced, CompileEnded, Refused,
    )
}  # fmt: skip


class Closed(Exception):
    """The other side is gone."""


class NoAnswer(Exception):
    """The other side said nothing within the time."""


class Channel:
    """One side of a conversation over two file descriptors that it owns."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._pending = b""

    def send(self, message: Message) -> None:
        """Send one message; Closed if nobody reads."""
        data = json.dumps([type(message).__name__, unstructure(message)]).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except OSError:
            raise Closed from None

    def receive(self, limit_s: float | None = None) -> Message:
        """The next message; NoAnswer after `limit_s`, Closed at the end."""
        end = None if limit_s is None else time.monotonic() + limit_s
        while b"\n" not in self._pending:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([self._read_fd], [], [], left)[0]:
                raise NoAnswer
            data = os.read(self._read_fd, 1 << 16)
            if not data or len(self._pending) > MESSAGE_BYTES_MAX:
                raise Closed
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        kind, fields = json.loads(line)
        return structure(fields, _KINDS[kind])

    def close(self) -> None:
        """Close both descriptors."""
        for fd in (self._read_fd, self._write_fd):
            os.close(fd)
