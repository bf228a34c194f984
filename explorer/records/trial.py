"""Trials, the best schedule, and the keys that say when two records may be compared.

Invariant: two trials are comparable only under equal `StudyKey`s. Whatever changes a time or a
verdict is part of the key: the space, the kernel, the rules, the problem, the device, the tool
chain, and the contract of the measurement.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, fields, frozen

from explorer.data import digest
from explorer.machine import Machine
from explorer.records.outcomes import Measured, Outcome
from explorer.schedule.bound import Schedule


def _pairs(values: object) -> tuple[tuple[str, int], ...]:
    items = values.items() if isinstance(values, Mapping) else values
    return tuple((name, value) for name, value in items)  # type: ignore[attr-defined]


@frozen
class Contract:
    """How a candidate is judged and timed.

    `inputs` and `reference` are digests of the files that draw and compute them; None where a
    function is in no readable file, in which case nothing of the run may be reused. `outputs` are
    the arrays that are compared, `peer` what the race ran against.
    """

    tolerance: float
    outputs: tuple[str, ...]
    inputs: str | None
    reference: str | None
    repeats: int
    limit_s: float
    peer: str = ""


@frozen
class StudyKey:
    """What a study belongs to. `space`, `kernel` and `rules` are digests."""

    space: str
    kernel: str
    rules: str
    problem: str
    device: str
    toolchain: str
    contract: Contract

    @property
    def digest(self) -> str:
        """Twelve hex digits that identify the study by content."""
        return digest(self)

    @property
    def reusable(self) -> bool:
        """Whether every function behind the measurement has a stable identity."""
        return self.contract.inputs is not None and self.contract.reference is not None

    def trial(self, schedule_digest: str) -> str:
        """The key of a trial: the study's, and the canonical schedule."""
        return digest(self.digest, schedule_digest)


def first_difference(one: StudyKey, other: StudyKey) -> str | None:
    """The first field in which two keys differ, with both values; None where they are equal."""
    for attribute in fields(StudyKey):
        ours, theirs = getattr(one, attribute.name), getattr(other, attribute.name)
        if ours != theirs:
            return f"{attribute.name} {ours} there, {theirs} here"
    return None


@frozen
class Trial:
    """One candidate and what became of it.

    `origin` says who proposed it (prior, fill, model, retry). `solver_ms` is the solver's time
    for this proposal, `compile_s` and `measure_s` the wall time of building and of measuring.
    """

    number: int
    assignment: tuple[tuple[str, int], ...] = field(converter=_pairs)
    schedule_digest: str
    outcome: Outcome
    origin: str
    solver_ms: float = 0.0
    compile_s: float = 0.0
    measure_s: float = 0.0

    @property
    def choices(self) -> dict[str, int]:
        """The assignment as a dictionary."""
        return dict(self.assignment)

    @property
    def time_us(self) -> float | None:
        """The median time, None where it was not measured."""
        return self.outcome.time_us if isinstance(self.outcome, Measured) else None


@frozen
class Baseline:
    """The peer, interleaved with the finalists. `ratio` is its time over the best time."""

    name: str
    time_us: float
    ratio: float


@frozen
class BestSchedule:
    """The winner of the race, with the 95 % confidence interval of its median.

    `ties` are the numbers of the trials that the measurement cannot tell from the winner, itself
    included. `throughput` is in `unit`.
    """

    schedule: Schedule
    trial: int
    time_us: float
    low_us: float
    high_us: float
    samples_us: tuple[float, ...]
    throughput: float
    unit: str
    ties: tuple[int, ...]
    baseline: Baseline | None = None


@frozen
class SkeletonNote:
    """What a skeleton's number stands for, and the choices that it uses."""

    title: str
    choices: tuple[str, ...]


@frozen
class RunInfo:
    """What a run was asked to do, and how far it came.

    `space` is the reference that loads the workload again; `sizes` and `dtype` are its problem.
    `machine` is the description that the rules were applied with, refined by what the host has.
    `state` is one of running, done, exhausted, unknown (the solver gave up), interrupted, failed.
    `refused` counts candidates that were refused after they had been proposed. `setup_ms` is the
    solver's time before the first proposal.
    """

    key: StudyKey
    space: str
    workload: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    machine: Machine
    seed: int
    trials: int
    seconds: float
    batch: int
    lag: int
    prior: tuple[tuple[tuple[str, int], ...], ...]
    skeletons: tuple[SkeletonNote, ...] = ()
    state: str = "running"
    refused: int = 0
    setup_ms: float = 0.0
    elapsed_s: float = 0.0
