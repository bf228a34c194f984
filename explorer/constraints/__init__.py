"""Rules, the checker, and the solver's model of a space; the only part that imports the solver."""

from explorer.constraints.checker import Report, Violation, check, check_parts, check_plan
from explorer.constraints.model import FeasibleModel, Projection, Status
from explorer.constraints.rule import Requirement, Rule
from explorer.constraints.rules import RULES, rule_named, rules_digest

__all__ = [
    "RULES",
    "FeasibleModel",
    "Projection",
    "Report",
    "Requirement",
    "Rule",
    "Status",
    "Violation",
    "check",
    "check_parts",
    "check_plan",
    "rule_named",
    "rules_digest",
]
