"""Figures of a run. Each takes a run and returns a matplotlib Figure; none touches pyplot's state.

Invariant: times are measured, in microseconds, on an axis that says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from explorer.errors import InputError
from explorer.records import Run
from explorer.report.tables import choice_names, marginals, trial_frame

TIME = "measured time (us)"


def plot_time_against(run: Run, *choices: str) -> Figure:
    """Time of every measured trial against each of the choices, one panel a choice."""
    frame = trial_frame(run.measured)
    unknown = [name for name in choices if name not in frame.columns]
    if unknown:
        raise InputError(
            f"{unknown[0]!r} is no choice of this run: it has "
            f"{', '.join(name for name, _ in run.trials[0].assignment)}"
        )
    figure, panels = _panels(len(choices))
    for panel, name in zip(panels, choices, strict=False):
        panel.scatter(frame[name], frame["time_us"], s=18, alpha=0.6, label="trials")
        best = frame.groupby(name)["time_us"].min()
        panel.plot(best.index, best.to_numpy(), color="tab:red", marker="o", label="best")
        panel.set_xlabel(name)
        panel.set_ylabel(TIME)
        panel.set_yscale("log")
        panel.set_xticks(list(best.index), [str(value) for value in best.index])
        panel.legend()
    return figure


def plot_marginals(run: Run) -> Figure:
    """What fixing each value of each choice would cost, against the best of all."""
    table = marginals(run)
    names = choice_names(run)
    figure, panels = _panels(len(names))
    for panel, name in zip(panels, names, strict=False):
        part = table[table["choice"] == name]
        panel.bar([str(value) for value in part["value"]], part["x_best"])
        panel.axhline(1.0, color="black", linewidth=0.8)
        panel.set_xlabel(name)
        panel.set_ylabel("best with it / best of all")
    return figure


def plot_progress(run: Run) -> Figure:
    """Every trial in order, and the best so far."""
    frame = trial_frame(run).dropna(subset=["time_us"])
    figure, panels = _panels(1)
    panel = panels[0]
    for origin, group in frame.groupby("origin"):
        panel.scatter(group["number"], group["time_us"], s=18, label=str(origin))
    panel.step(frame["number"], frame["time_us"].cummin(), where="post", color="black")
    panel.set_xlabel("trial")
    panel.set_ylabel(TIME)
    panel.set_yscale("log")
    panel.legend(title="proposed by")
    return figure


def _panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    columns = max(1, min(3, count))
    lines = max(1, math.ceil(count / columns))
    figure = Figure(figsize=(4.5 * columns, 3.2 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    panels = [panel for line in grid for panel in line]
    for panel in panels[max(1, count) :]:
        panel.set_visible(False)
    return figure, panels
