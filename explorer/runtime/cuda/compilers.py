"""Compiler processes: NVRTC in parallel, and away from the process that searches.

Invariant: a compiler that dies or does not end costs one candidate; the next gets a new process.
"""

from __future__ import annotations

import base64
from queue import LifoQueue

from explorer.errors import EnvironmentFault
from explorer.records import CompileFailed
from explorer.runtime.compiler import COMPILE_LIMIT_S
from explorer.runtime.cuda.compile import Compiled
from explorer.runtime.cuda.log import read_log
from explorer.runtime.process import Worker
from explorer.runtime.protocol import Closed, Compile, CompileEnded, NoAnswer, Refused

MODULE = "explorer.runtime.cuda.compile_worker"


class Compilers:
    """At most `processes` compilers, each started when it is first needed."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        # The last one that worked is the next to work, so that few are started for few sources.
        self._idle: LifoQueue[Worker | None] = LifoQueue()
        for _ in range(processes):
            self._idle.put(None)

    def compile(
        self, source: str, arch: str, limit_s: float = COMPILE_LIMIT_S
    ) -> Compiled | CompileFailed:
        """The compiled source; blocks. Safe to call from several threads.

        EnvironmentFault where there is no NVRTC.
        """
        worker = self._idle.get()
        kept: Worker | None = None
        try:
            worker = worker or Worker(MODULE)
            worker.send(Compile(source, arch))
            reply = worker.channel.receive(limit_s)
            kept = worker
        except NoAnswer:
            return CompileFailed(f"the compiler did not end within {limit_s:g} s")
        except Closed:
            assert worker is not None
            how = "closed its pipe" if worker.alive else worker.how_it_ended()
            return CompileFailed(f"the compiler process died: {how}")
        finally:
            if worker is not None and kept is None:
                worker.kill()
            self._idle.put(kept)
        if isinstance(reply, Refused):
            if reply.fault:
                raise EnvironmentFault(reply.message)
            return CompileFailed(reply.message)
        assert isinstance(reply, CompileEnded)
        cubin = base64.b64decode(reply.cubin)
        return Compiled(cubin, reply.log, read_log(reply.log), reply.seconds)

    def close(self) -> None:
        """End the processes, each after what it is compiling."""
        workers = [self._idle.get() for _ in range(self._processes)]
        for worker in workers:
            if worker is not None:
                worker.kill()
            self._idle.put(None)
