"""Tables, figures and the page of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.errors import InputError
from explorer.records import Crashed, Outcome, Run, load
from explorer.report import (
    html,
    marginals,
    plot_marginals,
    plot_progress,
    plot_time_against,
    trial_frame,
)
from explorer.schedule.bound import Schedule
from tests.support.fakes import fake_session, tune_fake


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    def fail(schedule: Schedule) -> Outcome | None:
        return Crashed("<b>11</b>") if schedule.params["block_K"] == 128 else None

    out: Path = tmp_path_factory.mktemp("report") / "r"
    tune_fake(out, trials=24, session=fake_session(fail))
    return load(out)


def test_the_frame_has_a_row_a_trial(run: Run) -> None:
    frame = trial_frame(run)
    assert list(frame["number"]) == list(range(24))
    assert frame["time_us"].isna().sum() == 24 - len(run.measured)
    assert set(frame["block_M"]) <= {32, 64, 128}


def test_marginals_say_what_fixing_a_value_would_cost(run: Run) -> None:
    table = marginals(run)
    fastest = run.measured[0]
    for name, value in fastest.assignment:
        row = table[(table["choice"] == name) & (table["value"] == value)]
        assert row.empty or float(row["x_best"].iloc[0]) == 1.0
    assert (table["x_best"] >= 1.0).all()
    assert set(table[table["choice"] == "block_M"]["trials"]) != {0}


def test_figures_have_a_panel_a_choice(run: Run) -> None:
    figure = plot_time_against(run, "block_M", "block_N")
    assert [axes.get_xlabel() for axes in figure.axes] == ["block_M", "block_N"]
    assert len(plot_progress(run).axes) == 1
    assert plot_marginals(run).axes


def test_an_unknown_choice_is_named(run: Run) -> None:
    with pytest.raises(InputError, match="'colour' is no choice of this run: it has skeleton"):
        plot_time_against(run, "colour")


def test_the_page_is_whole_and_escaped(run: Run) -> None:
    page = html(run)
    assert page.count("<img ") == page.count("data:image/png;base64,") >= 3
    assert "<b>11</b>" not in page
    assert "&lt;b&gt;11" in page
    assert "http" not in page.split("Environment")[0].replace("data:image", "")
