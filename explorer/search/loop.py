"""The search loop: propose, build, measure, record, in an order that is always the same.

Trials are measured and recorded in the order of their numbers. A proposal is made as soon as every
outcome below its horizon is known. With lag 0 proposing, building and measuring take turns, so
that solver and compilers do not disturb timing (the host is the device); with lag 1 the next batch
is proposed and built while the current one is measured (the device is another one).

Invariant: the outcome of a trial is recorded before the study is told and before the next trial is
measured; nothing that finished is lost by a kill.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Protocol

from attrs import frozen

from explorer.records import Outcome, Trial, usable_cores
from explorer.search.sampler import Exhausted, FeasibleSampler, Proposal
from explorer.search.study import Retry, StudyLog
from explorer.space.space import Assignment

MOST_BUILDERS = 16


@frozen
class Prepared:
    """A candidate that was built, or the outcome that ended it. `artifact` is the evaluator's."""

    schedule_digest: str
    artifact: object
    failure: Outcome | None = None


class Evaluator(Protocol):
    """Builds and measures candidates. `prepare` is called from several threads at once."""

    def prepare(self, assignment: Assignment) -> Prepared: ...
    def measure(self, prepared: Prepared) -> Outcome: ...


@frozen
class Budget:
    """When to stop: after `trials` trials, or with the first one that ends past `deadline`.

    The deadline is a time.monotonic(), less the seconds that `reserve_s` asks for what comes after
    the search. What has been proposed by then and was not measured is interrupted, and tried again
    when the run goes on.
    """

    trials: int
    deadline: float
    reserve_s: Callable[[], float] = lambda: 0.0

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.deadline - self.reserve_s()


@frozen
class SearchEnd:
    """Why a search ended: done (budget), exhausted, or unknown (the solver gave up)."""

    reason: str
    prepared: dict[int, Prepared]


@frozen
class _Flight:
    number: int
    proposal: Proposal
    build: Future[tuple[Prepared, float]]


class SearchLoop:
    """One search. `record` keeps a finished trial for good; it is called in trial order."""

    def __init__(
        self,
        log: StudyLog,
        sampler: FeasibleSampler,
        evaluator: Evaluator,
        record: Callable[[Trial], None],
        lag: int = 0,
    ) -> None:
        self._log, self._sampler, self._evaluator = log, sampler, evaluator
        self._record = record
        self._lag = lag
        self._flights: deque[_Flight] = deque()
        self._retries: deque[Retry] = deque()
        self._finished = log.number
        self._end = ""

    def run(self, budget: Budget, done: int = 0) -> SearchEnd:
        """Search until the budget is spent or the space is; `done` trials count already."""
        prepared: dict[int, Prepared] = {}
        self._retries = deque(self._log.retries())
        builders = max(2, min(MOST_BUILDERS, usable_cores()))
        pool = ThreadPoolExecutor(builders, thread_name_prefix="build")
        device = ThreadPoolExecutor(1, thread_name_prefix="measure")
        try:
            while True:
                self._fill(pool, budget, done)
                if not self._flights:
                    break
                for trial, built in self._measure(device, pool, budget, done):
                    prepared[trial.number] = built
                    done += 1
                    if budget.late:
                        break
                if budget.late:
                    break
        finally:
            for each in (device, pool):
                each.shutdown(wait=True, cancel_futures=True)
        self._log.abandon([flight.number for flight in self._flights])
        return SearchEnd(self._end or "done", prepared)

    def _fill(self, pool: Executor, budget: Budget, done: int) -> None:
        """Propose what the horizon and the budget allow, then start building it."""
        opened: list[tuple[int, Proposal]] = []
        while (proposed := self._propose(budget, done + len(opened))) is not None:
            opened.append(proposed)
        for number, proposal in opened:
            self._build(pool, number, proposal)

    def _propose(self, budget: Budget, done: int) -> tuple[int, Proposal] | None:
        """The next proposal; None where horizon, budget or space allow none now."""
        if self._end or done + len(self._flights) >= budget.trials or budget.late:
            return None
        if self._sampler.horizon(self._log.number) > self._finished:
            return None
        try:
            return self._log.next(self._retries.popleft() if self._retries else None)
        except Exhausted as end:
            self._end = "exhausted" if end.proved else "unknown"
            return None

    def _build(self, pool: Executor, number: int, proposal: Proposal) -> None:
        build = pool.submit(self._prepare, proposal.assignment)
        self._flights.append(_Flight(number, proposal, build))

    def _measure(
        self, device: Executor, pool: Executor, budget: Budget, done: int
    ) -> Iterator[tuple[Trial, Prepared]]:
        if self._lag:
            # The trial in the air counts until it is done.
            yield self._finish(device, lambda: self._ahead(pool, budget, done + 1))
            return
        wait([flight.build for flight in self._flights])
        for _ in range(len(self._flights)):
            yield self._finish(device, lambda: False)

    def _ahead(self, pool: Executor, budget: Budget, done: int) -> bool:
        """Propose one candidate more and start building it; whether there was one."""
        proposed = self._propose(budget, done)
        if proposed is not None:
            self._build(pool, *proposed)
        return proposed is not None

    def _finish(self, device: Executor, meanwhile: Callable[[], bool]) -> tuple[Trial, Prepared]:
        """Measure the oldest flight, and record it; `meanwhile` works until it has nothing."""
        flight = self._flights.popleft()
        prepared, compile_s = flight.build.result()
        started = time.monotonic()
        measured = device.submit(self._outcome, prepared)
        while not measured.done() and meanwhile():
            pass
        outcome, ended = measured.result()
        trial = Trial(
            number=flight.number,
            assignment=flight.proposal.assignment,
            schedule_digest=prepared.schedule_digest,
            outcome=outcome,
            origin=flight.proposal.origin,
            solver_ms=flight.proposal.solver_ms,
            compile_s=compile_s,
            measure_s=ended - started,
        )
        self._record(trial)
        self._log.tell(trial.number, outcome)
        self._finished = trial.number + 1
        return trial, prepared

    def _outcome(self, prepared: Prepared) -> tuple[Outcome, float]:
        outcome = prepared.failure or self._evaluator.measure(prepared)
        return outcome, time.monotonic()

    def _prepare(self, assignment: Assignment) -> tuple[Prepared, float]:
        started = time.monotonic()
        prepared = self._evaluator.prepare(assignment)
        return prepared, time.monotonic() - started
