"""The C compiler: finding it, what it compiles for, and a cache of compiled kernels.

Invariant: a cached library was compiled from the same source by the same compiler with the same
flags for the same instruction set, and is complete: files appear under their final name at once,
the library last, and it is as long and of the content that its `.sum` says, or it is made again.
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
    try:
        command = tuple(shlex.split(settings().cc))
    except ValueError as problem:
        raise EnvironmentFault(
            f"CC is not a command: {settings().cc!r}: {problem}; set CC to gcc or clang"
        ) from None
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


def compile_library(source: str, limit_s: float = COMPILE_LIMIT_S) -> Built | CompileFailed:
    """A shared library of the source, from the cache where it is whole. Threads may call it."""
    compiler = find_compiler()
    flags = (*FLAGS, *compiler.native, *SHARED_FLAGS)
    command = " ".join((*compiler.command, *flags))
    parts = (source, command, compiler.version, compiler.target)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    folder = settings().cache / "cpu" / key[:2]
    library = folder / f"{key}.so"
    log = folder / f"{key}.log"
    if _whole(library):
        return Built(key, library, source, _read(log), 0.0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            return _compile_into(compiler, flags, source, library, Path(scratch), limit_s)
    except OSError as problem:
        raise EnvironmentFault(
            f"the kernel cache {folder} cannot be used: {problem.strerror or problem}; "
            "set EXPLORER_CACHE to a writable folder"
        ) from None


def _compile_into(
    compiler: Compiler,
    flags: tuple[str, ...],
    source: str,
    library: Path,
    scratch: Path,
    limit_s: float,
) -> Built | CompileFailed:
    text, made, log = scratch / "kernel.c", scratch / "kernel.so", scratch / "kernel.log"
    text.write_text(source)
    started = time.monotonic()
    arguments = (*flags, str(text), "-o", str(made), "-lm")
    failure, output = run_compiler(compiler, arguments, limit_s)
    seconds = time.monotonic() - started
    if failure is not None:
        return CompileFailed(failure)
    if not made.exists() or not made.stat().st_size:
        raise EnvironmentFault(
            f"'{settings().cc}' reports success and writes no library; set CC to gcc or clang"
        )
    log.write_text(output)
    total = scratch / "kernel.sum"
    total.write_text(_sum(made))
    for each in (log, text, total, made):
        _sync(each)
        each.replace(library.with_suffix(each.suffix))
    return Built(library.stem, library, source, output, seconds)


def _whole(library: Path) -> bool:
    """Whether a library of the cache is there, as it was written."""
    try:
        return library.with_suffix(".sum").read_text() == _sum(library)
    except (OSError, UnicodeDecodeError):
        return False


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def run_compiler(
    compiler: Compiler, arguments: tuple[str, ...], limit_s: float
) -> tuple[str | None, str]:
    """(why it failed or None, everything it printed)."""
    try:
        done = subprocess.run(
            (*compiler.command, *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return f"the compiler took longer than {limit_s:.3g} s", ""
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
