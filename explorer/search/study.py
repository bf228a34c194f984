"""The Optuna study of a run: asking, telling, and going on after a kill.

The study keeps what was proposed; the caller keeps outcomes. A trial that was left running has an
outcome that had been recorded but not told, or none: then it is closed as interrupted, and its
assignment is tried once more. A second interruption is its outcome. Where the study lacks what the
caller has kept, it is made anew: recorded trials are imposed, and what lies between is proposed
again, since a proposal follows from seed and outcomes.

Invariant: after `reconcile`, no trial of the study is running, and every recorded outcome is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import optuna
from attrs import frozen
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from explorer.errors import RecordError
from explorer.records import Crashed, Measured, Outcome, Trial, kind_of, reason_of
from explorer.search.domains import complete
from explorer.search.sampler import Exhausted, FeasibleSampler, Proposal
from explorer.space.space import Assignment, Choice

INTERRUPTED, RETRY_OF, ORIGIN, REASON = "interrupted", "retry_of", "origin", "reason"
STUDY = "explorer"


@frozen
class Retry:
    """An interrupted trial that is to be tried once more."""

    number: int
    assignment: Assignment


def file_storage(path: Path) -> BaseStorage:
    """The storage in a journal file that this process owns alone.

    A lock left by a killed process is removed: the run folder's own lock has said that it is dead.
    """
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except Exception as problem:  # the journal's reader checks nothing
        reason = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
        raise RecordError(
            f"{path} is not a readable study ({reason}); remove it, and --resume makes it anew"
        ) from None


class StudyLog:
    """A study with its sampler: `next` asks, `tell` closes, `reconcile` repairs."""

    def __init__(
        self,
        sampler: FeasibleSampler,
        choices: Sequence[Choice],
        storage: BaseStorage | None = None,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._sampler = sampler
        self._choices = tuple(choices)
        self._storage = storage or InMemoryStorage()
        self._study = self._open()

    @property
    def number(self) -> int:
        """The number of the next trial."""
        return len(self._study.get_trials(deepcopy=False))

    def _open(self) -> optuna.Study:
        return optuna.create_study(
            storage=self._storage,
            sampler=self._sampler,
            study_name=STUDY,
            direction="minimize",
            load_if_exists=True,
        )

    def next(self, retry: Retry | None = None) -> tuple[int, Proposal]:
        """Open the next trial; raises Exhausted where nothing legal is left."""
        number = self.number
        if retry is not None:
            imposed = Proposal(dict(retry.assignment), "retry", 0.0)
            proposal = self._sampler.impose(number, imposed)
        else:
            proposal = self._sampler.propose(self._study, number)
        trial = self._ask(proposal)
        if retry is not None:
            trial.set_user_attr(RETRY_OF, retry.number)
        return trial.number, proposal

    def _ask(self, proposal: Proposal) -> optuna.Trial:
        trial = self._study.ask(fixed_distributions=self._sampler.space)
        trial.set_user_attr(ORIGIN, proposal.origin)
        return trial

    def tell(self, number: int, outcome: Outcome) -> None:
        """Close a trial; a failure closes it as failed, with its reason."""
        if isinstance(outcome, Measured):
            self._study.tell(number, outcome.time_us)
            return
        reason = f"{kind_of(outcome)}: {reason_of(outcome)}"
        self._close(number, REASON, reason)

    def score(self, number: int, value: float | None) -> None:
        """Close a trial of a search that measures nothing with its predicted value."""
        if value is None:
            self._close(number, REASON, "no prediction")
        else:
            self._study.tell(number, value)

    def abandon(self, numbers: Sequence[int]) -> None:
        """Close trials that were opened and will not be measured now, as interrupted."""
        for number in numbers:
            self._close(number, INTERRUPTED, True)

    def reconcile(self, recorded: Sequence[Trial]) -> list[Trial]:
        """Close every running trial; the trials that end here because of a second interruption."""
        if not self._has(recorded):
            self._rebuild(recorded)
        outcomes = {trial.number: trial.outcome for trial in recorded}
        ended = []
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state != TrialState.RUNNING:
                continue
            if trial.number in outcomes:
                self.tell(trial.number, outcomes[trial.number])
            elif RETRY_OF in trial.user_attrs:
                outcome = Crashed("interrupted twice")
                self.tell(trial.number, outcome)
                ended.append(
                    Trial(trial.number, self._assignment(trial), "", outcome, origin="retry")
                )
            else:
                self._close(trial.number, INTERRUPTED, True)
        return ended

    def retries(self) -> list[Retry]:
        """The interrupted trials that have not been tried again, oldest first."""
        trials = self._study.get_trials(deepcopy=False)
        again = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        return [
            Retry(trial.number, self._assignment(trial))
            for trial in trials
            if trial.user_attrs.get(INTERRUPTED) and trial.number not in again and trial.params
        ]

    def _has(self, recorded: Sequence[Trial]) -> bool:
        """Whether the study has every recorded trial, with the assignment that was recorded."""
        trials = self._study.get_trials(deepcopy=False)
        return all(
            trial.number < len(trials) and trials[trial.number].params == self._params(trial)
            for trial in recorded
        )

    def _rebuild(self, recorded: Sequence[Trial]) -> None:
        optuna.delete_study(study_name=STUDY, storage=self._storage)
        self._study = self._open()
        past = {trial.number: trial for trial in recorded}
        interrupted: dict[frozenset[tuple[str, int]], int] = {}
        for number in range(max(past) + 1):
            trial = past.get(number)
            if trial is None:
                assignment = self._again(number)
                interrupted[frozenset(assignment.items())] = number
                self._close(number, INTERRUPTED, True)
            elif trial.origin == "retry":
                self.next(Retry(interrupted.get(frozenset(trial.assignment), -1), trial.choices))
                self.tell(number, trial.outcome)
            else:
                imposed = Proposal(trial.choices, trial.origin, trial.solver_ms)
                self._ask(self._sampler.impose(number, imposed))
                self.tell(number, trial.outcome)

    def _again(self, number: int) -> Assignment:
        try:
            return self.next()[1].assignment
        except Exhausted:
            raise RecordError(
                f"the study cannot be made anew: nothing legal is left for trial {number}"
            ) from None

    def _params(self, trial: Trial) -> Assignment:
        return {name: trial.choices[name] for name in self._sampler.space}

    def _close(self, number: int, name: str, value: object) -> None:
        study = self._storage.get_study_id_from_name(STUDY)
        trial = self._storage.get_trial_id_from_study_id_trial_number(study, number)
        self._storage.set_trial_user_attr(trial, name, value)
        self._study.tell(number, state=TrialState.FAIL)

    def _assignment(self, trial: FrozenTrial) -> Assignment:
        return complete(self._choices, trial.params)
