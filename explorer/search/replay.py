"""Replaying a recorded run: the recorded outcomes must lead to the recorded proposals.

A number that the records lack was interrupted; the sampler proposes it again, and the trial that
tried it once more is imposed, as it was then.

Invariant: nothing is built or measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from explorer.records import Crashed, Trial
from explorer.search.sampler import Exhausted, FeasibleSampler
from explorer.search.study import Retry, StudyLog
from explorer.space.space import Assignment, Choice


@frozen
class Divergence:
    """The first trial whose proposal differs: recorded, and proposed now (None: exhausted)."""

    number: int
    recorded: Assignment
    proposed: Assignment | None


def replay(
    sampler: FeasibleSampler, choices: Sequence[Choice], trials: Sequence[Trial]
) -> Divergence | None:
    """The first divergence of a run from its records, None where there is none."""
    log = StudyLog(sampler, choices)
    recorded: Mapping[int, Trial] = {trial.number: trial for trial in trials}
    told = 0
    for number in range(max(recorded, default=-1) + 1):
        while told < sampler.horizon(number):
            past = recorded.get(told)
            log.tell(told, past.outcome if past else Crashed("interrupted"))
            told += 1
        trial = recorded.get(number)
        retried = trial is not None and trial.origin == "retry"
        retry = Retry(-1, trial.choices) if trial is not None and retried else None
        try:
            proposed = log.next(retry)[1].assignment
        except Exhausted:
            proposed = None
        if trial is not None and proposed != trial.choices:
            return Divergence(number, trial.choices, proposed)
    return None
