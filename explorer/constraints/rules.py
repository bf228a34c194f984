"""The list of all rules, in the order in which they are reported."""

from __future__ import annotations

from explorer.constraints import capacity, deadlock, pipelines, roles
from explorer.constraints.rule import Rule
from explorer.data import digest

RULES: tuple[Rule, ...] = (
    *roles.RULES,
    *pipelines.RULES,
    *deadlock.RULES,
    *capacity.RULES,
)


def rule_named(rule_id: str) -> Rule:
    """The rule of that id; KeyError where there is none."""
    for rule in RULES:
        if rule.id == rule_id:
            return rule
    raise KeyError(rule_id)


def rules_digest() -> str:
    """Twelve hex digits that identify the rules as stated."""
    return digest(*(f"{rule.id}: {rule.sentence}" for rule in RULES))
