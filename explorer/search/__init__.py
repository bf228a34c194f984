"""Search: feasible sampling, the Optuna study, the loop, the race, the replay."""

from explorer.search.domains import complete
from explorer.search.loop import (
    Budget,
    Evaluator,
    Prepared,
    SearchEnd,
    SearchLoop,
)
from explorer.search.racing import Standing, contenders, interval, standings, winner
from explorer.search.replay import Divergence, replay
from explorer.search.sampler import Exhausted, Feasible, FeasibleSampler, Projected, Proposal
from explorer.search.study import Retry, StudyLog, file_storage

__all__ = [
    "Budget",
    "Divergence",
    "Evaluator",
    "Exhausted",
    "Feasible",
    "FeasibleSampler",
    "Prepared",
    "Projected",
    "Proposal",
    "Retry",
    "SearchEnd",
    "SearchLoop",
    "Standing",
    "StudyLog",
    "complete",
    "contenders",
    "file_storage",
    "interval",
    "replay",
    "standings",
    "winner",
]
