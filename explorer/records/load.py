"""Reading a run back.

Invariant: a `Run` is complete and consistent, or it does not exist: an unfinished, foreign or
damaged folder is an error in one line.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from explorer.errors import RecordError
from explorer.records.environment import Environment
from explorer.records.folder import (
    BEST,
    ENVIRONMENT,
    LOG,
    SOURCE,
    read_document,
    read_info,
    read_trials,
)
from explorer.records.outcomes import Measured
from explorer.records.trial import BestSchedule, RunInfo, Trial
from explorer.schedule.bound import Schedule

ANSWERED = ("done", "exhausted", "unknown")


@frozen
class Run:
    """A finished run."""

    path: Path
    info: RunInfo
    environment: Environment
    trials: tuple[Trial, ...]
    best: BestSchedule | None
    source: str

    @property
    def measured(self) -> tuple[Trial, ...]:
        """The measured trials, fastest first."""
        found = [trial for trial in self.trials if isinstance(trial.outcome, Measured)]
        return tuple(sorted(found, key=lambda trial: (trial.time_us or 0.0, trial.number)))


def load(folder: str | Path) -> Run:
    """The run in a folder; RecordError says in one line why it cannot be read."""
    if not isinstance(folder, str | Path):
        raise RecordError(f"expected the path of a run folder, got {folder!r}")
    path = Path(folder)
    info = read_info(path)
    trials = read_trials(path)
    if info.state == "running":
        raise RecordError(
            f"{path} is unfinished after {len(trials)} trials: "
            f"`explorer tune {info.space} --out {path} --resume` goes on"
        )
    half = f"{path} is half-written"
    answered = info.state in ANSWERED or (path / BEST).exists()
    best = read_document(path / BEST, BestSchedule, half) if answered else None
    if best is not None and best.trial not in (trial.number for trial in trials):
        raise RecordError(f"{half}: {LOG} has no trial {best.trial}, which {BEST} names")
    source = next(iter(sorted(path.glob(f"{SOURCE}.c*"))), None)
    if best is not None and source is None:
        raise RecordError(f"{path} is half-written: the source of the best schedule is missing")
    return Run(
        path=path,
        info=info,
        environment=read_document(path / ENVIRONMENT, Environment, half),
        trials=trials,
        best=best,
        source=source.read_text() if source else "",
    )


def read_schedule(path: str | Path) -> Schedule:
    """The schedule in a file: a Schedule document, or the best.json of a run."""
    file = Path(path)
    missing = f"no schedule in {file.parent}"
    try:
        return read_document(file, Schedule, missing)
    except RecordError as problem:
        if "got 'BestSchedule'" not in str(problem):
            raise
    return read_document(file, BestSchedule, missing).schedule
