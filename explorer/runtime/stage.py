"""The data that candidates are checked and timed on: inputs, outputs, reference.

The tensors exist in several sets of equal content at different addresses. Timed runs go round the
sets, so that a candidate and its peer find their inputs in memory and not in the last cache, for
which the sets together are more than twice as large. Small problems would need thousands of sets;
their number is bounded, and then the sets of a small problem stay in the cache, for all alike.

Invariant: no run changes an input that another run reads; before every run that is checked an
output is poisoned, and a tensor that is input and output gets its content back.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from explorer.errors import InputError
from explorer.ir.access import outputs
from explorer.ir.interpreter import poison
from explorer.ir.nodes import Buffer, Kernel
from explorer.runtime.host import last_cache_bytes, memory_bytes
from explorer.runtime.library import pointers
from explorer.runtime.tensors import (
    difference,
    on_memory,
    require_finite,
    require_outputs,
    shape_of,
    stored_bytes,
)
from explorer.space import Arrays, Problem, Workload

SETS_MAX = 256
MEMORY_SHARE = 4
_ALIGNMENT = 64


class Stage:
    """Inputs, outputs and reference of one problem."""

    def __init__(
        self,
        workload: Workload,
        problem: Problem,
        seed: int,
        doing: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.kernel: Kernel = workload.trace(problem)
        doing("drawing the inputs")
        self._inputs = workload.draw(problem, np.random.default_rng(seed))
        written = {tensor.name for tensor in outputs(self.kernel)}
        self._in_out = tuple(sorted(written & set(self._inputs)))
        doing("computing the reference")
        # A reference may compute in place, as the kernel does; the inputs stay what they are.
        given = {
            name: array.copy() if name in written else array
            for name, array in self._inputs.items()
        }
        self._reference = {
            name: np.asarray(array, np.float64)
            for name, array in workload.expected(problem, given).items()
        }
        require_outputs(self.kernel, {name: a.shape for name, a in self._reference.items()})
        for name, array in self._reference.items():
            require_finite(name, array.size - int(np.isfinite(array).sum()), array.size)
        doing("placing the tensors")
        self._sets = self._allocate()
        self._pointers = [self._pointers_of(arrays) for arrays in self._sets]
        self._turn = 0

    @property
    def sets(self) -> int:
        """How many sets of tensors there are."""
        return len(self._sets)

    def next(self) -> tuple[Arrays, ctypes.Array[ctypes.c_void_p]]:
        """The next set in turn, as arrays and as a kernel's argument."""
        self._turn = (self._turn + 1) % len(self._sets)
        return self._sets[self._turn], self._pointers[self._turn]

    @property
    def computes_in_place(self) -> bool:
        """Whether a run changes what the next one reads."""
        return bool(self._in_out)

    def restore(self) -> None:
        """Give the set that comes next the inputs that an earlier run has changed."""
        if self._in_out:
            self._give(self._sets[(self._turn + 1) % len(self._sets)])

    def poison(self, arrays: Arrays) -> None:
        """Fill the outputs of a set with NaN; one that is also an input gets its content back."""
        for tensor in self.kernel.tensors:
            if tensor.name in self._reference and tensor.name not in self._in_out:
                arrays[tensor.name].fill(poison(tensor.dtype))
        self._give(arrays)

    def _give(self, arrays: Arrays) -> None:
        for name in self._in_out:
            np.copyto(arrays[name], self._inputs[name])

    def error(self, arrays: Arrays) -> float:
        """The largest ||out - ref|| / ||ref|| over the outputs; infinite for NaN."""
        worst = 0.0
        for name, reference in self._reference.items():
            off = float(np.linalg.norm((arrays[name].astype(np.float64) - reference).ravel()))
            size = float(np.linalg.norm(reference.ravel()))
            error = off / size if size > 0 else off
            worst = max(worst, math.inf if math.isnan(error) else error)
        return worst

    def difference(self, arrays: Arrays, tolerance: float) -> str:
        """Where the outputs of a set are off, in a few words; empty where they are not."""
        for name, reference in self._reference.items():
            found = arrays[name]
            fresh = np.full_like(found, poison(self.kernel.buffer(name).dtype))
            unwritten = (_bytes(found) == _bytes(fresh)).all(axis=-1)
            if name in self._in_out:
                unwritten = np.zeros_like(unwritten)
            if words := difference(name, found, reference, unwritten, tolerance):
                return words
        return ""

    def _pointers_of(self, arrays: Arrays) -> ctypes.Array[ctypes.c_void_p]:
        return pointers([arrays[tensor.name] for tensor in self.kernel.tensors])

    def _allocate(self) -> list[Arrays]:
        layout: list[tuple[Buffer, int]] = []
        used = 0
        for tensor in self.kernel.tensors:
            shape = shape_of(tensor)
            given = self._inputs.get(tensor.name)
            if given is None and tensor.name not in self._reference:
                raise InputError(f"tensor '{tensor.name}' is neither an input nor an output")
            if given is not None and given.shape != shape:
                raise InputError(
                    f"input '{tensor.name}' has shape {given.shape}, the kernel's is {shape}"
                )
            layout.append((tensor, used))
            used += _aligned(stored_bytes(tensor))
        budget = min(2 * last_cache_bytes(), memory_bytes() // MEMORY_SHARE)
        count = 1 + min(SETS_MAX, budget // used)
        memory = _aligned_bytes(used * count)
        return [self._set(memory[used * i : used * (i + 1)], layout) for i in range(count)]

    def _set(self, memory: Any, layout: list[tuple[Buffer, int]]) -> Arrays:
        arrays = {}
        for tensor, offset in layout:
            flat = memory[offset : offset + stored_bytes(tensor)].view(tensor.dtype.numpy)
            flat.fill(poison(tensor.dtype) if tensor.pitch else 0)
            arrays[tensor.name] = on_memory(flat, tensor)
            if tensor.name in self._inputs:
                np.copyto(arrays[tensor.name], self._inputs[tensor.name])
        return arrays


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of every element, along a last axis of their own."""
    whole = np.ascontiguousarray(array)
    return whole.view(np.uint8).reshape(*array.shape, array.dtype.itemsize)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _aligned_bytes(size: int) -> Any:
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]
