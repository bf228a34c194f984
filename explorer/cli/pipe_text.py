"""Predictions for a pipe machine as text. Every time stands in a column that says predicted."""

from __future__ import annotations

from explorer.cli.text import aligned, column_head, differing
from explorer.schedule.pipe import show_pipe_schedule
from explorer.tune import PipeCandidate, PipeReport
from explorer.tune.pipes import NOTE

EDGE = 10
HEADS = (
    ("", "candidate"),
    ("predicted", "cycles"),
    ("predicted", "x first"),
    ("predicted", "intervals"),
    ("least", "interval"),
)


def print_pipes(report: PipeReport) -> None:
    """Print the candidates, the summary, and the schedule of the first, on stdout."""
    print(pipe_table(report), *summary(report), sep="\n")
    print(show_pipe_schedule(report.schedule), end="")


def pipe_table(report: PipeReport) -> str:
    """The first candidates by prediction, the choices that differ, and versions per buffer."""
    shown = report.candidates[:EDGE]
    names = differing([dict(each.choices) for each in report.candidates])
    heads = [*HEADS, *(column_head(name) for name in names), ("", "versions")]
    lines = [[head[0] for head in heads], [head[1] for head in heads]]
    lines += [_row(each, names, report.best.predicted_cycles) for each in shown]
    rows = aligned(lines)
    if len(report.candidates) > EDGE:
        rows.append(f"... {len(report.candidates) - EDGE} more")
    return "\n".join(rows)


def _row(each: PipeCandidate, names: list[str], first_cycles: int) -> list[str]:
    chosen = dict(each.choices)
    return [
        str(each.number),
        f"{each.predicted_cycles:,}",
        f"{each.predicted_cycles / first_cycles:.2f}",
        " ".join(f"{loop}={cycles}" for loop, cycles in each.intervals),
        "proven" if each.proven else "not proven",
        *(str(chosen.get(name, "-")) for name in names),
        " ".join(f"{name}={count}" for name, count, _ in each.versions),
    ]


def summary(report: PipeReport) -> list[str]:
    """What was scheduled and what was not, the first by prediction, and what the times are."""
    problem = " ".join(f"{name}={value}" for name, value in report.sizes)
    best = report.best
    chosen = " ".join(f"{name}={value}" for name, value in best.choices)
    left = f", {report.skipped} left out" if report.skipped else ""
    undecided = f", {report.undecided} undecided" if report.undecided else ""
    held = ", ".join(f"{scope} {size} B" for scope, size in best.bytes_used)
    lines = [
        f"{report.space} {problem} {report.dtype} on {report.machine}: "
        f"{len(report.candidates)} predicted, {report.refused} refused{undecided}{left}; "
        f"{report.seconds:.1f} s",
        f"first     candidate {best.number}: {best.predicted_cycles:,} cycles predicted; {chosen}",
        f"memory    {held}; {best.flags} flag ids",
        f"times     {NOTE}: they follow from a latency model, no device ran anything",
    ]
    if report.reason:
        lines.append(f"refused   {report.reason}")
    return lines
