"""A suite from end to end: every case tuned from a cold start, then all winners in one race.

Each case has a run folder of its own under the suite's folder. A case that is done is not tuned
again, one that was interrupted goes on, so that a long suite fits into several visits.

Invariant: the table's times come from one run, in which all winners and the peer take turns; no
time of a tuning run is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen

from explorer.errors import (
    EnvironmentFault,
    ExplorerError,
    InputError,
    Interrupted,
    RecordError,
)
from explorer.machine import Machine, machine_named
from explorer.records import ANSWERED, Measured, Run, load, pack, read_info, reason_of
from explorer.space import Case, Problem, Suite, Workload
from explorer.tune.device import Device, SessionFactory
from explorer.tune.peak import limit_s
from explorer.tune.request import Request
from explorer.tune.run import Silent, Tuner, Watcher
from explorer.tune.table import Figures, Row, Table, recorded_cases, save_table

SECONDS, SECONDS_MOST, SECONDS_LEAST = 45.0, 60.0, 8.0
TRIALS = 100_000  # the time ends a tune
VISITS, ROUNDS = 5, 7


def _seconds(value: float | None) -> float:
    return SECONDS if value is None else float(value)


@frozen
class BenchRequest:
    """What the user asks for. Without shapes, layouts and types it is the whole suite.

    `seconds` a case, all included, at most 60. `resume` goes on with what lies in `out`;
    `table_only` measures its winners again and tunes nothing.
    """

    suite: str
    machine: str | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    layouts: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    seconds: float = field(default=SECONDS, converter=_seconds)
    out: Path | None = None
    resume: bool = False
    table_only: bool = False
    trials: int = TRIALS

    def __attrs_post_init__(self) -> None:
        if not 0.0 < self.seconds <= SECONDS_MOST:
            raise InputError(
                f"--seconds {self.seconds:g} a shape: a bench gives each more than 0 and at most "
                f"{SECONDS_MOST:g} s; `explorer tune` searches longer"
            )


class BenchWatcher(Protocol):
    """Sees a suite as it goes."""

    def case(self, case: Case, number: int, count: int) -> Watcher: ...
    def phase(self, text: str) -> None: ...


class SilentBench:
    """Watches nothing."""

    def case(self, case: Case, number: int, count: int) -> Watcher:
        """A watcher that ignores the case."""
        return Silent()

    def phase(self, text: str) -> None:
        """Ignored."""


@frozen
class Winner:
    """The recorded best of a case, and what it takes to measure it again."""

    case: Case
    workload: Workload
    problem: Problem
    machine: Machine
    run: Run


def bench_suite(request: BenchRequest, watcher: BenchWatcher | None = None) -> Table:
    """Tune the cases of a suite, then measure all winners against the peer.

    InputError for a bad request, EnvironmentFault where compiler or device are missing,
    Interrupted where the user stopped it; a case that fails is a row that says why.
    """
    from explorer.runtime import Host, Session, load_suite  # noqa: PLC0415

    suite = load_suite(request.suite)
    with Host(machine_of(request, suite)) as host:
        return bench_on(request, suite, partial(Session, host=host), watcher or SilentBench())


def bench_on(
    request: BenchRequest,
    suite: Suite,
    session: SessionFactory,
    watcher: BenchWatcher,
    workload_of: Callable[[str], Workload] | None = None,
) -> Table:
    """`bench_suite` with devices that `session` opens."""
    bench = SuiteBench(request, suite, session, watcher, workload_of or bundled_workload)
    cases = suite.chosen(request.shapes, request.layouts, request.dtypes)
    bench.require_machine(cases)
    failures = {} if request.table_only else bench.tune(cases)
    table = bench.measure(cases, failures)
    if set(recorded_cases(bench.out)) > set(cases):
        watcher.phase(f"{bench.out / 'table.md'} has more cases, and is left as it is")
    elif table.measured:
        save_table(table, bench.out)
    return table


def machine_of(request: BenchRequest, suite: Suite) -> Machine:
    """The machine of a bench; InputError where no case of it has tile sizes there."""
    machine = machine_named(request.machine or suite.machine)
    cases = suite.chosen(request.shapes, request.layouts, request.dtypes)
    names = dict.fromkeys(case.workload for case in cases)
    tiled = dict.fromkeys(each for name in names for each in bundled_workload(name).tiles)
    if machine.name not in tiled:
        raise InputError(
            f"{', '.join(names)}: no tile sizes for {machine.name}, only for {', '.join(tiled)}"
        )
    return machine


def bundled_workload(name: str) -> Workload:
    """A workload that ships with the package."""
    from explorer.runtime import load_workload  # noqa: PLC0415

    return load_workload(name)


def default_out(suite: Suite, machine: str) -> Path:
    """Where the run folders of a suite lie."""
    return Path("results") / machine / suite.name


class SuiteBench:
    """A suite in the making."""

    def __init__(
        self,
        request: BenchRequest,
        suite: Suite,
        session: SessionFactory,
        watcher: BenchWatcher,
        workload_of: Callable[[str], Workload],
    ) -> None:
        self._request, self._suite = request, suite
        self._session, self._watcher = session, watcher
        self._workload_of = workload_of
        self._machine = machine_named(request.machine or suite.machine)
        self.out = request.out or default_out(suite, self._machine.name)

    def folder(self, case: Case) -> Path:
        """The run folder of a case."""
        return self.out / case.name

    def require_machine(self, cases: Sequence[Case]) -> None:
        """InputError where a folder holds a run of another machine."""
        for case in cases:
            folder = self.folder(case)
            held = read_info(folder).machine.name if (folder / "run.json").exists() else ""
            if held not in ("", self._machine.name):
                raise InputError(
                    f"{folder} holds a run on {held}, this bench is on {self._machine.name}: "
                    "--out names another folder"
                )

    # ------------------------------------------------------------ tuning

    def tune(self, cases: Sequence[Case]) -> dict[Case, str]:
        """Tune what is not done; why a case failed, for those that did."""
        if not self._request.resume:
            self._require_new(cases)
        failures: dict[Case, str] = {}
        for number, case in enumerate(cases, start=1):
            if is_done(self.folder(case)):
                continue
            try:
                self._tune(case, self._watcher.case(case, number, len(cases)))
            except (EnvironmentFault, Interrupted):
                raise
            except ExplorerError as problem:
                failures[case] = str(problem)
        return failures

    def _require_new(self, cases: Sequence[Case]) -> None:
        for case in cases:
            folder = self.folder(case)
            if folder.is_dir() and any(folder.iterdir()):
                raise RecordError(
                    f"{folder} holds a run: --resume goes on, --table-only measures its winner "
                    "again, --out names another folder"
                )

    def _tune(self, case: Case, watcher: Watcher) -> None:
        folder = self.folder(case)
        begun = (folder / "run.json").exists()
        spent_s = read_info(folder).elapsed_s if begun else 0.0
        seconds = self._request.seconds
        request = Request(
            space=case.workload,
            machine=self._machine.name,
            sizes=self._suite.named_sizes(case),
            dtype=case.dtype,
            trials=self._request.trials,
            seconds=max(min(SECONDS_LEAST, seconds), seconds - spent_s),
            out=folder,
            resume=begun,
            recorded=False,
        )
        workload, _, machine = self._parts(case)
        result = Tuner(request, workload, machine, self._session, watcher).run()
        if result.info.state == "interrupted":
            raise Interrupted(f"stopped in {case.name}: --resume goes on")
        pack(folder)

    def _parts(self, case: Case) -> tuple[Workload, Problem, Machine]:
        from explorer.runtime import machine_here  # noqa: PLC0415

        workload = self._workload_of(case.workload)
        sizes = self._suite.named_sizes(case)
        problem = workload.problem(sizes, case.dtype, self._machine.name)
        return workload, problem, machine_here(self._machine, problem.dtype)

    # ------------------------------------------------------------ the table

    def measure(self, cases: Sequence[Case], failures: dict[Case, str]) -> Table:
        """The table of all winners, measured in one interleaved run."""
        found: list[Winner | Row] = [self._winner(case, failures.get(case, "")) for case in cases]
        winners = [each for each in found if isinstance(each, Winner)]
        missing = next((each for each in found if isinstance(each, Row)), None)
        if self._request.table_only and not winners and missing is not None:
            raise RecordError(f"no case has a winner to measure: {missing.failure}")
        self._watcher.phase(f"measuring {len(winners)} winners in turns with the peer")
        with ExitStack() as stack:
            devices = [stack.enter_context(self.open(winner)) for winner in winners]
            rows = iter(measure_winners(winners, devices, self._suite))
            device = devices[0] if devices else None
            return Table(
                suite=self._suite.name,
                machine=self._machine.name,
                device=device.device if device else "",
                toolchain=device.toolchain if device else "",
                rows=tuple(each if isinstance(each, Row) else next(rows) for each in found),
            )

    def open(self, winner: Winner) -> Device:
        """A session for a winner's problem."""
        problem = winner.problem
        return self._session(
            winner.case.workload,
            problem,
            winner.machine,
            winner.workload.bound(winner.machine.name, problem.dtype),
            limit_s(winner.workload.operations(problem), winner.machine),
        )

    def _winner(self, case: Case, failure: str) -> Winner | Row:
        try:
            return self.winner(case)
        except EnvironmentFault:
            raise
        except ExplorerError as problem:
            layout = self._suite.layouts[case.workload]
            return Row(case, layout, None, failure or str(problem))

    def winner(self, case: Case) -> Winner:
        """The recorded winner of a case; RecordError where it has none."""
        run = load(self.folder(case))
        if run.best is None:
            raise RecordError(f"{run.path} has no best schedule: it ended as {run.info.state}")
        workload, problem, machine = self._parts(case)
        return Winner(case, workload, problem, machine, run)


def is_done(folder: Path) -> bool:
    """Whether a run folder holds the answer of a run that is over."""
    return (folder / "run.json").exists() and read_info(folder).state in ANSWERED


def measure_winners(
    winners: Sequence[Winner], devices: Sequence[Device], suite: Suite
) -> list[Row]:
    """Every winner checked, then all of them and their peers timed in turns."""
    with ThreadPoolExecutor(max(1, len(winners))) as pool:
        builts = list(pool.map(_build, winners, devices))
    errors: list[float] = []
    failures: list[str] = []
    for built, device in zip(builts, devices, strict=True):
        outcome = device.measure(built, 1) if not isinstance(built, str) else None
        errors.append(outcome.error if isinstance(outcome, Measured) else 0.0)
        failures.append(built if outcome is None else reason_of(outcome))
    ours: list[list[float]] = [[] for _ in winners]
    peers: list[list[float]] = [[] for _ in winners]
    for _ in range(VISITS):
        for index, device in enumerate(devices):
            if not failures[index]:
                _visit(device, builts[index], ours[index], peers[index])
    return [
        _row(
            each, suite, error, failure or ("" if mine else "the race gave no sample"), mine, peer
        )
        for each, error, failure, mine, peer in zip(
            winners, errors, failures, ours, peers, strict=True
        )
    ]


def _build(winner: Winner, device: Device) -> Any:
    """The compiled winner, or why there is none."""
    best = winner.run.best
    assert best is not None
    try:
        built = device.build(best.schedule)
    except EnvironmentFault:
        raise
    except ExplorerError as problem:
        return str(problem)
    message = getattr(built, "message", None)
    return built if message is None else str(message)


def _visit(device: Device, built: Any, ours: list[float], peers: list[float]) -> None:
    with_peer = device.peer_name is not None
    results = device.race([built], ROUNDS, with_peer)
    mine, peer = results[0], results[1] if with_peer else None
    if mine and (peer or not with_peer):
        ours += mine
        peers += peer or ()


def _row(
    winner: Winner,
    suite: Suite,
    error: float,
    failure: str,
    ours: list[float],
    peers: list[float],
) -> Row:
    case, run = winner.case, winner.run
    layout = suite.layouts[case.workload]
    if failure:
        return Row(case, layout, None, failure)
    peer = winner.workload.peer(winner.machine.name, winner.problem.dtype)
    figures = Figures.of(
        ours=ours,
        peers=peers,
        peer=peer.name if peer and peers else "",
        operations=winner.workload.operations(winner.problem),
        error=error,
        trials=len(run.trials),
        tuned_s=run.info.elapsed_s,
    )
    return Row(case, layout, figures)
