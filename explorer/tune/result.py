"""What a tuning run answers: the typed result, and the JSON object that the command prints.

Invariant: measured figures only; a run without a measured candidate has no result.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from attrs import frozen

from explorer.data import unstructure
from explorer.errors import ExplorerError
from explorer.records import OUTCOMES, BestSchedule, Measured, Run, RunInfo, Trial, kind_of

UNITS = {"FLOP": "GFLOP/s", "B": "GB/s"}


@frozen
class TuneResult:
    """The answer of a run that is over."""

    info: RunInfo
    trials: tuple[Trial, ...]
    best: BestSchedule
    out: Path

    @property
    def outcomes(self) -> dict[str, int]:
        """How many trials ended in each outcome."""
        return outcome_counts(self.trials)

    @property
    def solver_ms_median(self) -> float:
        """Solver time a proposal: the median, set-up spread evenly over the proposals."""
        spent = [trial.solver_ms for trial in self.trials if trial.origin != "retry"]
        return median(spent) + self.info.setup_ms / len(spent) if spent else 0.0

    def to_json(self) -> dict[str, Any]:
        """The object that `explorer tune --json` prints."""
        baseline = self.best.baseline
        return {
            "space": self.info.workload,
            "machine": self.info.machine.name,
            "problem": {**dict(self.info.sizes), "dtype": self.info.dtype},
            "trials": len(self.trials),
            "measured": self.outcomes[Measured.__name__],
            "rejected": self.info.refused,
            "solver_ms_median": round(self.solver_ms_median, 3),
            "seconds": round(self.info.elapsed_s, 3),
            "best": {
                "time_us": self.best.time_us,
                "throughput": self.best.throughput,
                "unit": self.best.unit,
                "schedule": unstructure(self.best.schedule),
            },
            "baseline": baseline
            and {"name": baseline.name, "time_us": baseline.time_us, "ratio": baseline.ratio},
            "outcomes": self.outcomes,
            "out": str(self.out),
        }

    def json_text(self) -> str:
        """`to_json` as one line."""
        return json.dumps(self.to_json())


def result_of(run: Run) -> TuneResult:
    """The result of a recorded run; ExplorerError where it has none."""
    if run.best is None:
        raise ExplorerError(
            f"{run.path} has no best schedule: {len(run.trials)} trials, "
            f"the run ended as {run.info.state}"
        )
    return TuneResult(run.info, run.trials, run.best, run.path)


def outcome_counts(trials: tuple[Trial, ...]) -> dict[str, int]:
    """How many trials ended in each outcome, zeros included."""
    seen = Counter(kind_of(trial.outcome) for trial in trials)
    return {kind.__name__: seen[kind.__name__] for kind in OUTCOMES}
