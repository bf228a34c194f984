"""The C compiler: finding it, what it compiles for, and a cache of compiled kernels.

Invariant: a cached library was compiled from the same source by the same compiler with the same
flags for the same instruction set, and is complete: files appear under their final name at once.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from attrs import frozen

from explorer.errors import EnvironmentFault
from explorer.records import CompileFailed
from explorer.settings import settings

FLAGS = ("-std=gnu11", "-O3", "-fwrapv", "-pthread")
SHARED_FLAGS = ("-shared", "-fPIC")
NATIVE = (("-march=native",), ("-mcpu=native",), ())
COMPILE_LIMIT_S = 120.0
_MESSAGE_LINES = 5


@frozen
class Compiler:
    """A C compiler: its command, its version line, and the host as it sees it.

    `native` are the flags that ask for the host's instructions, `macros` the names of the macros
    that it then defines.
    """

    command: tuple[str, ...]
    version: str
    native: tuple[str, ...]
    macros: frozenset[str]

    @property
    def target(self) -> str:
        """Twelve hex digits that identify the instruction set compiled for."""
        return hashlib.sha256("\n".join(sorted(self.macros)).encode()).hexdigest()[:12]


@frozen
class Built:
    """A compiled kernel. `seconds` is the compiler's time, 0 where the cache had it."""

    key: str
    library: Path
    source: str
    log: str
    seconds: float


@cache
def find_compiler() -> Compiler:
    """The compiler of this host; EnvironmentFault where there is none that works."""
    command = tuple(shlex.split(settings().cc))
    if not command or shutil.which(command[0]) is None:
        raise EnvironmentFault(
            f"no C compiler: '{settings().cc}' is not on PATH; install gcc or clang, or set CC"
        )
    version = _output((*command, "--version"))
    for native in NATIVE:
        macros = _output((*command, *native, "-dM", "-E", "-x", "c", os.devnull))
        if version is not None and macros is not None:
            names = (line.split(maxsplit=2) for line in macros.splitlines())
            defined = frozenset(each[1] for each in names if len(each) > 1)
            return Compiler(command, version.splitlines()[0].strip(), native, defined)
    raise EnvironmentFault(f"'{settings().cc}' does not run as a C compiler; set CC to one")


def _output(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 and done.stdout else None


def compiler_version() -> str:
    """The compiler's version line; EnvironmentFault where there is none."""
    return find_compiler().version


def compile_library(source: str) -> Built | CompileFailed:
    """A shared library of the source, from the cache where it is. Threads may call it."""
    compiler = find_compiler()
    flags = (*FLAGS, *compiler.native, *SHARED_FLAGS)
    command = " ".join((*compiler.command, *flags))
    parts = (source, command, compiler.version, compiler.target)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    folder = settings().cache / "cpu" / key[:2]
    library = folder / f"{key}.so"
    log = folder / f"{key}.log"
    if library.exists():
        return Built(key, library, source, _read(log), 0.0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            return _compile_into(compiler, flags, source, key, library, Path(scratch))
    except OSError as problem:
        raise EnvironmentFault(
            f"the kernel cache {folder} cannot be used: {problem.strerror or problem}; "
            "set EXPLORER_CACHE to a writable folder"
        ) from None


def _compile_into(
    compiler: Compiler,
    flags: tuple[str, ...],
    source: str,
    key: str,
    library: Path,
    scratch: Path,
) -> Built | CompileFailed:
    text, made, log = scratch / "kernel.c", scratch / "kernel.so", scratch / "kernel.log"
    text.write_text(source)
    started = time.monotonic()
    failure, output = run_compiler(compiler, (*flags, str(text), "-o", str(made), "-lm"))
    seconds = time.monotonic() - started
    if failure is not None:
        return CompileFailed(failure)
    log.write_text(output)
    log.replace(library.with_suffix(".log"))
    text.replace(library.with_suffix(".c"))
    made.replace(library)
    return Built(key, library, source, output, seconds)


def run_compiler(compiler: Compiler, arguments: tuple[str, ...]) -> tuple[str | None, str]:
    """(why it failed or None, everything it printed)."""
    try:
        done = subprocess.run(
            (*compiler.command, *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMPILE_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"the compiler took longer than {COMPILE_LIMIT_S:g} s", ""
    output = done.stdout + done.stderr
    if done.returncode == 0:
        return None, output
    lines = [line for line in output.splitlines() if "error" in line] or output.splitlines()
    return "; ".join(lines[:_MESSAGE_LINES]) or f"exit status {done.returncode}", output


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
