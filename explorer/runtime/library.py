"""A compiled kernel, loaded.

Invariant: a library is unloaded only after `ex_close` has ended its threads.
"""

from __future__ import annotations

import ctypes
from _ctypes import dlclose
from collections.abc import Sequence
from typing import Self

import numpy as np


class HungKernel(Exception):
    """A bounded wait of the kernel gave up; the message says which."""


class Library:
    """`run(pointers)` launches the kernel once; a context manager that unloads it."""

    def __init__(self, path: str, wait_limit_ms: int) -> None:
        self._handle = ctypes.CDLL(path)
        self._handle.ex_report.restype = ctypes.c_char_p
        ctypes.c_int.in_dll(self._handle, "ex_wait_limit_ms").value = wait_limit_ms
        self.run = self._handle.ex_run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.ex_close()
        dlclose(self._handle._handle)

    def check(self, status: int) -> None:
        """HungKernel or MemoryError for the status of a run that failed."""
        if status == 1:
            raise HungKernel(self._handle.ex_report().decode(errors="replace"))
        if status:
            what = "memory for its arena" if status == -1 else "threads"
            raise MemoryError(f"the kernel got no {what}")


def pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    """The argument of `Library.run` for these tensors, in the kernel's order."""
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
