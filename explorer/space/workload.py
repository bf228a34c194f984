"""What a user writes: a kernel, its problem sizes, its tile sizes, a reference, peers.

A `Workload` is the value that a file of `search_spaces/` defines. `Problem` is one instance of it:
concrete sizes and an element type.

Invariant: a workload holds no machine state; its functions are pure, so that a worker process that
imports the same file computes the same inputs and reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import field, frozen

from explorer.errors import InputError
from explorer.ir.dtypes import DType, dtype
from explorer.ir.nodes import Kernel

Arrays = dict[str, np.ndarray[Any, Any]]


@frozen
class Problem:
    """Sizes by name, in the workload's order, and the element type of the inputs."""

    sizes: tuple[tuple[str, int], ...]
    dtype: DType

    def __getitem__(self, name: str) -> int:
        return dict(self.sizes)[name]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.sizes) + f" {self.dtype}"


@frozen
class Peer:
    """A library that does the same work: `run(arrays)` computes it once, in place or not.

    `machine` names the machine on which it can be timed; `name` is printed.
    """

    name: str
    machine: str
    run: Callable[[Problem, Arrays], Any]


@frozen
class Hint:
    """A candidate that experience suggests: a skeleton by its title, and values of choices.

    Choices that it does not name are left to the search's defaults; what is not legal is moved to
    the nearest legal candidate.
    """

    skeleton: str
    values: Mapping[str, int]


@frozen
class Workload:
    """A search problem.

    `kernel(problem)` traces the plain kernel with its tile sizes open. `tiles` gives the values of
    each Param per machine name. `reference(problem, inputs)` computes the outputs in float64.
    `inputs(problem, rng)` draws random inputs. `work(problem)` is the operations of one run, and
    `unit` their name (FLOP or B). `tolerance` bounds ||out - ref|| / ||ref|| per dtype name.
    `hints` are tried first, per machine name. `usual_dtypes` is the element type per machine name
    where none is asked for; elsewhere it is the first of `dtypes`.
    """

    name: str
    sizes: Mapping[str, int]
    kernel: Callable[[Problem], Kernel]
    tiles: Mapping[str, Mapping[str, tuple[int, ...]]]
    inputs: Callable[[Problem, np.random.Generator], Arrays]
    reference: Callable[[Problem, Arrays], Arrays]
    work: Callable[[Problem], float]
    tolerance: Mapping[str, float]
    unit: str = "FLOP"
    dtypes: tuple[str, ...] = ("float32",)
    usual_dtypes: Mapping[str, str] = field(factory=dict)
    peers: tuple[Peer, ...] = ()
    hints: Mapping[str, tuple[Hint, ...]] = field(factory=dict)
    description: str = field(default="")

    def problem(
        self,
        sizes: Mapping[str, int] | None = None,
        kind: str | None = None,
        machine: str = "",
    ) -> Problem:
        """The problem with some sizes replaced; InputError for an unknown or non-positive one.

        Without a `kind` the element type is the usual one on that machine.
        """
        given = dict(sizes or {})
        unknown = [name for name in given if name not in self.sizes]
        if unknown:
            raise InputError(
                f"unknown size {unknown[0]!r}: {self.name} has {', '.join(self.sizes)}"
            )
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"size {name}={value!r} must be a positive integer")
        element = dtype(kind or self.usual_dtypes.get(machine, self.dtypes[0]))
        if element.name not in self.dtypes:
            raise InputError(
                f"{self.name} does not run on {element}: it takes {', '.join(self.dtypes)}"
            )
        return Problem(tuple((n, given.get(n, v)) for n, v in self.sizes.items()), element)

    def peer(self, machine: str) -> Peer | None:
        """The peer that is timed on a machine, or None."""
        return next((peer for peer in self.peers if peer.machine == machine), None)
