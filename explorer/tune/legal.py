"""A legal candidate of a space, of which nothing is measured, or why there is none.

Invariant: what is returned obeys every rule; a 'no' names the rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from explorer.constraints import FeasibleModel
from explorer.errors import NoLegalCandidate
from explorer.schedule.bound import Schedule
from explorer.search import complete
from explorer.space import Assignment, SearchSpace
from explorer.tune.prior import specialized_target


def first_legal(space: SearchSpace, wishes: Mapping[str, int] | None = None) -> Schedule:
    """The legal candidate nearest to experience, with pipelines where the space has any.

    `wishes` are values of choices, by the prefix of their names, that go before experience. The
    solver builds it, nothing times it. NoLegalCandidate where there is none.
    """
    target = specialized_target(space, wishes or {})
    return space.candidate(require_legal(FeasibleModel(space), target))


def require_legal(model: FeasibleModel, target: Assignment) -> Assignment:
    """The legal assignment nearest to a target; NoLegalCandidate names the rules in its way."""
    space = model.space
    probe = model.project(complete(space.choices, target))
    if probe.status == "found":
        return dict(probe.assignment)
    if probe.status != "exhausted":
        raise NoLegalCandidate(
            f"the solver found no legal candidate of {space.size} within its effort"
        )
    rules = "; ".join(model.explain_empty())
    raise NoLegalCandidate(
        f"no legal candidate among {space.size} on {space.machine.name}: {rules}"
    )
