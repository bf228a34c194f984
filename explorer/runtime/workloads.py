"""Finding workloads and suites by reference: a name in search_spaces/, or FILE.py:NAME.

Invariant: the same reference gives the same workload in the worker process; whatever a user's file
raises when it is loaded becomes one line that names the file.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from explorer.errors import ExplorerError, InputError
from explorer.space import Suite, Workload

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "_bundled" / "search_spaces", _PACKAGE.parent / "search_spaces")


def load_workload(ref: str) -> Workload:
    """The workload of a reference; InputError where there is none or its file cannot be loaded."""
    path, colon, name = ref.rpartition(":")
    if colon and path.endswith(".py"):
        return _workload_in(Path(path).expanduser(), name)
    if ref.endswith(".py"):
        raise InputError(f"{ref} names a file: say which workload of it, {ref}:NAME")
    known = bundled_workloads()
    if ref not in known:
        raise InputError(
            f"unknown search space {ref!r}: known are {', '.join(known)}, or FILE.py:NAME"
        )
    return known[ref]


def absolute_ref(ref: str) -> str:
    """The reference as it reads from any working directory."""
    path, colon, name = ref.rpartition(":")
    if colon and path.endswith(".py"):
        return f"{Path(path).expanduser().resolve()}:{name}"
    return ref


@cache
def bundled_workloads() -> dict[str, Workload]:
    """The workloads that ship with the package, by name."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    found: dict[str, Workload] = {}
    for path in sorted(folder.glob("*.py")) if folder else ():
        for name, value in vars(_load(path)).items():
            if isinstance(value, Workload):
                found.setdefault(name, value)
    return found


def load_suite(name: str) -> Suite:
    """The suite of a name in search_spaces/; InputError lists those known."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    values = [
        value
        for path in (sorted(folder.glob("*.py")) if folder else ())
        for value in vars(_load(path)).values()
    ]
    known = {value.name: value for value in values if isinstance(value, Suite)}
    if name not in known:
        raise InputError(f"unknown suite {name!r}: known are {', '.join(known)}")
    return known[name]


def _workload_in(path: Path, name: str) -> Workload:
    if not path.is_file():
        raise InputError(f"no file {path}")
    members = vars(_load(path.resolve()))
    value = members.get(name)
    if not isinstance(value, Workload):
        known = [each for each, member in members.items() if isinstance(member, Workload)]
        raise InputError(
            f"{path} has no workload {name!r}: it has {', '.join(known) or 'no workload at all'}"
        )
    return value


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """A file that is loaded may import those beside it, behind everything that is installed."""
    entry = str(folder)
    sys.path.append(entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


@cache
def _load(path: Path) -> ModuleType:
    digest = sha256(str(path).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"search_space_{path.stem}_{digest}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with _importable(path.parent):
            spec.loader.exec_module(module)
    except BaseException as problem:
        sys.modules.pop(spec.name, None)
        if isinstance(problem, ExplorerError):
            raise InputError(f"{path}: {problem}") from problem
        if not isinstance(problem, Exception | SystemExit):
            raise
        text = " ".join(str(problem).split())
        raise InputError(f"{path} cannot be loaded: {type(problem).__name__}: {text}") from problem
    return module
