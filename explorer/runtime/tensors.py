"""What a kernel's tensors must be: whole, as the reference says, and small enough for the host.

Invariant: an output that the kernel writes is compared in every element with a reference of its
own shape; nothing is broadcast, and nothing that a kernel writes goes unread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.errors import InputError
from explorer.expr import evaluate
from explorer.ir.access import inputs, outputs
from explorer.ir.nodes import Buffer, Kernel
from explorer.runtime.host import memory_bytes

Array = np.ndarray[Any, Any]


def shape_of(tensor: Buffer) -> tuple[int, ...]:
    """The extents of a tensor of a traced problem."""
    return tuple(evaluate(extent) for extent in tensor.shape)


def stored_elements(tensor: Buffer) -> int:
    """The elements that a tensor of a traced problem takes in memory, gaps between rows too."""
    shape = shape_of(tensor)
    return math.prod(shape[:-1]) * tensor.pitch if tensor.pitch else math.prod(shape)


def stored_bytes(tensor: Buffer) -> int:
    """The bytes of `stored_elements`."""
    return stored_elements(tensor) * tensor.dtype.numpy.itemsize


def on_memory(memory: Any, tensor: Buffer) -> Any:
    """A flat array of `stored_elements` as the tensor, its gaps left out."""
    shape = shape_of(tensor)
    if not tensor.pitch:
        return memory.reshape(shape)
    return memory.reshape(*shape[:-1], tensor.pitch)[..., : shape[-1]]


def require_outputs(kernel: Kernel, found: Mapping[str, tuple[int, ...]]) -> None:
    """InputError unless a reference gives every output of the kernel, and no more, whole."""
    written = {tensor.name: shape_of(tensor) for tensor in outputs(kernel)}
    for name, shape in written.items():
        if name not in found:
            given = ", ".join(found) or "nothing"
            raise InputError(
                f"the kernel writes '{name}', the reference gives {given}: return every output"
            )
        if found[name] != shape:
            raise InputError(
                f"the reference of '{name}' has shape {found[name]}, the kernel's is {shape}"
            )
    if extra := [name for name in found if name not in written]:
        raise InputError(
            f"the reference gives '{extra[0]}', which the kernel does not write: "
            f"it writes {', '.join(written) or 'nothing'}"
        )


def require_finite(name: str, others: int, size: int) -> None:
    """InputError where `others` of a reference's `size` elements are NaN or infinite: outputs are
    poisoned with NaN, and an error is a difference."""
    if others:
        raise InputError(
            f"the reference of '{name}' is not finite at {others} of {size} elements: "
            "give inputs whose result is"
        )


def require_memory(kernel: Kernel) -> None:
    """InputError where the host cannot hold the inputs, one set of tensors and the reference."""
    drawn = sum(map(stored_bytes, inputs(kernel)))
    one_set = sum(map(stored_bytes, kernel.tensors))
    reference = sum(8 * math.prod(shape_of(tensor)) for tensor in outputs(kernel))
    needed, held = drawn + one_set + reference, memory_bytes()
    if needed > held:
        raise InputError(
            f"the tensors and their float64 reference take {needed / 2**30:.1f} GiB, "
            f"the host has {held / 2**30:.1f} GiB; use smaller sizes"
        )


def difference(
    name: str, found: Array, reference: Array, unwritten: Array, tolerance: float
) -> str:
    """Where an output is off: how much of it nobody wrote, or its first wrong element."""
    if left := int(np.count_nonzero(unwritten)):
        return f"{left} of {found.size} elements of {name} were never written"
    found = found.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        scale = math.sqrt(float(np.mean(reference**2))) if reference.size else 0.0
        wrong = ~(np.abs(found - reference) <= tolerance * np.maximum(np.abs(reference), scale))
    if not wrong.any():
        return ""
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    index = ", ".join(map(str, map(int, place)))
    return f"{name}[{index}] is {found[place]:.6g}, the reference {reference[place]:.6g}"
