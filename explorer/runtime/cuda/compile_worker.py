"""A compiler process: `python -m explorer.runtime.cuda.compile_worker REQUEST_FD REPLY_FD`.

Invariant: it answers every request, and ends when its request pipe does.
"""

from __future__ import annotations

import base64
import sys

from explorer.errors import EnvironmentFault, ExplorerError
from explorer.runtime.cuda.compile import compile_source
from explorer.runtime.protocol import Channel, Closed, Compile, CompileEnded, Message, Refused


def answer(request: Message) -> Message:
    """The compiled kernel, or why there is none."""
    assert isinstance(request, Compile), f"a compiler does not know {type(request).__name__}"
    try:
        compiled = compile_source(request.source, request.arch)
    except ExplorerError as problem:
        return Refused(str(problem), isinstance(problem, EnvironmentFault))
    cubin = base64.b64encode(compiled.cubin).decode()
    return CompileEnded(cubin, compiled.log, compiled.seconds)


def main() -> None:
    """Serve on the two descriptors of the command line."""
    channel = Channel(*map(int, sys.argv[1:3]))
    try:
        while True:
            channel.send(answer(channel.receive()))
    except Closed:
        return


if __name__ == "__main__":
    main()
