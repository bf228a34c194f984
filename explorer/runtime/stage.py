"""The data that candidates are checked and timed on: inputs, outputs, reference.

The tensors exist in several sets of equal content at different addresses. Timed runs go round the
sets, so that a candidate and its peer find their inputs in memory and not in the last cache, for
which the sets together are more than twice as large. Small problems would need thousands of sets;
their number is bounded, and then the sets of a small problem stay in the cache, for all alike.

Invariant: no run changes an input that another run reads; an output is poisoned before every run
that is checked.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from explorer.errors import InputError
from explorer.expr import evaluate
from explorer.ir.interpreter import poison
from explorer.ir.nodes import Kernel
from explorer.runtime.host import last_cache_bytes, memory_bytes
from explorer.runtime.library import pointers
from explorer.space import Arrays, Problem, Workload

SETS_MAX = 256
MEMORY_SHARE = 4
_ALIGNMENT = 64


class Stage:
    """Inputs, outputs and reference of one problem."""

    def __init__(self, workload: Workload, problem: Problem, seed: int) -> None:
        self.kernel: Kernel = workload.kernel(problem)
        rng = np.random.default_rng(seed)
        inputs = workload.inputs(problem, rng)
        self._reference = {
            name: np.asarray(array, np.float64)
            for name, array in workload.reference(problem, inputs).items()
        }
        self._inputs = inputs
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

    def poison(self, arrays: Arrays) -> None:
        """Fill the outputs of a set with NaN; one that is also an input gets its content back."""
        for tensor in self.kernel.tensors:
            if tensor.name in self._inputs and tensor.name in self._reference:
                np.copyto(arrays[tensor.name], self._inputs[tensor.name])
            elif tensor.name in self._reference:
                arrays[tensor.name].fill(poison(tensor.dtype))

    def error(self, arrays: Arrays) -> float:
        """The largest ||out - ref|| / ||ref|| over the outputs; infinite for NaN."""
        worst = 0.0
        for name, reference in self._reference.items():
            off = float(np.linalg.norm((arrays[name].astype(np.float64) - reference).ravel()))
            size = float(np.linalg.norm(reference.ravel()))
            error = off / size if size > 0 else off
            worst = max(worst, math.inf if math.isnan(error) else error)
        return worst

    def _pointers_of(self, arrays: Arrays) -> ctypes.Array[ctypes.c_void_p]:
        return pointers([arrays[tensor.name] for tensor in self.kernel.tensors])

    def _allocate(self) -> list[Arrays]:
        layout: list[tuple[str, tuple[int, ...], np.dtype[Any], int]] = []
        used = 0
        for tensor in self.kernel.tensors:
            shape = tuple(evaluate(size) for size in tensor.shape)
            given = self._inputs.get(tensor.name)
            if given is None and tensor.name not in self._reference:
                raise InputError(f"tensor '{tensor.name}' is neither an input nor an output")
            if given is not None and given.shape != shape:
                raise InputError(
                    f"input '{tensor.name}' has shape {given.shape}, the kernel's is {shape}"
                )
            layout.append((tensor.name, shape, tensor.dtype.numpy, used))
            used += _aligned(math.prod(shape) * tensor.dtype.numpy.itemsize)
        budget = min(2 * last_cache_bytes(), memory_bytes() // MEMORY_SHARE)
        count = 1 + min(SETS_MAX, budget // used)
        memory = _aligned_bytes(used * count)
        return [self._set(memory[used * i : used * (i + 1)], layout) for i in range(count)]

    def _set(
        self, memory: Any, layout: list[tuple[str, tuple[int, ...], np.dtype[Any], int]]
    ) -> Arrays:
        arrays = {}
        for name, shape, dtype, offset in layout:
            size = math.prod(shape) * dtype.itemsize
            array = memory[offset : offset + size].view(dtype).reshape(shape)
            if name in self._inputs:
                np.copyto(array, self._inputs[name])
            else:
                array.fill(0)
            arrays[name] = array
        return arrays


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _aligned_bytes(size: int) -> Any:
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]
