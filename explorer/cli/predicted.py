"""Compiled candidates as text. Every time in it stands in a column that says predicted."""

from __future__ import annotations

from explorer.cli.text import aligned, column_head, differing
from explorer.records import reason_of
from explorer.tune import Compiled, CompileReport

HEADS = (
    ("", "candidate"),
    ("predicted", "us"),
    ("", "registers"),
    ("spills", "B"),
    ("shared", "B"),
    ("", "barriers"),
)
REASONS = 3


def print_predicted(report: CompileReport) -> None:
    """Print the candidates in predicted order, then the summary, on stdout."""
    print(predicted_table(report), *summary(report), sep="\n")


def predicted_table(report: CompileReport) -> str:
    """What the compiler says of every candidate, and the choices that differ among them."""
    names = differing([dict(each.assignment) for each in report.compiled])
    heads = [*HEADS, *(column_head(name) for name in names)]
    lines = [[head[0] for head in heads], [head[1] for head in heads]]
    lines += [_row(each, names) for each in report.compiled]
    return "\n".join(aligned(lines))


def _row(each: Compiled, names: list[str]) -> list[str]:
    predicted = "-" if each.predicted_us is None else f"{each.predicted_us:,.1f}"
    counts = (each.registers, each.spill_bytes, each.shared_bytes, each.barriers)
    chosen = dict(each.assignment)
    return [
        str(each.number),
        predicted,
        *map(str, counts),
        *(str(chosen.get(name, "-")) for name in names),
    ]


def summary(report: CompileReport) -> list[str]:
    """What was compiled, the first by prediction, and why others were not, line by line."""
    problem = " ".join(f"{name}={value}" for name, value in report.problem.sizes)
    skipped = f", {report.skipped} not compiled in time" if report.skipped else ""
    first = report.compiled[0]
    lines = [
        f"{report.workload} {problem} {report.problem.dtype.name} on {report.machine.name}: "
        f"{len(report.compiled)} compiled by {report.compiler}, {len(report.failures)} failed"
        f"{skipped}; rejected {report.rejected}; {report.seconds:.1f} s",
        f"first     candidate {first.number}: {first.skeleton}",
        "times     predicted, not measured: they sort candidates, a device decides",
    ]
    for number, outcome in report.failures[:REASONS]:
        lines.append(f"failed    candidate {number}: {reason_of(outcome)}")
    if len(report.failures) > REASONS:
        lines.append(f"          ... {len(report.failures) - REASONS} more")
    return lines
