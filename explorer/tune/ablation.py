"""The ablation of a winner: each of its features taken away alone, and what that costs.

A feature is taken away by fixing the choices that make it; the solver then finds the legal
assignment that is nearest to the winner. What else had to move is told with the result.

Invariant: a step differs from the winner in the feature that it names; all steps, the winner and
the peer are timed in the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median

from attrs import frozen

from explorer.constraints import FeasibleModel
from explorer.data import dumps
from explorer.errors import InputError, RecordError
from explorer.records import CompileFailed, Measured, reason_of, write_atomic
from explorer.space import SKELETON, Assignment, SearchSpace, space_of
from explorer.tune.bench import (
    BenchRequest,
    SilentBench,
    SuiteBench,
    Winner,
    bundled_workload,
    machine_of,
)
from explorer.tune.device import Device, prepare
from explorer.tune.prior import hinted_target
from explorer.tune.starts import refusal, winner_of
from explorer.tune.table import markdown

ROUNDS = 25
HEADS = ("without", "us", "TFLOP/s", "marginal TFLOP/s", "moved with it")


@frozen
class Feature:
    """What is taken away: values by the prefix of a choice's name, and words of a skeleton."""

    name: str
    values: Mapping[str, int]
    words: tuple[tuple[str, str], ...] = ()


FEATURES = (
    Feature("gemms in flight", {"lag": 0}),
    Feature("slots beyond two", {"depth": 2}),
    Feature(
        "staged epilogue",
        {},
        tuple(
            (f"{staged} epilogue", "direct epilogue")
            for staged in ("staged", "staged in 2", "staged in 3")
        ),
    ),
    Feature(
        "staging in pieces",
        {},
        (("staged in 2 epilogue", "staged epilogue"), ("staged in 3 epilogue", "staged epilogue")),
    ),
    Feature("swapped operands", {}, (("swapped ", ""),)),
    Feature("persistent blocks", {"blocks": 0}),
    Feature("raster order", {"raster": 0, "group": 1}),
    Feature("multicast in a cluster", {"cluster": 1}),
    Feature("turns of the consumers", {}, (("consumer_0/consumer_1", "consumer_0+consumer_1"),)),
    Feature(
        "second consumer",
        {},
        (("consumer_0+consumer_1", "consumer"), ("consumer_0/consumer_1", "consumer")),
    ),
    Feature("split reduction", {"split": 1}),
    Feature("streamed last tiles", {"stream": 0}),
)


@frozen
class Step:
    """One feature away: the time and what it costs, or why there is no such candidate.

    `moved` are the other choices that had to change: name, winner's value, value here.
    """

    feature: str
    time_us: float | None
    tflops: float | None
    marginal_tflops: float | None
    moved: tuple[tuple[str, int, int], ...] = ()
    failure: str = ""


@frozen
class Ladder:
    """The winner of a case and its steps."""

    case: str
    device: str
    time_us: float
    tflops: float
    peer_us: float | None
    steps: tuple[Step, ...]

    def cells(self) -> list[list[str]]:
        """The ladder as a table, its heads first."""
        first = ["(winner)", f"{self.time_us:,.1f}", f"{self.tflops:,.1f}", "-", ""]
        return [list(HEADS), first, *map(_cells, self.steps)]


def _cells(step: Step) -> list[str]:
    if step.time_us is None or step.tflops is None or step.marginal_tflops is None:
        return [step.feature, "-", "-", "-", step.failure]
    moved = ", ".join(f"{name} {old} to {new}" for name, old, new in step.moved)
    figures = [f"{step.time_us:,.1f}", f"{step.tflops:,.1f}", f"{step.marginal_tflops:+,.1f}"]
    return [step.feature, *figures, moved]


@frozen
class Without:
    """A legal candidate without a feature, or why there is none."""

    feature: str
    assignment: Assignment | None
    moved: tuple[tuple[str, int, int], ...] = ()
    failure: str = ""


def candidates(space: SearchSpace, winner: Assignment) -> Iterator[Without]:
    """For every feature that the winner has, the nearest legal candidate without it."""
    for feature in FEATURES:
        changed = _changed(space, winner, feature)
        if changed:
            yield _nearest(space, winner, feature.name, changed)


def _changed(space: SearchSpace, winner: Assignment, feature: Feature) -> Assignment:
    """The choices that take a feature away, with new values; empty if the winner lacks it."""
    domains = {choice.name: choice.domain for choice in space.choices}
    changed = {
        name: value
        for prefix, value in feature.values.items()
        for name in space.active(winner[SKELETON])
        if name.split("_")[0] == prefix and value in domains[name] and winner[name] > value
    }
    titles = [skeleton.title for skeleton in space.skeletons]
    for old, new in feature.words:
        title = titles[winner[SKELETON]]
        if old in title and title.replace(old, new) in titles:
            changed[SKELETON] = titles.index(title.replace(old, new))
    return changed


def _nearest(space: SearchSpace, winner: Assignment, feature: str, changed: Assignment) -> Without:
    skeleton = changed.get(SKELETON, winner[SKELETON])
    fixed = {name: (value,) for name, value in (changed | {SKELETON: skeleton}).items()}
    model = FeasibleModel(space.restricted(**fixed))
    found = model.project({**winner, **changed})
    if found.status != "found":
        reason = "; ".join(model.explain_empty()) or "the solver gave up"
        return Without(feature, None, failure=f"not legal: {reason}")
    assignment = space.canonical(dict(found.assignment))
    used = space.active(skeleton) & space.active(winner[SKELETON])
    moved = tuple(
        (name, winner[name], value)
        for name, value in assignment.items()
        if name in used and name not in changed and value != winner[name]
    )
    return Without(feature, assignment, moved)


def ablate_case(request: BenchRequest) -> Ladder:
    """The ablation of the winner of the one case that a request names.

    InputError where it names several, RecordError where the case has no winner.
    """
    from explorer.runtime import Host, Session, load_suite  # noqa: PLC0415

    suite = load_suite(request.suite)
    cases = suite.chosen(request.shapes, request.layouts, request.dtypes)
    if len(cases) > 1:
        names = ", ".join(case.name for case in cases)
        raise InputError(f"an ablation is of one case, not of {names}")
    with Host(machine_of(request, suite)) as host:
        session = partial(Session, host=host)
        bench = SuiteBench(request, suite, session, SilentBench(), bundled_workload)
        return ablate(bench, bench.winner(cases[0]))


def ablate(bench: SuiteBench, winner: Winner) -> Ladder:
    """Measure the winner of a case, and it without each of its features, in turns.

    RecordError where the recorded winner is no candidate of today's space.
    """
    space = space_of(winner.workload, winner.problem, winner.machine)
    hint = winner_of(winner.run)
    reason = refusal(hint, space, FeasibleModel(space))
    target = hinted_target(space, hint)
    if reason or target is None:
        raise RecordError(f"the winner of {winner.case.name} is no candidate any more: {reason}")
    best = space.canonical(target)
    steps = list(candidates(space, best))
    with bench.open(winner) as device:
        operations = winner.workload.operations(winner.problem)
        ladder = _measured(device, space, best, steps, operations, winner.case.name)
    _save(ladder, bench.out)
    return ladder


def _measured(
    device: Device,
    space: SearchSpace,
    best: Assignment,
    steps: list[Without],
    operations: float,
    case: str,
) -> Ladder:
    built, reason = _checked(device, space, best)
    if built is None:
        raise RecordError(f"the winner of {case} cannot be measured: {reason}")
    builts, ready, failed = [built], [], {}
    for step in steps:
        if step.assignment is None:
            failed[step.feature] = step.failure
            continue
        other, reason = _checked(device, space, step.assignment)
        if other is None:
            failed[step.feature] = reason
        else:
            builts.append(other)
            ready.append(step.feature)
    with_peer = device.peer_name is not None
    results = list(device.race(builts, ROUNDS, with_peer))
    first = results[0]
    if not first:
        raise RecordError(f"the winner of {case} gave no sample in the race")
    peer = results[-1] if with_peer else None
    times = {name: median(r) for name, r in zip(ready, results[1:], strict=False) if r}
    time_us = median(first)

    def step_of(step: Without) -> Step:
        measured = times.get(step.feature)
        if measured is None:
            reason = failed.get(step.feature, "the race gave no sample")
            return Step(step.feature, None, None, None, step.moved, reason)
        tflops = operations / measured * 1e-6
        gain = operations / time_us * 1e-6 - tflops
        return Step(step.feature, measured, tflops, gain, step.moved)

    return Ladder(
        case=case,
        device=device.device,
        time_us=time_us,
        tflops=operations / time_us * 1e-6,
        peer_us=median(peer) if peer else None,
        steps=tuple(map(step_of, steps)),
    )


def _checked(
    device: Device, space: SearchSpace, assignment: Assignment
) -> tuple[object | None, str]:
    """A compiled candidate whose result is right, else None and why."""
    build: Callable[..., object] = device.build
    prepared = prepare(space, assignment, build)
    if prepared.failure is not None or isinstance(prepared.artifact, CompileFailed):
        return None, reason_of(prepared.failure) if prepared.failure else "it does not compile"
    outcome = device.measure(prepared.artifact, 1)
    return (prepared.artifact, "") if isinstance(outcome, Measured) else (None, reason_of(outcome))


def _save(ladder: Ladder, folder: Path) -> None:
    peer = "" if ladder.peer_us is None else f" The peer takes {ladder.peer_us:,.1f} us."
    text = [
        f"# {ladder.case} without each feature, on {ladder.device}",
        "",
        f"One interleaved race; marginal: what the feature adds to the winner.{peer}",
        "",
        *markdown(ladder.cells()),
    ]
    write_atomic(folder / f"ablation-{ladder.case}.json", dumps(ladder))
    write_atomic(folder / f"ablation-{ladder.case}.md", "\n".join(text) + "\n")
