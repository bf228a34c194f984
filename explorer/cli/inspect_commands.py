"""Commands that read: a run folder, a schedule file, a space."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.options import DTYPE, JSON, MACHINE, SIZE, SPACE, parse_sizes
from explorer.errors import InputError

# What TileLang 0.1.15 can say: its gemms complete in place.
TILELANG_WISHES = {"lag": 0, "stage": 0}
FOLDER = typer.Argument(metavar="DIR", help="a run folder")


def show(
    folder: Annotated[Path, FOLDER],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Print a recorded run: the verdict, the extremes, the best schedule, the environment."""
    from explorer.cli.text import print_result, print_run  # noqa: PLC0415
    from explorer.records import load  # noqa: PLC0415
    from explorer.tune import result_of  # noqa: PLC0415

    run = load(folder)
    result = result_of(run)
    if as_json:
        print(result.json_text())
        return
    print_result(result)
    print_run(run)


def check(
    space: Annotated[str, SPACE],
    schedule: Annotated[Path | None, typer.Option(help="a schedule or best.json")] = None,
    machine: Annotated[str, MACHINE] = "cpu",
    size: Annotated[list[str] | None, SIZE] = None,
    dtype: Annotated[str | None, DTYPE] = None,
) -> int:
    """Say which rules a schedule breaks, or whether a space has a legal candidate."""
    from explorer.constraints import check as check_schedule  # noqa: PLC0415
    from explorer.machine import machine_named  # noqa: PLC0415
    from explorer.records import read_schedule  # noqa: PLC0415
    from explorer.runtime import load_workload, machine_here  # noqa: PLC0415
    from explorer.space import space_of  # noqa: PLC0415
    from explorer.tune import first_legal  # noqa: PLC0415

    workload = load_workload(space)
    target = machine_named(machine)
    problem = workload.problem(parse_sizes(size or []), dtype, target.name)
    if target.name == "cpu":
        target = machine_here(target, problem.dtype)
    candidates = space_of(workload, problem, target)
    if schedule is None:
        first_legal(candidates)
        print(f"{len(candidates.skeletons)} skeletons, {candidates.size} assignments, some legal")
        return 0
    report = check_schedule(candidates.kernel, read_schedule(schedule), target)
    for violation in report.violations:
        print(violation)
    if report.ok:
        print(f"legal on {machine}")
    return 0 if report.ok else 1


def export(
    source: Annotated[str, typer.Argument(metavar="DIR|SPACE", help="a run folder, or a space")],
    form: Annotated[str, typer.Option("--format", help="tilelang")] = "tilelang",
    machine: Annotated[str, typer.Option(help="the machine, where a SPACE is given")] = "h200",
    size: Annotated[list[str] | None, SIZE] = None,
    dtype: Annotated[str | None, DTYPE] = None,
) -> None:
    """Print a schedule in the words of another compiler.

    Of a run folder it is the best one. Of a space it is a legal one that the solver builds for the
    machine; it was not timed.
    """
    from explorer.export import export_tilelang  # noqa: PLC0415
    from explorer.machine import machine_named  # noqa: PLC0415
    from explorer.records import load  # noqa: PLC0415
    from explorer.runtime import load_workload  # noqa: PLC0415
    from explorer.space import space_of  # noqa: PLC0415
    from explorer.tune import first_legal, problem_of, result_of  # noqa: PLC0415

    writers = {"tilelang": export_tilelang}
    if form not in writers:
        raise InputError(f"unknown format {form!r}: known are {', '.join(writers)}")
    if Path(source).is_dir():
        run = load(source)
        schedule = result_of(run).best.schedule
        workload = load_workload(run.info.space)
        kernel = workload.trace(problem_of(run.info, workload))
    else:
        workload = load_workload(source)
        target = machine_named(machine)
        problem = workload.problem(parse_sizes(size or []), dtype, target.name)
        space = space_of(workload, problem, target)
        kernel, schedule = space.kernel, first_legal(space, TILELANG_WISHES)
    print(writers[form](kernel, schedule), end="")


def report(
    folder: Annotated[Path, FOLDER],
    out: Annotated[Path | None, typer.Option(help="HTML file to write")] = None,
) -> None:
    """Write an HTML report of a run: figures, marginal values of the choices, all trials."""
    from explorer.records import load  # noqa: PLC0415
    from explorer.report import write_html  # noqa: PLC0415

    print(write_html(load(folder), out or folder / "report.html"))


def replay(folder: Annotated[Path, FOLDER]) -> int:
    """Say whether the recorded outcomes of a run lead to the recorded proposals again."""
    from explorer.records import load  # noqa: PLC0415
    from explorer.runtime import load_workload  # noqa: PLC0415
    from explorer.tune import replay_run  # noqa: PLC0415

    run = load(folder)
    workload = load_workload(run.info.space)
    divergence = replay_run(run, workload)
    if divergence is None:
        print(f"{len(run.trials)} trials: every proposal is the same again")
        return 0
    print(
        f"trial {divergence.number} differs: recorded {divergence.recorded}, "
        f"proposed now {divergence.proposed}"
    )
    return 1
