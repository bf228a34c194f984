"""Search spaces: workloads, skeletons, choices, and the candidate that an assignment makes."""

from explorer.space.build import build_space, space_of
from explorer.space.drawing import standard_normal
from explorer.space.space import SKELETON, Assignment, Choice, SearchSpace
from explorer.space.suite import Case, Suite
from explorer.space.workload import Arrays, Hint, Peer, Problem, Workload

__all__ = [
    "SKELETON",
    "Arrays",
    "Assignment",
    "Case",
    "Choice",
    "Hint",
    "Peer",
    "Problem",
    "SearchSpace",
    "Suite",
    "Workload",
    "build_space",
    "space_of",
    "standard_normal",
]
