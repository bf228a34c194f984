"""The solver's model of a search space: every rule over every skeleton, every choice a variable.

Invariant: an assignment that the model returns satisfies all rules; `unknown` is a status of its
own and is never reported as infeasible. The model's answers depend only on the space and on the
sequence of its calls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import z3
from attrs import frozen

from explorer.constraints.ground import Ground
from explorer.constraints.lower import Lowering
from explorer.constraints.rules import RULES
from explorer.expr import TRUE
from explorer.space import SKELETON, SearchSpace

# Deterministic effort of one query; a query that needs more is answered 'unknown'.
QUERY_RESOURCES = 20_000_000
# Legal numbers that are kept at hand, to be tried before the solver is asked.
WITNESSES = 16


class Status(StrEnum):
    """The answer to 'is there a legal assignment'."""

    FOUND = "found"
    EXHAUSTED = "exhausted"
    UNKNOWN = "unknown"


@frozen
class Projection:
    """A legal assignment near a wish, or why there is none."""

    status: Status
    assignment: tuple[tuple[str, int], ...] = ()


class SkeletonModel:
    """Legal numbers of one skeleton: a variable for every choice that it uses."""

    def __init__(self, space: SearchSpace, index: int) -> None:
        active = space.active(index)
        self.choices = tuple(choice for choice in space.choices if choice.name in active)
        lowering = Lowering({choice.name: choice.domain for choice in self.choices})
        self._terms, self._equal = lowering.terms, lowering.equal
        stated = [
            (rule.id, requirement.holds)
            for rule in RULES
            for requirement in rule.requirements(space.skeletons[index].plan, space.machine)
            if requirement.holds != TRUE
        ]
        names = [choice.name for choice in self.choices]
        self._ground = Ground(names, [cond for _, cond in stated])
        self._conditions = [(rule_id, lowering.lower_cond(cond)) for rule_id, cond in stated]
        self._forbidden: set[tuple[int, ...]] = set()
        self._known: list[dict[str, int]] = []
        self._solver = self._empty()
        self._solver.add(*(cond for _, cond in self._conditions))

    def _empty(self) -> Any:
        """A solver that knows the domains and no rule."""
        solver = z3.SimpleSolver()
        solver.set("rlimit", QUERY_RESOURCES)
        solver.set("random_seed", 0)
        for choice in self.choices:
            solver.add(z3.Or(*(self._equal[choice.name, value] for value in choice.domain)))
        return solver

    def check(self, fixed: Mapping[str, int]) -> Any:
        """The solver's answer with those choices fixed."""
        return self._solver.check(*(self._equal[item] for item in fixed.items()))

    def _witness(self) -> dict[str, int]:
        """The numbers of the solver's last positive answer."""
        model = self._solver.model()
        return {
            name: model.eval(term, model_completion=True).as_long()
            for name, term in self._terms.items()
        }

    def project(self, wish: Mapping[str, int]) -> Projection:
        """The legal numbers nearest to `wish`, choice by choice in order."""
        wish = {choice.name: wish[choice.name] for choice in self.choices}
        if self._legal_from(0, wish):
            return Projection(Status.FOUND, tuple(wish.items()))
        if not self._known:
            answer = self.check({})
            if answer != z3.sat:
                return Projection(Status.EXHAUSTED if answer == z3.unsat else Status.UNKNOWN)
            self._remember(self._witness())
        # What is known to be legal needs no query; the witness agrees with all that is fixed.
        witness = self._known[0]
        fixed: dict[str, int] = {}
        for index, choice in enumerate(self.choices):
            for value in _by_distance(choice.domain, wish[choice.name]):
                fixed[choice.name] = value
                known = value == witness[choice.name]
                found = witness if known else self._completed(index, fixed, wish)
                if found is not None:
                    witness = found
                    break
        return Projection(Status.FOUND, tuple(witness.items()))

    def _completed(
        self, index: int, fixed: Mapping[str, int], wish: Mapping[str, int]
    ) -> dict[str, int] | None:
        """Legal numbers that begin with `fixed`, whose last choice is that at `index`; None where
        there are none. Arithmetic answers what it can, the solver the rest."""
        if not self._ground.allows(index, fixed):
            return None
        for rest in (wish, *self._known):
            numbers = {**rest, **fixed}
            if self._legal_from(index + 1, numbers):
                return self._remember(numbers)
        return self._remember(self._witness()) if self.check(fixed) == z3.sat else None

    def _remember(self, numbers: dict[str, int]) -> dict[str, int]:
        """Keep the numbers first among those that are known to be legal."""
        kept = [each for each in self._known if each != numbers]
        self._known = [numbers, *kept[: WITNESSES - 1]]
        return numbers

    def _legal_from(self, index: int, numbers: Mapping[str, int]) -> bool:
        """Whether numbers are legal whose conditions before the choice at `index` hold."""
        return self._ground.allows_from(index, numbers) and (
            self._numbers(numbers) not in self._forbidden
        )

    def _numbers(self, assignment: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(assignment[choice.name] for choice in self.choices)

    def forbid(self, assignment: Mapping[str, int]) -> None:
        """Never return these numbers again."""
        forbidden = self._numbers(assignment)
        self._forbidden.add(forbidden)
        self._known = [each for each in self._known if self._numbers(each) != forbidden]
        self._solver.add(z3.Or(*(t != assignment[name] for name, t in self._terms.items())))

    def unsatisfied(self) -> frozenset[str]:
        """Ids of rules that together leave nothing legal; no smaller part of them does."""
        # Guards name the rules in a core; queries without them are a third faster.
        solver = self._empty()
        guards = {rule_id: z3.Bool(f"rule:{rule_id}") for rule_id, _ in self._conditions}
        for rule_id, cond in self._conditions:
            solver.add(z3.Implies(guards[rule_id], cond))
        if solver.check(*guards.values()) != z3.unsat:
            return frozenset()
        core = {str(term).removeprefix("rule:") for term in solver.unsat_core()}
        for rule_id in sorted(core):
            if solver.check(*(guards[name] for name in core - {rule_id})) == z3.unsat:
                core.discard(rule_id)
        return frozenset(core)


class FeasibleModel:
    """Legal assignments of a space. `seconds` is the solver's time so far, set-up included."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.seconds = 0.0
        self._models: dict[int, SkeletonModel] = {}
        self._spent: set[int] = set()

    def _model(self, skeleton: int) -> SkeletonModel:
        if skeleton not in self._models:
            self._models[skeleton] = SkeletonModel(self.space, skeleton)
        return self._models[skeleton]

    def project(self, wish: Mapping[str, int]) -> Projection:
        """The legal, not forbidden assignment nearest to `wish`, choice by choice in order.

        Each choice keeps its wished value where some legal assignment allows it, given the choices
        before, else takes the allowed value nearest to it in the domain's order.
        """
        with self._timed():
            unknown = False
            for skeleton in _by_distance(self.space.choice(SKELETON).domain, wish[SKELETON]):
                if skeleton in self._spent:
                    continue
                near = self._model(skeleton).project(wish)
                if near.status == Status.FOUND:
                    whole = {**wish, **dict(near.assignment), SKELETON: skeleton}
                    return Projection(Status.FOUND, tuple(self.space.canonical(whole).items()))
                if near.status == Status.EXHAUSTED:
                    self._spent.add(skeleton)
                unknown |= near.status == Status.UNKNOWN
            return Projection(Status.UNKNOWN if unknown else Status.EXHAUSTED)

    def forbid(self, assignment: Mapping[str, int]) -> None:
        """Never return this assignment again."""
        with self._timed():
            self._model(assignment[SKELETON]).forbid(assignment)

    def is_legal(self, assignment: Mapping[str, int]) -> bool | None:
        """Whether an assignment is legal and not forbidden; None where the solver cannot tell."""
        model = self._model(assignment[SKELETON])
        fixed = {choice.name: assignment[choice.name] for choice in model.choices}
        answer = model.check(fixed)
        return None if answer == z3.unknown else bool(answer == z3.sat)

    def explain_empty(self) -> tuple[str, ...]:
        """Where nothing is legal: each rule that empties a skeleton, and what helps."""
        core: set[str] = set()
        for skeleton in self.space.choice(SKELETON).domain:
            core |= self._model(skeleton).unsatisfied()
        return tuple(
            f"{rule.id}: {rule.sentence}; {rule.remedy}" for rule in RULES if rule.id in core
        )

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started


def _by_distance(domain: tuple[int, ...], wished: int) -> list[int]:
    """The values of a domain, nearest in its order first; ties go to the earlier."""
    if wished not in domain:
        return list(domain)
    centre = domain.index(wished)
    order = sorted(range(len(domain)), key=lambda index: (abs(index - centre), index))
    return [domain[index] for index in order]
