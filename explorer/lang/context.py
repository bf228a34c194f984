"""The kernel being traced, and how messages name a line of the user's source.

Invariant: at most one kernel is traced per thread; every operation of the surface asks `current`
for it, so that a call outside a kernel is an error in one line.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING

from attrs import define, field

from explorer.errors import KernelError

if TYPE_CHECKING:
    from explorer.lang.builder import Builder

_current: contextvars.ContextVar[Builder | None] = contextvars.ContextVar("kernel", default=None)


@define
class Trail:
    """The code objects whose frames count as the user's kernel."""

    codes: set[CodeType] = field(factory=set)

    def add(self, code: CodeType) -> None:
        """Count a code object and all those nested in it."""
        self.codes.add(code)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.add(constant)

    def here(self) -> tuple[str, int]:
        """File and line of the innermost running frame of the kernel; ("", 0) where none runs."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code in self.codes:
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return "", 0


@contextmanager
def tracing(builder: Builder) -> Iterator[None]:
    """Make `builder` the current one."""
    token = _current.set(builder)
    try:
        yield
    finally:
        _current.reset(token)


def current(what: str) -> Builder:
    """The builder of the kernel being traced; KernelError where there is none."""
    builder = _current.get()
    if builder is None:
        raise KernelError(
            f"{what} is used outside a kernel: call it in a function decorated with @T.prim_func"
        )
    return builder


def located(message: str) -> KernelError:
    """A KernelError that starts with the user's file and line, where a kernel is being traced."""
    builder = _current.get()
    file, line = builder.trail.here() if builder else ("", 0)
    return KernelError(f"{file}:{line}: {message}" if file else message)
