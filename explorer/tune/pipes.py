"""Tuning for pipe machines: every candidate is scheduled, and the fastest by prediction wins.

A candidate is a value of every tile size, and of `num_stages` where the workload lists values for
it: that is what every loop gets whose author lets iterations overlap.

Invariant: every time here is predicted and is called so; what could not be decided is not called
illegal, and an interval whose minimum was not shown is not called proven.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from explorer.constraints import Report
from explorer.data import dumps, loads
from explorer.errors import (
    ExplorerError,
    IllegalSchedule,
    InputError,
    NoLegalCandidate,
    RecordError,
)
from explorer.export.ascend import export_kernel_ascend
from explorer.expr import evaluate
from explorer.expr import product as product_of
from explorer.ir.nodes import Block, Kernel, Loop, Stmt
from explorer.ir.printer import kernel_digest
from explorer.machine import Machine, machine_named
from explorer.passes.check_pipes import check_pipes
from explorer.passes.schedule_pipes import PipeResult, schedule_pipes
from explorer.records import write_atomic, writing
from explorer.schedule.pipe import PipeSchedule
from explorer.space import Problem, Workload
from explorer.tune.request import Request, problem_asked, request_of

NUM_STAGES = "num_stages"
DEFAULT: Mapping[str, Any] = {"machine": "ascend950"}
NOTE = "predicted, not measured"
REPORT, KERNEL, SCHEDULE = "predicted.json", "kernel.py", "schedule.json"


@frozen
class PipeCandidate:
    """One candidate's prediction.

    `predicted_cycles` are those of the launch: of one block, times the waves of blocks.
    `intervals` gives loop and cycles from one iteration to the next; `proven` says that fewer
    are impossible, for all loops. `versions` gives buffer, count and index mode.
    """

    number: int
    choices: tuple[tuple[str, int], ...]
    predicted_cycles: int
    intervals: tuple[tuple[str, int], ...]
    proven: bool
    versions: tuple[tuple[str, int, str], ...]
    bytes_used: tuple[tuple[str, int], ...]
    flags: int
    schedule_digest: str


@frozen
class PipeReport:
    """Candidates, the fastest by prediction first, and the schedule of that one.

    `refused` candidates have no schedule, of `undecided` ones it was not found out, `skipped` ones
    were left out for want of trials or time. `reason` is the first refusal.
    """

    space: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    machine: str
    candidates: tuple[PipeCandidate, ...]
    schedule: PipeSchedule
    refused: int
    undecided: int
    skipped: int
    reason: str
    seconds: float

    @property
    def best(self) -> PipeCandidate:
        """The fastest by prediction."""
        return self.candidates[0]

    def to_json(self) -> dict[str, Any]:
        """The object that `explorer tune --json` prints for a pipe machine."""
        return {
            "space": self.space,
            "machine": self.machine,
            "problem": {**dict(self.sizes), "dtype": self.dtype},
            "times": NOTE,
            "predicted": len(self.candidates),
            "refused": self.refused,
            "undecided": self.undecided,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 3),
            "best": {**_candidate_json(self.best), **_schedule_json(self.schedule)},
            "predicted_order": [_candidate_json(each) for each in self.candidates],
        }


def _candidate_json(each: PipeCandidate) -> dict[str, Any]:
    return {
        "number": each.number,
        "predicted_cycles": each.predicted_cycles,
        "interval": "proven" if each.proven else "not proven",
        "intervals": dict(each.intervals),
        "choices": dict(each.choices),
        "versions": {name: {"count": n, "mode": mode} for name, n, mode in each.versions},
        "bytes": dict(each.bytes_used),
        "flags": each.flags,
        "schedule": each.schedule_digest,
    }


def _schedule_json(schedule: PipeSchedule) -> dict[str, Any]:
    """Loops and flags of a schedule; times in cycles, all predicted."""
    loops = [
        {
            "loop": loop.loop,
            "interval": loop.interval,
            "least": loop.bound,
            "proven": loop.proven,
            "predicted_cycles": loop.latency,
            "tasks": [
                {"op": task.node, "start": task.start, "stage": loop.stage(task)}
                for task in loop.tasks
            ],
        }
        for loop in schedule.loops
    ]
    flags = [
        {
            "from": str(flag.source),
            "to": str(flag.target),
            "after": flag.before,
            "ahead_of": flag.after,
            "loop": flag.loop,
            "first_id": flag.event,
            "ids": flag.versions,
            "initial": flag.initial,
        }
        for flag in schedule.flags
    ]
    return {"loops": loops, "flag_list": flags}


def tune_pipes(space: str | Request, **options: Any) -> PipeReport:
    """Schedule the candidates of a workload for a pipe machine; nothing is run.

    `options` are the fields of `Request`; the machine is ascend950 where none is named. With `out`
    the report, the schedule and the annotated kernel are written there. InputError for a machine
    without pipes or a workload without tile sizes for it, NoLegalCandidate where no candidate has
    a schedule.
    """
    from explorer.runtime import load_workload  # noqa: PLC0415

    request = space if isinstance(space, Request) else request_of(space, {**DEFAULT, **options})
    machine = machine_named(request.machine)
    if machine.family != "pipe":
        raise InputError(f"machine '{machine.name}' has no pipes: it is tuned by measuring")
    if request.resume:
        raise InputError(f"{machine.name} is predicted in one go: leave out --resume")
    if request.out is not None:
        _require_empty(request.out)
    found = _Prediction(request, load_workload(request.space), machine).run()
    if request.out is not None:
        write_report(found, request.out)
    return found


@frozen
class _Prediction:
    request: Request
    workload: Workload
    machine: Machine
    started: float = field(factory=time.monotonic)

    def run(self) -> PipeReport:
        """Schedule what trials and time allow, then sort."""
        from explorer.runtime import absolute_ref  # noqa: PLC0415

        problem = problem_asked(self.request, self.workload)
        kernel = self.workload.trace(problem)
        every = candidate_choices(self.workload, problem, kernel, self.machine)
        kept: list[tuple[PipeCandidate, PipeSchedule]] = []
        refusals: list[ExplorerError] = []
        undecided = tried = 0
        for number, choices in self._drawn(every):
            if tried and time.monotonic() > self.started + self.request.seconds:
                break
            tried += 1
            try:
                made = schedule_candidate(kernel, self.machine, choices)
            except (IllegalSchedule, InputError) as refusal:
                refusals.append(refusal)
            except ExplorerError:
                undecided += 1
            else:
                found = _candidate(number, choices, made, kernel, self.machine)
                kept.append((found, made.schedule))
        if not kept:
            raise _nothing(self.workload, refusals, undecided)
        kept.sort(key=lambda each: (each[0].predicted_cycles, each[0].number))
        return PipeReport(
            space=absolute_ref(self.request.space),
            sizes=problem.sizes,
            dtype=problem.dtype.name,
            machine=self.machine.name,
            candidates=tuple(each for each, _ in kept),
            schedule=kept[0][1],
            refused=len(refusals),
            undecided=undecided,
            skipped=len(every) - tried,
            reason=str(refusals[0]) if refusals else "",
            seconds=time.monotonic() - self.started,
        )

    def _drawn(self, every: list[dict[str, int]]) -> list[tuple[int, dict[str, int]]]:
        """As many as there are trials, drawn by the seed where there are more."""
        numbered = list(enumerate(every))
        if len(numbered) <= self.request.trials:
            return numbered
        drawn = random.Random(self.request.seed or 0).sample(numbered, self.request.trials)
        return sorted(drawn, key=lambda each: each[0])


def _nothing(workload: Workload, refusals: list[ExplorerError], undecided: int) -> ExplorerError:
    """Why no candidate has a schedule: the kernel's fault, the memory's, or not known."""
    if undecided:
        return ExplorerError(f"{workload.name}: {undecided} candidates could not be decided")
    if isinstance(refusals[0], InputError):
        return refusals[0]
    return NoLegalCandidate(f"{workload.name}: no candidate has a schedule: {refusals[0]}")


def candidate_choices(
    workload: Workload, problem: Problem, kernel: Kernel, machine: Machine
) -> list[dict[str, int]]:
    """All values of the tile sizes and of `num_stages`; InputError where there are none."""
    tiles = workload.tiles_of(machine.name, problem)
    missing = [name for name in kernel.params if name not in tiles]
    if missing:
        raise InputError(f"{workload.name} gives no values of {missing[0]} on {machine.name}")
    names = [name for name in tiles if name in (*kernel.params, NUM_STAGES)]
    return [
        dict(zip(names, values, strict=True)) for values in product(*(tiles[n] for n in names))
    ]


def schedule_candidate(kernel: Kernel, machine: Machine, choices: Mapping[str, int]) -> PipeResult:
    """The schedule of a kernel at those choices."""
    sizes = {name: value for name, value in choices.items() if name != NUM_STAGES}
    return schedule_pipes(with_stages(kernel, choices), machine, sizes)


def with_stages(kernel: Kernel, choices: Mapping[str, int]) -> Kernel:
    """The kernel in which every loop that may overlap iterations has the chosen `num_stages`."""
    count = choices.get(NUM_STAGES)
    return kernel if count is None else evolve(kernel, body=_staged(kernel.body, count))


def _staged(body: tuple[Stmt, ...], count: int) -> tuple[Stmt, ...]:
    return tuple(_stage(statement, count) for statement in body)


def _stage(statement: Stmt, count: int) -> Stmt:
    if isinstance(statement, Loop) and statement.num_stages:
        statement = evolve(statement, num_stages=count)
    if isinstance(statement, Block):
        return evolve(statement, body=_staged(statement.body, count))
    return statement


def _candidate(
    number: int, choices: dict[str, int], made: PipeResult, kernel: Kernel, machine: Machine
) -> PipeCandidate:
    schedule = made.schedule
    sizes = {name: value for name, value in choices.items() if name != NUM_STAGES}
    blocks = evaluate(product_of(extent for _, extent in kernel.at(**sizes).grid))
    return PipeCandidate(
        number=number,
        choices=tuple(choices.items()),
        predicted_cycles=-(-blocks // machine.units) * made.predicted_cycles,
        intervals=tuple((loop.loop, loop.interval) for loop in schedule.loops if loop.loop),
        proven=made.proven,
        versions=tuple((ring.buffer, ring.versions, str(ring.mode)) for ring in schedule.rings),
        bytes_used=tuple((str(scope), size) for scope, size in made.bytes_used),
        flags=sum(flag.versions for flag in schedule.flags if not flag.barrier),
        schedule_digest=schedule.digest,
    )


# ---------------------------------------------------------------- folders


def write_report(report: PipeReport, folder: Path) -> None:
    """Write report, schedule and annotated kernel; InputError where the folder is in use."""
    _require_empty(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / KERNEL, annotated_kernel(report))
    write_atomic(folder / SCHEDULE, dumps(report.schedule))
    write_atomic(folder / REPORT, dumps(report))


def _require_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder: give another --out")


def is_report(folder: Path) -> bool:
    """Whether a folder holds predictions."""
    return (folder / REPORT).is_file()


def read_report(folder: Path) -> PipeReport:
    """The predictions of a folder; RecordError where they cannot be read."""
    try:
        text = (folder / REPORT).read_text()
    except (OSError, UnicodeDecodeError):
        raise RecordError(f"{folder} holds no predictions: no {REPORT} can be read") from None
    return loads(text, PipeReport)


def annotated_kernel(report: PipeReport) -> str:
    """The kernel of the fastest candidate in TileLang's Ascend dialect, versions and modes set."""
    from explorer.runtime import load_workload  # noqa: PLC0415

    workload = load_workload(report.space)
    problem = workload.problem(dict(report.sizes), report.dtype, report.machine)
    kernel = with_stages(workload.trace(problem), dict(report.best.choices))
    return export_kernel_ascend(kernel, report.schedule)


def check_schedule(request: Request, schedule: PipeSchedule) -> Report:
    """What a stored schedule breaks for a candidate of a workload.

    ScheduleError where it is bound to a kernel that is none of the workload's.
    """
    from explorer.runtime import load_workload  # noqa: PLC0415

    machine, workload = machine_named(request.machine), load_workload(request.space)
    problem = problem_asked(request, workload)
    traced = workload.trace(problem)
    kernels = tuple(_kernels(traced, workload.tiles_of(machine.name, problem)))
    bound = schedule.binding.kernel_digest
    own = next((kernel for kernel in kernels if kernel_digest(kernel) == bound), traced)
    return check_pipes(own, schedule, machine)


def _kernels(kernel: Kernel, tiles: Mapping[str, tuple[int, ...]]) -> Iterator[Kernel]:
    """The kernel at every value of `num_stages`, tile sizes open."""
    yield kernel
    for count in tiles.get(NUM_STAGES, ()):
        yield with_stages(kernel, {NUM_STAGES: count})
