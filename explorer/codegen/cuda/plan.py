"""What a launch needs beside the source: grid, threads, bytes, tensor maps, parameters.

Invariant: a plan is plain data that survives a JSON round-trip, so that a worker process launches
a compiled kernel without the program that it came from.
"""

from __future__ import annotations

from attrs import field, frozen


def _tuple(values: object) -> tuple[int, ...]:
    return tuple(values)  # type: ignore[arg-type]


@frozen
class TensorMap:
    """A tensor map: dims and box innermost first, in elements; pitches in bytes from dim 1 on."""

    tensor: str
    dtype: str
    dims: tuple[int, ...] = field(converter=_tuple)
    pitches_bytes: tuple[int, ...] = field(converter=_tuple)
    box: tuple[int, ...] = field(converter=_tuple)
    swizzle_bytes: int


@frozen
class Parameter:
    """One kernel parameter. `kind`: map (index into the maps), tensor, scalar, workspace, tickets
    or report."""

    kind: str
    name: str


@frozen
class TensorSpec:
    """A tensor argument: row-major and packed."""

    name: str
    dtype: str
    shape: tuple[int, ...] = field(converter=_tuple)


@frozen
class Site:
    """A wait in the source: which role waits for which side of which pipeline."""

    role: str
    pipeline: str
    full: bool


@frozen
class Prediction:
    """What the rules count on: shared bytes, named barriers, and registers a thread at entry.

    `registers_exact` where register requests fix the number, otherwise it is an upper bound.
    """

    shared_bytes: int
    named_barriers: int
    entry_registers: int
    registers_exact: bool


@frozen
class LaunchPlan:
    """How a compiled kernel is launched.

    `grid_blocks` is a multiple of `cluster`, which the source sets. `workspace` are buffers that
    launches use in turn, whatever they hold, and `tickets` 32-bit counters, 0 between launches.
    `report_words` is the size of the hang report in 32-bit words: REPORT_WORDS for each block and
    role, 0 for a kernel whose waits are not bounded.
    """

    entry: str
    arch: str
    grid_blocks: int
    block_threads: int
    shared_bytes: int
    tensors: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    maps: tuple[TensorMap, ...]
    parameters: tuple[Parameter, ...]
    roles: tuple[str, ...]
    sites: tuple[Site, ...]
    prediction: Prediction
    report_words: int = 0
    cluster: int = 1
    workspace: tuple[TensorSpec, ...] = ()
    tickets: int = 0


REPORT_WORDS = 4
"""Words of a record: site + 1 (0: nothing reported), slot, parity, 0."""


@frozen
class CudaKernel:
    """One header-free CUDA C++ source and how to launch what it compiles to."""

    source: str
    plan: LaunchPlan
