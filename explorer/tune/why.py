"""Why an assignment is legal or not: the rules in the way with their numbers, and the way out.

Invariant: 'legal' is said of an assignment that both the solver and the concrete checker accept;
'forbidden' names rules that together leave no value for the choices that were not given.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from explorer.constraints import FeasibleModel, Violation, check
from explorer.errors import ExplorerError, InputError
from explorer.space import SKELETON, Assignment, SearchSpace
from explorer.tune.prior import specialized_target

Change = tuple[str, int, int]


@frozen
class Explanation:
    """The answer about some choices of a space.

    `legal` is an assignment that has them, nearest to experience, or None. Then `rules` are those
    that leave nothing, in skeleton after skeleton; `violations` is what they say of `tried`, the
    assignment nearest to experience, and `changes` lead from there to the nearest legal one: name,
    value, legal value.
    """

    legal: Assignment | None
    tried: Assignment
    title: str
    rules: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    changes: tuple[Change, ...] = ()


def explain(space: SearchSpace, given: Mapping[str, int]) -> Explanation:
    """Whether the rules allow some values of choices; InputError for names the space lacks."""
    _require_known(space, given)
    skeletons = _skeletons(space, given)
    tried = {**specialized_target(space, {}), **given}
    if tried[SKELETON] not in skeletons:
        tried[SKELETON] = skeletons[0]
    fixed = {name: (value,) for name, value in given.items()} | {SKELETON: skeletons}
    model = FeasibleModel(space.restricted(**fixed))
    found = model.project(tried)
    if found.status == "found":
        legal = space.canonical(dict(found.assignment))
        return Explanation(legal, legal, space.skeletons[legal[SKELETON]].title)
    if found.status == "unknown":
        raise ExplorerError("the solver did not decide it within its effort: give more choices")
    tried = space.canonical(tried)
    rules = model.explain_empty()
    named = {rule.partition(":")[0] for rule in rules}
    report = check(space.kernel, space.candidate(tried), space.machine)
    return Explanation(
        legal=None,
        tried=tried,
        title=space.skeletons[tried[SKELETON]].title,
        rules=tuple(rules),
        violations=tuple(each for each in report.violations if each.rule in named),
        changes=_nearest(space, tried),
    )


def _nearest(space: SearchSpace, tried: Assignment) -> tuple[Change, ...]:
    """What the nearest legal assignment changes, of the same skeleton where it has one."""
    for domain in ((tried[SKELETON],), space.choice(SKELETON).domain):
        near = FeasibleModel(space.restricted(**{SKELETON: domain})).project(tried)
        if near.status == "found":
            legal = dict(near.assignment)
            used = space.active(legal[SKELETON]) | {SKELETON}
            return tuple(
                (name, tried[name], value)
                for name, value in legal.items()
                if name in used and value != tried[name]
            )
    return ()


def _require_known(space: SearchSpace, given: Mapping[str, int]) -> None:
    domains = {choice.name: choice.domain for choice in space.choices}
    for name, value in given.items():
        if name not in domains:
            raise InputError(f"the space has no choice {name!r}: it has {', '.join(domains)}")
        if value not in domains[name]:
            values = ", ".join(map(str, domains[name]))
            raise InputError(f"the space has no {name} of {value}: it has {values}")


def _skeletons(space: SearchSpace, given: Mapping[str, int]) -> tuple[int, ...]:
    """The skeletons that use all given choices."""
    names = set(given) - {SKELETON}
    found = tuple(
        index
        for index in ((given[SKELETON],) if SKELETON in given else space.choice(SKELETON).domain)
        if names <= space.active(index)
    )
    if found:
        return found
    wanted = ", ".join(sorted(names))
    if SKELETON not in given:
        raise InputError(f"no skeleton uses {wanted} together")
    index = given[SKELETON]
    used = ", ".join(sorted(space.active(index)))
    raise InputError(f"skeleton {index} does not use {wanted}: it uses {used}")
