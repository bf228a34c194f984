"""Tables of a run: every trial, and what each value of each choice was worth.

Invariant: tables hold measured figures only; a trial that was not measured has no time.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from explorer.records import Run, Trial
from explorer.records.table import CHOICE, rows


def trial_frame(run: Run | Sequence[Trial]) -> pd.DataFrame:
    """One row a trial; the choices under their own names, `time_us` NaN where not measured."""
    trials = run.trials if isinstance(run, Run) else tuple(run)
    frame = pd.DataFrame(rows(tuple(trials)))
    return frame.rename(columns=lambda name: name.removeprefix(CHOICE))


def choice_names(run: Run) -> list[str]:
    """The choices that took more than one value among the measured trials."""
    seen: dict[str, set[int]] = {}
    for trial in run.measured:
        for name, value in trial.assignment:
            seen.setdefault(name, set()).add(value)
    return [name for name, values in seen.items() if len(values) > 1]


def marginals(run: Run) -> pd.DataFrame:
    """What each value of each choice was worth.

    One row a value: how many trials were measured with it, the best and the median of their times,
    and `x_best`: its best time over the best of all, which is what fixing that value would cost.
    """
    frame = trial_frame(run.measured)
    columns = ["choice", "value", "trials", "best_us", "median_us", "x_best"]
    found = []
    for name in choice_names(run):
        for value, group in frame.groupby(name)["time_us"]:
            best = float(group.min())
            cost = best / float(frame["time_us"].min())
            found.append((name, int(str(value)), len(group), best, float(group.median()), cost))
    return pd.DataFrame(found, columns=columns)
