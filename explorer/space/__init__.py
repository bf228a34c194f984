"""Search spaces: workloads, skeletons, choices, and the candidate that an assignment makes."""

from explorer.space.build import build_space, space_of
from explorer.space.space import SKELETON, Assignment, Choice, SearchSpace
from explorer.space.workload import Arrays, Hint, Peer, Problem, Workload

__all__ = [
    "SKELETON",
    "Arrays",
    "Assignment",
    "Choice",
    "Hint",
    "Peer",
    "Problem",
    "SearchSpace",
    "Workload",
    "build_space",
    "space_of",
]
