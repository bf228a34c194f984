"""The worker process of a session: `python -m explorer.runtime.worker REQUEST_FD REPLY_FD`.

It owns the device: it loads the workload, draws the inputs, computes the reference once, and then
checks and times libraries on request.

Invariant: it ends when its request pipe does, whatever it is doing at that moment; what kernels
and users' code print never reaches the reply pipe.
"""

from __future__ import annotations

import os
import sys
from queue import SimpleQueue
from threading import Thread

from explorer.errors import EnvironmentFault, ExplorerError
from explorer.ir.dtypes import dtype
from explorer.runtime.backend import Runner, runner_of
from explorer.runtime.protocol import (
    Began,
    Channel,
    Closed,
    Doing,
    Ended,
    Measure,
    Message,
    Race,
    Raced,
    Ready,
    Refused,
    Start,
)
from explorer.runtime.workloads import load_workload
from explorer.space import Problem


def serve(channel: Channel) -> None:
    """Answer requests; the process exits when there are no more."""
    requests: SimpleQueue[Message] = SimpleQueue()
    Thread(target=_listen, args=(channel, requests), daemon=True).start()
    runner: Runner | None = None
    while True:
        request = requests.get()
        try:
            if isinstance(request, Start):
                runner = None  # its tensors are given back before the next ones are placed
                runner = _start(channel, request)
                channel.send(Ready())
            elif runner is not None:
                _answer(channel, runner, request)
        except Closed:
            return
        except ExplorerError as problem:
            channel.send(Refused(str(problem), isinstance(problem, EnvironmentFault)))
        except Exception as problem:  # of the user's inputs, reference or peer
            text = " ".join(str(problem).split())
            channel.send(Refused(f"the workload failed: {type(problem).__name__}: {text}", False))


def _listen(channel: Channel, requests: SimpleQueue[Message]) -> None:
    try:
        while True:
            requests.put(channel.receive())
    except Closed:
        os._exit(0)
    finally:
        os._exit(1)


def _start(channel: Channel, request: Start) -> Runner:
    def doing(what: str) -> None:
        channel.send(Doing(what))

    workload = load_workload(request.workload)
    problem = Problem(request.sizes, dtype(request.dtype))
    return runner_of(
        workload,
        problem,
        request.machine,
        request.tolerance,
        request.limit_s,
        request.seed,
        doing,
    )


def _answer(channel: Channel, runner: Runner, request: Message) -> None:
    def began(entry: int) -> None:
        channel.send(Began(entry))

    match request:
        case Measure(library, repeats):
            channel.send(Ended(runner.measure(library, repeats, began)))
        case Race(libraries, rounds, with_peer):
            channel.send(Raced(runner.race(libraries, rounds, with_peer, began)))


def main() -> None:
    """Serve on the two descriptors of the command line."""
    request_fd, reply_fd = map(int, sys.argv[1:3])
    for fd in (request_fd, reply_fd):
        os.set_inheritable(fd, False)
    serve(Channel(request_fd, reply_fd))


if __name__ == "__main__":
    main()
