"""The HTML page of a run: one file, figures inside, nothing loaded from elsewhere.

Invariant: every text from a record is escaped.
"""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from explorer.data import dumps
from explorer.records import Run
from explorer.records.files import write_atomic
from explorer.report.figures import plot_marginals, plot_progress, plot_time_against
from explorer.report.tables import choice_names, marginals, trial_frame

STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:72em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}"
    "pre{background:#f6f6f6;padding:1em;overflow:auto;font-size:12px}img{max-width:100%}"
)
SHAPES = ("depth", "block", "warps", "stage")


def write_html(run: Run, path: str | Path) -> Path:
    """Write the page of a run; the path written."""
    target = Path(path)
    write_atomic(target, html(run))
    return target


def html(run: Run) -> str:
    """The page of a run."""
    info = run.info
    title = f"{info.workload} {info.key.problem} on {info.machine.name}"
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(_verdict(run))}</p>"]
    if run.measured:
        shapes = [name for name in choice_names(run) if name.split("_")[0] in SHAPES]
        parts += ["<h2>Search</h2>", _image(plot_progress(run), "time of each trial")]
        if shapes:
            figure = plot_time_against(run, *shapes)
            parts += ["<h2>Time against depth and tile</h2>", _image(figure, "time by choice")]
        parts += ["<h2>What each choice is worth</h2>", _image(plot_marginals(run), "marginals")]
        parts.append(marginals(run).to_html(index=False, float_format="{:,.2f}".format))
    hidden = ["samples_us", "schedule_digest"]
    frame = trial_frame(run)
    parts.append("<h2>Trials</h2>")
    parts.append(
        frame.drop(columns=hidden, errors="ignore").to_html(
            index=False, float_format="{:,.2f}".format, na_rep=""
        )
    )
    if run.best is not None:
        parts += ["<h2>Best schedule</h2>", f"<pre>{escape(dumps(run.best.schedule))}</pre>"]
    parts += ["<h2>Environment</h2>", f"<pre>{escape(dumps(run.environment))}</pre>"]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _verdict(run: Run) -> str:
    if run.best is None:
        return f"No candidate of {len(run.trials)} was measured; the run {run.info.state}."
    best = run.best
    text = (
        f"Best of {len(run.measured)} measured: {best.time_us:,.1f} us, 95 % interval "
        f"{best.low_us:,.1f} to {best.high_us:,.1f} us, {best.throughput:,.1f} {best.unit}."
    )
    if best.baseline:
        text += (
            f" {best.baseline.name}, interleaved: {best.baseline.time_us:,.1f} us, "
            f"{best.baseline.ratio:.2f}x the best time."
        )
    return text


def _image(figure: Figure, alt: str) -> str:
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=110)
    data = base64.b64encode(sink.getvalue()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
