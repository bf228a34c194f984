"""A worker process as its owner sees it: started, spoken to, killed.

It is started as a module of this package, so that it imports nothing of the user's program: a
script needs no guard around its main part.

Invariant: a worker that is closed or killed leaves no process behind, its children included; one
whose owner dies sees the end of its request pipe and exits by itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from explorer.runtime.protocol import Channel, Closed, Message
from explorer.settings import worker_environment

CLOSE_LIMIT_S = 2.0
ENDING_S = 0.5
_ERROR_TAIL_BYTES = 4096
_ROOT = Path(__file__).resolve().parents[2]


def _environment() -> dict[str, str]:
    """The worker imports this very package, whatever its working directory holds."""
    environment = worker_environment()
    paths = [str(_ROOT), environment.get("PYTHONPATH", "")]
    return environment | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


class Worker:
    """A running `python -m MODULE REQUEST_FD REPLY_FD`."""

    def __init__(self, module: str = "explorer.runtime.worker") -> None:
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives with the worker
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    module,
                    str(request_read),
                    str(reply_write),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(request_read, reply_write),
                env=_environment(),
                start_new_session=True,
            )
        finally:
            os.close(request_read)
            os.close(reply_write)
        self.channel = Channel(reply_read, request_write)

    def send(self, message: Message) -> None:
        """Send a request; a dead worker is noticed when its reply is awaited."""
        try:
            self.channel.send(message)
        except Closed:
            return

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs; a worker that closed its pipe is given a moment to end."""
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return True
        return False

    @property
    def running(self) -> bool:
        """Whether it runs now, without waiting."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it and everything it started."""
        self._kill_group()
        self.channel.close()
        self._errors.close()

    def close(self) -> None:
        """Let it end by itself, then make sure."""
        self.channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_LIMIT_S)
        self._kill_group()
        self._errors.close()

    def how_it_ended(self) -> str:
        """One line on why a dead worker died, with the last line it printed."""
        status = self._process.wait()
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            how = f"killed by {name}"
        else:
            how = f"exit status {status}"
        last = self._last_line()
        return f"{how}: {last}" if last else how

    def _last_line(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        tail = os.pread(self._errors.fileno(), _ERROR_TAIL_BYTES, max(0, size - _ERROR_TAIL_BYTES))
        lines = [line.strip() for line in tail.decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:200]

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
