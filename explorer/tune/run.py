"""One tuning run from end to end.

Invariant: whatever ends a run (its budget, an exhausted space, the user, an error), every finished
trial is in the run folder, and run.json says how the run ended.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Protocol

from attrs import evolve

from explorer.constraints import FeasibleModel
from explorer.errors import ExplorerError, InputError, Interrupted
from explorer.machine import Machine, machine_named
from explorer.records import (
    BestSchedule,
    Infeasible,
    Run,
    RunFolder,
    RunInfo,
    SkeletonNote,
    StudyKey,
    Trial,
    default_folder,
    describe_environment,
    kind_of,
    reason_of,
)
from explorer.search import (
    Budget,
    Divergence,
    FeasibleSampler,
    Prepared,
    SearchLoop,
    StudyLog,
    contenders,
    file_storage,
    replay,
    standings,
)
from explorer.space import Assignment, SearchSpace, Workload, space_of
from explorer.tune.device import Device, DeviceEvaluator, SessionFactory
from explorer.tune.identity import study_key
from explorer.tune.legal import require_legal
from explorer.tune.peak import fastest_us, limit_s
from explorer.tune.prior import prior_targets
from explorer.tune.race import Verdict, best_of, race, race_s
from explorer.tune.request import Request, problem_asked, problem_of, request_of
from explorer.tune.result import UNITS, TuneResult
from explorer.tune.starts import starts

REPEATS = 3
# Candidates that are proposed on the same outcomes: where the device is another one than the host,
# as many as keep the compilers busy.
BATCH, BATCH_APART = 4, 8
RACE_SHARE, RACE_MOST_S, WIND_DOWN_S = 0.25, 12.0, 2.0


class Watcher(Protocol):
    """Sees a run as it goes."""

    def phase(self, text: str) -> None: ...
    def trial(self, trial: Trial, done: int, best_us: float | None) -> None: ...


class Silent:
    """Watches nothing."""

    def phase(self, text: str) -> None:
        """Ignored."""

    def trial(self, trial: Trial, done: int, best_us: float | None) -> None:
        """Ignored."""


def tune(space: str | Request, *, watcher: Watcher | None = None, **options: Any) -> TuneResult:
    """Find the fastest legal schedule of a workload on a machine, measured.

    `options` are the fields of `Request`. Raises InputError for a bad request, NoLegalCandidate
    where the rules leave nothing, ExplorerError where nothing could be measured, and
    EnvironmentFault where compiler or device are missing.
    """
    request = space if isinstance(space, Request) else request_of(space, options)
    if machine_named(request.machine).family == "pipe":
        raise InputError(
            f"nothing is measured on {request.machine}: explorer.tune_pipes(...) predicts"
        )
    from explorer.runtime import Session, load_workload, machine_here  # noqa: PLC0415

    workload = load_workload(request.space)
    problem = problem_asked(request, workload)
    machine = machine_here(machine_named(request.machine), problem.dtype)
    return Tuner(request, workload, machine, Session, watcher or Silent()).run()


class Tuner:
    """A run in the making; `session` opens a device session."""

    def __init__(
        self,
        request: Request,
        workload: Workload,
        machine: Machine,
        session: SessionFactory,
        watcher: Watcher,
    ) -> None:
        self._started = time.monotonic()
        self._request, self._workload, self._watcher = request, workload, watcher
        self._problem = problem_asked(request, workload)
        self._machine = machine
        self._space = space_of(workload, self._problem, machine)
        self._limit_s = limit_s(workload.operations(self._problem), machine)
        self._hints = workload.suggestions(machine.name, self._problem)
        self._prior = prior_targets(self._space, self._hints)
        self._model = FeasibleModel(self._space)
        self._session = session
        self._prepared: dict[int, Prepared] = {}
        self._most_race_s = min(RACE_MOST_S, RACE_SHARE * request.seconds)

    def run(self) -> TuneResult:
        """Run to the end."""
        require_legal(self._model, self._prior[0])
        self._watcher.phase("starting the device")
        tolerance = self._workload.bound(self._machine.name, self._problem.dtype)
        session = self._session(
            self._request.space,
            self._problem,
            self._machine,
            tolerance,
            self._limit_s,
            self._started + self._request.seconds,
        )
        with session as device:
            if self._request.recorded and not self._request.resume:
                self._prior = self._with_recorded(device)
            with self._open(device) as folder:
                return self._in_folder(device, folder)

    def _with_recorded(self, device: Device) -> tuple[Assignment, ...]:
        """The prior, recorded winners of this workload on this device first."""
        found = starts(self._workload, self._problem, self._space, self._model, device.device)
        for line in found.notes:
            self._watcher.phase(line)
        return prior_targets(self._space, (*found.hints, *self._hints))

    def _open(self, device: Device) -> RunFolder:
        request = self._request
        key = self._key(device)
        if request.resume and request.out is not None:
            folder = RunFolder.resume(request.out, key)
            if request.seed not in (None, folder.info.seed):
                folder.close()
                raise InputError(
                    f"{request.out} was started with --seed {folder.info.seed}, "
                    f"not {request.seed}: a run goes on with its own seed"
                )
            return folder
        out = request.out or default_folder(self._workload.name, self._machine.name)
        environment = describe_environment(device.toolchain, device.device)
        return RunFolder.create(out, self._info(key), environment)

    def _key(self, device: Device) -> StudyKey:
        return study_key(
            self._workload,
            self._problem,
            self._space,
            device=device.device,
            toolchain=device.toolchain,
            peer=device.peer_name or "",
            repeats=REPEATS,
            limit_s=self._limit_s,
        )

    def _info(self, key: StudyKey) -> RunInfo:
        from explorer.runtime import absolute_ref  # noqa: PLC0415

        request, here = self._request, self._machine.name == "cpu"
        return RunInfo(
            key=key,
            space=absolute_ref(request.space),
            workload=self._workload.name,
            sizes=self._problem.sizes,
            dtype=self._problem.dtype.name,
            machine=self._machine,
            seed=request.seed or 0,
            trials=request.trials,
            seconds=request.seconds,
            batch=BATCH if here else BATCH_APART,
            lag=0 if here else 1,
            prior=tuple(tuple(each.items()) for each in self._prior),
            skeletons=tuple(
                SkeletonNote(skeleton.title, tuple(sorted(self._space.active(index))))
                for index, skeleton in enumerate(self._space.skeletons)
            ),
        )

    def _in_folder(self, device: Device, folder: RunFolder) -> TuneResult:
        request, before = self._request, folder.info.elapsed_s
        setup_ms = folder.info.setup_ms + self._model.seconds * 1e3
        info = evolve(
            folder.info,
            state="running",
            trials=request.trials,
            seconds=request.seconds,
            setup_ms=setup_ms,
        )
        folder.update(info)
        state, best, source = "failed", None, ""
        try:
            state = self._search(device, folder)
            state, best, source = self._decide(device, folder, state)
        finally:
            if best is None and state != "interrupted":
                state = "failed"
            refused = sum(isinstance(each.outcome, Infeasible) for each in folder.trials)
            elapsed_s = before + time.monotonic() - self._started
            info = evolve(info, state=state, refused=refused, elapsed_s=elapsed_s)
            folder.finish(info, best, (self._suffix, source))
        return TuneResult(info, tuple(folder.trials), best, folder.path)

    @property
    def _suffix(self) -> str:
        return ".c" if self._machine.name == "cpu" else ".cu"

    def _search(self, device: Device, folder: RunFolder) -> str:
        sampler = sampler_of(folder.info, self._space, self._model)
        log = StudyLog(sampler, self._space.choices, file_storage(folder.study))
        for ended in log.reconcile(folder.trials):
            folder.append(ended)
        evaluator = self._evaluator(device)
        loop = SearchLoop(log, sampler, evaluator, self._keep(folder), folder.info.lag)
        deadline = self._started + self._request.seconds
        budget = Budget(self._request.trials, deadline, lambda: self._reserve_s(folder.trials))
        self._watcher.phase("searching")
        try:
            end = loop.run(budget, done=len(folder.trials))
        except KeyboardInterrupt:
            return "interrupted"
        self._prepared = end.prepared
        return end.reason

    def _reserve_s(self, trials: list[Trial]) -> float:
        """Seconds that are kept for the race."""
        best_us = min((each.time_us for each in trials if each.time_us), default=0.0)
        return min(self._most_race_s, WIND_DOWN_S + race_s(best_us))

    def _keep(self, folder: RunFolder) -> Any:
        def keep(trial: Trial) -> None:
            folder.append(trial)
            times = [each.time_us for each in folder.trials if each.time_us is not None]
            self._watcher.trial(trial, len(folder.trials), min(times, default=None))

        return keep

    def _evaluator(self, device: Device) -> DeviceEvaluator:
        bound = fastest_us(
            self._workload.operations(self._problem),
            self._workload.unit,
            self._problem.dtype,
            self._machine,
        )
        return DeviceEvaluator(self._space, device, REPEATS, bound)

    def _decide(
        self, device: Device, folder: RunFolder, state: str
    ) -> tuple[str, BestSchedule, str]:
        trials = {trial.number: trial for trial in folder.trials}
        if not contenders(folder.trials, 1):
            kind = Interrupted if state == "interrupted" else ExplorerError
            raise kind(nothing_measured(folder.trials, state))
        evaluator = self._evaluator(device)

        def artifact(trial: Trial) -> Any:
            if trial.number not in self._prepared:
                self._prepared[trial.number] = evaluator.prepare(trial.choices)
            return self._prepared[trial.number].artifact

        verdict = Verdict((), ())
        if state != "interrupted":
            self._watcher.phase("racing the fastest against each other")
            deadline = self._started + self._request.seconds - WIND_DOWN_S
            try:
                verdict = race(device, folder.trials, artifact, deadline)
            except KeyboardInterrupt:
                state = "interrupted"
        if not verdict.table:
            verdict = Verdict(tuple(_unraced(folder.trials)), ())
        best = best_of(
            verdict,
            lambda number: self._space.candidate(trials[number].choices),
            self._workload.operations(self._problem),
            UNITS.get(self._workload.unit, f"G{self._workload.unit}/s"),
            device.peer_name,
        )
        return state, best, artifact(trials[best.trial]).source


def sampler_of(info: RunInfo, space: SearchSpace, model: FeasibleModel) -> FeasibleSampler:
    """The sampler of a run, as its run.json says."""
    return FeasibleSampler(
        model,
        space.choices,
        seed=info.seed,
        prior=[dict(target) for target in info.prior],
        batch=info.batch,
        lag=info.lag,
        canonical=space.canonical,
    )


def replay_run(run: Run, workload: Workload) -> Divergence | None:
    """The first proposal that the recorded outcomes do not lead to; None where all do."""
    space = space_of(workload, problem_of(run.info, workload), run.info.machine)
    if space.digest != run.info.key.space:
        raise InputError(
            f"{run.path} was made over space {run.info.key.space}, this is {space.digest}"
        )
    sampler = sampler_of(run.info, space, FeasibleModel(space))
    return replay(sampler, space.choices, run.trials)


def nothing_measured(trials: list[Trial], state: str) -> str:
    """Why a run has no answer: its outcomes by kind, and the first failure of each."""
    if not trials:
        return f"no candidate was measured: the run was {state} before the first one ended"
    counts = Counter(kind_of(trial.outcome) for trial in trials)
    firsts = {kind_of(trial.outcome): trial for trial in reversed(trials)}
    reasons = "; ".join(
        f"{kind} {count} (trial {firsts[kind].number}: {reason_of(firsts[kind].outcome)[:200]})"
        for kind, count in counts.most_common()
    )
    return f"none of {len(trials)} candidates could be measured: {reasons}"


def _unraced(trials: list[Trial]) -> Any:
    first = contenders(trials, 1)[0]
    return standings([(first.number, first.outcome.samples_us)])  # type: ignore[union-attr]
