"""A result as text: the verdict, and the table of the five best and five worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from explorer.records import Environment, Measured, Run, RunInfo, Trial
from explorer.schedule.printer import show_schedule
from explorer.space import SKELETON
from explorer.tune import TuneResult

EDGE = 5


def print_result(result: TuneResult) -> None:
    """Print the answer of a run on stdout."""
    print(trial_table(result), *verdict(result), sep="\n")


def trial_table(result: TuneResult) -> str:
    """The fastest and the slowest measured trials, with the choices that differ among them."""
    measured = sorted(
        (trial for trial in result.trials if isinstance(trial.outcome, Measured)),
        key=lambda trial: (trial.time_us or 0.0, trial.number),
    )
    names = [
        name
        for name, _ in measured[0].assignment
        if len({trial.choices[name] for trial in measured}) > 1
    ]
    heads = [("", "trial"), ("time", "us"), ("x", "best"), *(column_head(name) for name in names)]
    lines = [[head[0] for head in heads], [head[1] for head in heads]]
    for rank, trial in enumerate(measured):
        if EDGE <= rank < len(measured) - EDGE:
            continue
        time_us, first_us = trial.time_us or 0.0, measured[0].time_us or 1.0
        figures = [str(trial.number), f"{time_us:,.1f}", f"{time_us / first_us:.2f}"]
        lines.append([*figures, *(_cell(result.info, trial, name) for name in names)])
    rows = aligned(lines)
    if len(measured) > 2 * EDGE:
        rows.insert(2 + EDGE, f"... {len(measured) - 2 * EDGE} more")
    return "\n".join(rows)


def aligned(lines: list[list[str]]) -> list[str]:
    """The rows of a table, every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]


def differing(chosen: Sequence[Mapping[str, int]]) -> list[str]:
    """The names of choices that have not one value among some candidates."""
    every = dict.fromkeys(name for values in chosen for name in values)
    return [name for name in every if len({values.get(name) for values in chosen}) > 1]


def column_head(name: str) -> tuple[str, str]:
    """The name of a choice in two lines."""
    kind, _, rest = name.partition("_")
    return (kind, rest) if rest else ("", kind)


def _cell(info: RunInfo, trial: Trial, name: str) -> str:
    """The value of a choice; a dash where the trial's skeleton does not use it."""
    skeleton = trial.choices[SKELETON]
    used = name == SKELETON or name in info.skeletons[skeleton].choices
    return str(trial.choices[name]) if used else "-"


def verdict(result: TuneResult) -> list[str]:
    """The best schedule and the baseline, line by line."""
    best, info = result.best, result.info
    problem = " ".join(f"{name}={value}" for name, value in info.sizes)
    counts = ", ".join(f"{kind} {count}" for kind, count in result.outcomes.items() if count)
    lines = [
        f"{info.workload} {problem} {info.dtype} on {info.machine.name}: {counts}; "
        f"rejected {info.refused}; solver {result.solver_ms_median:.1f} ms a proposal; "
        f"{info.elapsed_s:.1f} s",
        f"best      {best.time_us:,.1f} us [{best.low_us:,.1f}, {best.high_us:,.1f}]  "
        f"{best.throughput:,.1f} {best.unit}  trial {best.trial}",
    ]
    winner = next(trial for trial in result.trials if trial.number == best.trial)
    lines.append(f"schedule  {info.skeletons[winner.choices[SKELETON]].title}")
    if len(best.ties) > 1:
        others = ", ".join(str(number) for number in best.ties if number != best.trial)
        lines.append(f"tie       the measurement cannot tell it from trial {others}")
    if best.baseline:
        base = best.baseline
        lines.append(
            f"baseline  {base.time_us:,.1f} us  {base.name}, interleaved: "
            f"best is {base.ratio:.2f}x its speed"
        )
    lines.append(f"records   {result.out}")
    return lines


def print_run(run: Run) -> None:
    """Print the best schedule of a recorded run and its environment."""
    print_environment(run.environment)
    if run.best is not None:
        print(show_schedule(run.best.schedule), end="")


def print_environment(environment: Environment) -> None:
    """Print an environment, one fact a line."""
    print_facts(
        {
            "python": environment.python,
            "system": environment.system,
            "processor": f"{environment.processor}, {environment.cores} cores",
            "compiler": environment.compiler,
            "device": environment.device,
            **dict(environment.packages),
        }
    )


def print_facts(facts: Mapping[str, str]) -> None:
    """Print facts by name, one a line."""
    for name, value in facts.items():
        print(f"{name:<10}{value}")
