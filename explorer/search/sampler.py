"""The feasible sampler: every proposal is legal, new, and a function of seed and outcomes.

A target comes from the given candidates, then from an even spread, then in turns from a
tree-structured Parzen estimator, seeded anew for every trial, and from one step off the best.
The model moves the target to the nearest legal assignment that the study has not seen; nothing is
proposed and then refused. A trial sees only the outcomes below its horizon: with lag 0 the end of
the previous batch; with lag 1, where building overlaps measuring, that of the batch before it.

Invariant: a proposal is a pure function of (seed, trial number, the trials below it, the outcomes
below its horizon). Every assignment that the study has seen is forbidden, so the same point is
never tried twice, and a failed one never again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import optuna
from attrs import frozen
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from explorer.search.domains import complete, distributions
from explorer.search.targets import neighbour, spread
from explorer.space.space import Assignment, Choice

STARTUP = 20
ATTEMPTS = 8


class Projected(Protocol):
    """What a projection says: `status` is found, exhausted or unknown."""

    @property
    def status(self) -> str: ...
    @property
    def assignment(self) -> tuple[tuple[str, int], ...]: ...


class Feasible(Protocol):
    """The part of a `FeasibleModel` that a search needs."""

    @property
    def seconds(self) -> float: ...
    def project(self, target: Assignment) -> Projected: ...
    def forbid(self, assignment: Assignment) -> None: ...


class Exhausted(Exception):
    """Every legal assignment has been tried. `proved` is False where the solver gave up."""

    def __init__(self, proved: bool) -> None:
        super().__init__("the space is exhausted" if proved else "the solver gave up")
        self.proved = proved


@frozen
class Proposal:
    """A legal assignment, who proposed it, and the solver's time for it."""

    assignment: Assignment
    origin: str
    solver_ms: float


class FeasibleSampler(BaseSampler):
    """Proposes legal assignments of static choices to an Optuna study.

    `prior` are targets that are tried first, in order; `startup` is the number of trials before
    the estimator takes over; `batch` and `lag` fix the horizon; `canonical` names equal
    candidates alike.
    """

    def __init__(
        self,
        model: Feasible,
        choices: Sequence[Choice],
        *,
        seed: int,
        prior: Sequence[Mapping[str, int]] = (),
        startup: int = STARTUP,
        batch: int = 1,
        lag: int = 0,
        canonical: Callable[[Assignment], Assignment] = dict,
    ) -> None:
        self._canonical = canonical
        self._visited: set[tuple[tuple[str, int], ...]] = set()
        self._model = model
        self._choices = tuple(choices)
        self._space = distributions(choices)
        self._seed = seed
        self._prior = tuple(prior)
        self._startup = max(startup, len(self._prior) + 1)
        self._batch, self._lag = batch, lag
        self._forbidden = 0
        self._shadow = _silent_study()
        self._shadowed = 0
        self._next: tuple[int, Proposal] | None = None

    @property
    def space(self) -> dict[str, BaseDistribution]:
        """The distributions of the choices that have more than one value."""
        return dict(self._space)

    def propose(self, study: optuna.Study, number: int) -> Proposal:
        """The proposal of trial `number`; raises Exhausted where nothing legal is left."""
        trials = study.get_trials(deepcopy=False)
        before = self._model.seconds
        self._forbid([trial for trial in trials if trial.number < number])
        origin, target = self._target(trials, number)
        for attempt in range(ATTEMPTS):
            found = self._model.project(target)
            if found.status == "found":
                solver_ms = (self._model.seconds - before) * 1e3
                return self.impose(number, Proposal(dict(found.assignment), origin, solver_ms))
            if found.status == "exhausted":
                raise Exhausted(proved=True)
            origin, target = "fill", spread(self._choices, self._seed + attempt + 1, number)
        raise Exhausted(proved=False)

    def impose(self, number: int, proposal: Proposal) -> Proposal:
        """Make `proposal` that of trial `number`, whatever the sampler would have said."""
        self._next = (number, proposal)
        return proposal

    def horizon(self, number: int) -> int:
        """Trial `number` sees the outcomes of the trials below this number."""
        return max(0, number // self._batch - self._lag) * self._batch

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All choices, always."""
        return dict(self._space)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """The values of the proposal for this trial."""
        number, proposal = self._next or (-1, None)
        if number != trial.number or proposal is None:
            proposal = self.propose(study, trial.number)
        return {name: proposal.assignment[name] for name in search_space}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Nothing is sampled on its own: a parameter outside the space is a mistake."""
        raise ValueError(f"{param_name!r} is not a choice of this space")

    def _forbid(self, trials: Sequence[FrozenTrial]) -> None:
        for trial in trials[self._forbidden :]:
            if trial.params:
                assignment = complete(self._choices, trial.params)
                self._model.forbid(assignment)
                self._visited.add(tuple(assignment.items()))
        self._forbidden = max(self._forbidden, len(trials))

    def _target(self, trials: Sequence[FrozenTrial], number: int) -> tuple[str, Assignment]:
        if number < len(self._prior):
            return "prior", complete(self._choices, self._prior[number])
        seen = self._seen(trials[: self.horizon(number)])
        if number < self._startup or not seen:
            return "fill", spread(self._choices, self._seed, number - len(self._prior))
        if number % 2:
            best = min(
                self._shadow.get_trials(deepcopy=False),
                key=lambda trial: (trial.value or 0.0, trial.number),
            )
            here = complete(self._choices, best.params)
            return "neighbour", self._new(
                number, lambda seed: neighbour(self._choices, here, seed)
            )
        return "model", self._new(number, self._estimate)

    def _new(self, number: int, target_of: Callable[[int], Assignment]) -> Assignment:
        """The first of a few targets that is not a point that has been tried already."""
        target: Assignment = {}
        for attempt in range(ATTEMPTS):
            target = self._canonical(target_of(_seed_of(self._seed, number, attempt)))
            if tuple(target.items()) not in self._visited:
                break
        return target

    def _estimate(self, seed: int) -> Assignment:
        estimator = TPESampler(seed=seed, n_startup_trials=1, constant_liar=False)
        blank = optuna.trial.create_trial(state=TrialState.RUNNING)
        values = estimator.sample_relative(self._shadow, blank, self._space)
        return complete(self._choices, values)

    def _seen(self, trials: Sequence[FrozenTrial]) -> int:
        for trial in trials[self._shadowed :]:
            if not trial.state.is_finished():
                break
            self._shadowed += 1
            if trial.state == TrialState.COMPLETE:
                copy = optuna.trial.create_trial(
                    value=trial.value, params=trial.params, distributions=self._space
                )
                self._shadow.add_trial(copy)
        return len(self._shadow.get_trials(deepcopy=False))


def _silent_study() -> optuna.Study:
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study()
    finally:
        optuna.logging.set_verbosity(verbosity)


def _seed_of(*parts: int) -> int:
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
