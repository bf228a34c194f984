"""Random inputs of large problems, drawn on all cores.

Invariant: the values depend on generator, shape and type alone, not on the number of cores.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

PARTS = 16


def standard_normal(
    rng: np.random.Generator, shape: tuple[int, ...], element: np.dtype[Any] | type = np.float32
) -> np.ndarray[Any, Any]:
    """Standard normal values, drawn in float32 and rounded to a type that is no wider.

    Every part comes from a generator of its own that `rng` has spawned; NumPy draws and converts
    without the interpreter's lock.
    """
    result = np.empty(math.prod(shape), element)
    parts = np.array_split(result, PARTS)

    def fill(generator: np.random.Generator, part: np.ndarray[Any, Any]) -> None:
        part[:] = generator.standard_normal(part.shape, np.float32)

    with ThreadPoolExecutor(PARTS) as pool:
        list(pool.map(fill, rng.spawn(PARTS), parts))
    return result.reshape(shape)
