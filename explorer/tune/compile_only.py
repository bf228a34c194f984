"""Tuning without a device: legal candidates, compiled, in the order of their predicted times.

The search is the one of a run with predictions in the place of outcomes; it measures nothing and
leaves no run folder.

Invariant: every time in a report is called predicted; what the compiler says is read from its log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from attrs import field, frozen

from explorer.constraints import FeasibleModel
from explorer.cost import predict
from explorer.errors import ExplorerError, IllegalSchedule, InputError
from explorer.machine import Machine, machine_named
from explorer.passes import materialize
from explorer.records import Infeasible, Outcome, kind_of, reason_of, usable_cores
from explorer.search import Exhausted, FeasibleSampler, Prepared, StudyLog
from explorer.space import SKELETON, Assignment, Hint, Problem, SearchSpace, Workload, space_of
from explorer.tune.device import prepare
from explorer.tune.legal import require_legal
from explorer.tune.prior import prior_targets
from explorer.tune.request import Request, problem_asked

COMPILED = 24
NOTE = "predicted, not measured"


@frozen
class Compiled:
    """A candidate as its compiler sees it, and its predicted time; None where there is no formula.

    `assignment` has the choices that its skeleton uses. `registers` a thread at entry,
    `spill_bytes` stored and loaded, `shared_bytes` a block, `barriers` by name.
    """

    number: int
    assignment: tuple[tuple[str, int], ...]
    skeleton: str
    schedule_digest: str
    predicted_us: float | None
    registers: int
    spill_bytes: int
    shared_bytes: int
    barriers: int


@frozen
class CompileReport:
    """Compiled candidates, the fastest by prediction first, and what became of the others."""

    workload: str
    problem: Problem
    machine: Machine
    compiler: str
    compiled: tuple[Compiled, ...]
    failures: tuple[tuple[int, Outcome], ...]
    skipped: int
    seconds: float

    @property
    def rejected(self) -> int:
        """Candidates that the solver proposed and the checker refused."""
        return sum(isinstance(outcome, Infeasible) for _, outcome in self.failures)

    def to_json(self) -> dict[str, Any]:
        """The object that `explorer tune --compile-only --json` prints."""
        return {
            "space": self.workload,
            "machine": self.machine.name,
            "problem": {**dict(self.problem.sizes), "dtype": self.problem.dtype.name},
            "compiler": self.compiler,
            "times": NOTE,
            "compiled": len(self.compiled),
            "failed": len(self.failures),
            "skipped": self.skipped,
            "rejected": self.rejected,
            "seconds": round(self.seconds, 3),
            "predicted_order": [_candidate_json(each) for each in self.compiled],
            "failures": [
                {"number": number, "outcome": kind_of(outcome), "reason": reason_of(outcome)}
                for number, outcome in self.failures
            ],
        }

    def json_text(self) -> str:
        """`to_json` as one line."""
        return json.dumps(self.to_json())


def _candidate_json(each: Compiled) -> dict[str, Any]:
    return {
        "number": each.number,
        "predicted_us": each.predicted_us and round(each.predicted_us, 1),
        "registers": each.registers,
        "spill_bytes": each.spill_bytes,
        "shared_bytes": each.shared_bytes,
        "barriers": each.barriers,
        "schedule": each.schedule_digest,
        "skeleton": each.skeleton,
        "choices": {name: value for name, value in each.assignment if name != SKELETON},
    }


def compile_only(request: Request) -> CompileReport:
    """Compile `request.trials` legal candidates for a machine that need not be here.

    InputError for a machine without such a compiler, EnvironmentFault where it is missing,
    NoLegalCandidate where the rules leave nothing, ExplorerError where nothing compiles.
    """
    from explorer.runtime import load_workload  # noqa: PLC0415
    from explorer.runtime.backend import toolchain_of  # noqa: PLC0415

    machine = machine_named(request.machine)
    if not machine.arch.startswith("sm_"):
        raise InputError(
            f"--compile-only reads registers from a GPU compiler's log, {machine.name} has none; "
            "use --machine h200"
        )
    if request.out is not None or request.resume:
        raise InputError("--compile-only writes no run folder: leave out --out and --resume")
    workload = load_workload(request.space)
    toolchain = toolchain_of(machine)
    try:
        return _Preview(request, workload, machine, toolchain).run()
    finally:
        toolchain.close()


@frozen
class _Proposed:
    """A candidate on its way."""

    number: int
    assignment: Assignment
    predicted_us: float | None
    build: Future[Prepared]


@frozen
class _Preview:
    """One search without a device."""

    request: Request
    workload: Workload
    machine: Machine
    toolchain: Any
    started: float = field(factory=time.monotonic)

    def run(self) -> CompileReport:
        """Propose and compile side by side, then sort."""
        problem = problem_asked(self.request, self.workload)
        space = space_of(self.workload, problem, self.machine)
        hints = self.workload.suggestions(self.machine.name, problem)
        pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="build")
        try:
            proposed = self._propose(space, hints, pool)
            wait([each.build for each in proposed], timeout=self._left_s())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        ended = [(each, each.build.result()) for each in proposed if not each.build.cancelled()]
        compiled = [_compiled(space, each, done) for each, done in ended if done.failure is None]
        failures = [(each.number, done.failure) for each, done in ended if done.failure]
        if not compiled:
            first = f": {reason_of(failures[0][1])}" if failures else ""
            raise ExplorerError(f"none of {len(proposed)} candidates compiled{first}")
        return CompileReport(
            workload=self.workload.name,
            problem=problem,
            machine=self.machine,
            compiler=self.toolchain.version,
            compiled=tuple(sorted(compiled, key=_order)),
            failures=tuple(failures),
            skipped=len(proposed) - len(ended),
            seconds=time.monotonic() - self.started,
        )

    def _propose(
        self, space: SearchSpace, hints: tuple[Hint, ...], pool: ThreadPoolExecutor
    ) -> list[_Proposed]:
        model = FeasibleModel(space)
        prior = prior_targets(space, hints)
        require_legal(model, prior[0])
        sampler = FeasibleSampler(
            model,
            space.choices,
            seed=self.request.seed or 0,
            prior=prior,
            canonical=space.canonical,
        )
        log = StudyLog(sampler, space.choices)
        build: Callable[..., Any] = self.toolchain.build
        proposed: list[_Proposed] = []
        while len(proposed) < self.request.trials and self._left_s() > 0.0:
            try:
                number, proposal = log.next()
            except Exhausted:
                break
            predicted_us = predicted_time_us(space, proposal.assignment)
            log.score(number, predicted_us)
            future = pool.submit(
                prepare, space, proposal.assignment, lambda s: build(space.kernel, s)
            )
            proposed.append(_Proposed(number, proposal.assignment, predicted_us, future))
        return proposed

    def _left_s(self) -> float:
        return max(0.0, self.started + self.request.seconds - time.monotonic())


def predicted_time_us(space: SearchSpace, assignment: Assignment) -> float | None:
    """The predicted time of a candidate; None where there is no formula or no program."""
    try:
        program = materialize(space.kernel, space.candidate(assignment), space.machine)
        return predict(program, space.machine).predicted_us
    except (InputError, IllegalSchedule):
        return None


def _compiled(space: SearchSpace, proposed: _Proposed, done: Prepared) -> Compiled:
    from explorer.runtime.cuda.build import read_plan  # noqa: PLC0415
    from explorer.runtime.cuda.log import read_log  # noqa: PLC0415

    built: Any = done.artifact
    used = space.active(proposed.assignment[SKELETON]) | {SKELETON}
    found = read_log(built.log)
    return Compiled(
        number=proposed.number,
        assignment=tuple(each for each in proposed.assignment.items() if each[0] in used),
        skeleton=space.skeletons[proposed.assignment[SKELETON]].title,
        schedule_digest=done.schedule_digest,
        predicted_us=proposed.predicted_us,
        registers=found.registers,
        spill_bytes=found.spill_bytes,
        shared_bytes=read_plan(built.library).shared_bytes + found.shared_bytes,
        barriers=found.barriers,
    )


def _order(each: Compiled) -> tuple[float, int]:
    return (float("inf") if each.predicted_us is None else each.predicted_us, each.number)
