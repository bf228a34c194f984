"""The list of all rules, in the order in which they are reported.

`NAMES` says that the extensions can be applied, `STRUCTURE` that names, ranges and places fit the
kernel that they make; `MEANING` presumes both. The checker goes on only where what comes before
holds.
"""

from __future__ import annotations

from explorer.constraints import (
    capacity,
    clusters,
    dataflow,
    deadlock,
    nesting,
    order,
    pipelines,
    pools,
    reduction,
    registers,
    roles,
    routes,
    scalars,
    scopes,
    spans,
    turns,
)
from explorer.constraints.rule import Rule
from explorer.data import digest

NAMES: tuple[Rule, ...] = scopes.NAMES

STRUCTURE: tuple[Rule, ...] = (*roles.STRUCTURE, *pipelines.STRUCTURE, *scopes.STRUCTURE)

MEANING: tuple[Rule, ...] = (
    *roles.RULES,
    *pipelines.RULES,
    *scopes.RULES,
    *spans.RULES,
    *turns.RULES,
    *nesting.RULES,
    *order.RULES,
    *dataflow.RULES,
    *scalars.RULES,
    *deadlock.RULES,
    *capacity.RULES,
    *registers.RULES,
    *pools.RULES,
    *routes.RULES,
    *clusters.RULES,
    *reduction.RULES,
)

TIERS = (NAMES, STRUCTURE, MEANING)

RULES: tuple[Rule, ...] = tuple(rule for tier in TIERS for rule in tier)


def rule_named(rule_id: str) -> Rule:
    """The rule of that id; KeyError where there is none."""
    for rule in RULES:
        if rule.id == rule_id:
            return rule
    raise KeyError(rule_id)


def rules_digest() -> str:
    """Twelve hex digits that identify the rules as stated."""
    return digest(*(f"{rule.id}: {rule.sentence}" for rule in RULES))
