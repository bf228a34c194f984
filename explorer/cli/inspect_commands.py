"""Commands that read: a run folder, a schedule file, a space."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.options import (
    DTYPE,
    JSON,
    MACHINE,
    SIZE,
    SPACE,
    parse_numbers,
    parse_sizes,
    problem_on,
)
from explorer.data import dumps
from explorer.errors import InputError

# What TileLang 0.1.15 can say: its gemms complete in place.
TILELANG_WISHES = {"lag": 0, "stage": 0}
FOLDER = typer.Argument(metavar="DIR", help="a run folder")


def show(
    source: Annotated[str, typer.Argument(metavar="DIR|SPACE", help="a run folder, or a space")],
    schedule: Annotated[Path | None, typer.Option(help="of a SPACE: this schedule")] = None,
    machine: Annotated[str, MACHINE] = "cpu",
    size: Annotated[list[str] | None, SIZE] = None,
    dtype: Annotated[str | None, DTYPE] = None,
    block: Annotated[int, typer.Option(min=0, help="whose first steps are listed")] = 0,
    lines: Annotated[int, typer.Option(min=0, help="steps to list of each role")] = 24,
    figure: Annotated[
        Path | None, typer.Option(help="of a SPACE: file to draw the memory map to")
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> int:
    """Print a recorded run, or a schedule: what every role does, side by side.

    Of a run folder: the verdict, the extremes, the environment and the best schedule. Of a space:
    the schedule in a file, or a legal one that the solver builds and nothing timed. A schedule is
    shown with iteration offsets, barriers and their arrive counts, slots and parities, and where
    every on-chip buffer lies. Of one that is not legal the broken rules are shown too, and the
    exit code is 1.
    """
    from explorer.cli.role_programs import (  # noqa: PLC0415
        print_best_roles,
        print_schedule,
        schedule_of,
    )
    from explorer.cli.text import print_result, print_run  # noqa: PLC0415
    from explorer.constraints import check as check_schedule  # noqa: PLC0415
    from explorer.machine import machine_named  # noqa: PLC0415
    from explorer.records import load  # noqa: PLC0415
    from explorer.runtime import load_workload  # noqa: PLC0415
    from explorer.tune import result_of  # noqa: PLC0415
    from explorer.tune.pipes import is_report  # noqa: PLC0415

    folder = Path(source)
    if not folder.exists() and _is_space(source):
        workload = load_workload(source)
        if machine_named(machine).family == "pipe":
            from explorer.cli.pipe_commands import show_space  # noqa: PLC0415

            if figure is not None:
                raise InputError(f"--figure: buffers of {machine} are placed by its compiler")
            sizes = parse_sizes(size or [])
            return show_space(source, machine, sizes, dtype, schedule, as_json)
        kernel, found, target = schedule_of(workload, machine, size or [], dtype, schedule)
        broken = check_schedule(kernel, found, target).violations
        for violation in broken:
            print(violation, file=sys.stderr if as_json else sys.stdout)
        if as_json:
            print(dumps(found))
        else:
            print_schedule(kernel, found, target, block, lines, figure, legal=not broken)
        return 1 if broken else 0
    if schedule or size or dtype or figure:
        raise InputError(
            f"{source} is no space and holds its own schedule: leave out --schedule, --size, "
            "--dtype and --figure"
        )
    if is_report(folder):
        from explorer.cli.pipe_commands import show_predicted  # noqa: PLC0415

        show_predicted(folder, as_json)
        return 0
    run = load(folder)
    result = result_of(run)
    if as_json:
        print(result.json_text())
        return 0
    print_result(result)
    print_run(run)
    print_best_roles(run, block, lines)
    return 0


def _is_space(source: str) -> bool:
    """Whether a name is that of a space; a file that cannot be loaded is one at fault."""
    from explorer.runtime import load_workload  # noqa: PLC0415

    if ".py" in source:
        return True
    try:
        load_workload(source)
    except InputError:
        return False
    return True


def check(
    space: Annotated[str, SPACE],
    file: Annotated[
        Path | None, typer.Argument(metavar="[SCHEDULE.json]", help="a schedule or best.json")
    ] = None,
    schedule: Annotated[Path | None, typer.Option(help="the same by name")] = None,
    machine: Annotated[str, MACHINE] = "cpu",
    size: Annotated[list[str] | None, SIZE] = None,
    dtype: Annotated[str | None, DTYPE] = None,
) -> int:
    """Say which rules a schedule breaks, or whether a space has a legal candidate."""
    if file is not None and schedule is not None:
        raise InputError(f"two schedules are given: {file} and {schedule}")
    schedule = schedule or file
    from explorer.constraints import check as check_schedule  # noqa: PLC0415
    from explorer.machine import machine_named  # noqa: PLC0415
    from explorer.records import read_schedule  # noqa: PLC0415
    from explorer.runtime import load_workload  # noqa: PLC0415
    from explorer.space import space_of  # noqa: PLC0415
    from explorer.tune import first_legal  # noqa: PLC0415

    workload = load_workload(space)
    target = machine_named(machine)
    if target.family == "pipe":
        from explorer.cli.pipe_commands import check_predicted  # noqa: PLC0415

        return check_predicted(space, target, parse_sizes(size or []), dtype, schedule)
    problem, target = problem_on(workload, target, size or [], dtype)
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


def why(
    space: Annotated[str, SPACE],
    choices: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="values of choices")
    ] = None,
    machine: Annotated[str, MACHINE] = "cpu",
    size: Annotated[list[str] | None, SIZE] = None,
    dtype: Annotated[str | None, DTYPE] = None,
) -> int:
    """Say which rules forbid some values of choices, with numbers, or show that they are legal."""
    from explorer.machine import machine_named  # noqa: PLC0415
    from explorer.runtime import load_workload  # noqa: PLC0415
    from explorer.space import SKELETON, space_of  # noqa: PLC0415
    from explorer.tune import explain  # noqa: PLC0415

    given = parse_numbers(choices or [], "choice", "depth_A_B=4")
    workload = load_workload(space)
    problem, target = problem_on(workload, machine_named(machine), size or [], dtype)
    candidates = space_of(workload, problem, target)
    found = explain(candidates, given)
    shown = found.legal or found.tried
    used = candidates.active(shown[SKELETON]) | {SKELETON}
    values = " ".join(f"{name}={value}" for name, value in shown.items() if name in used)
    print(f"{'forbidden' if found.legal is None else 'legal'}  {found.title}\n{values}")
    told = {violation.rule for violation in found.violations}
    for line in (*found.violations, *(r for r in found.rules if r.partition(":")[0] not in told)):
        print(line)
    if found.changes:
        moves = ", ".join(f"{name} {old} to {new}" for name, old, new in found.changes)
        print(f"nearest legal: {moves}")
    return 1 if found.legal is None else 0


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
    from explorer.tune.pipes import is_report  # noqa: PLC0415

    writers = {"tilelang": export_tilelang}
    if form not in writers:
        raise InputError(f"unknown format {form!r}: known are {', '.join(writers)}")
    if machine_named(machine).family == "pipe" or is_report(Path(source)):
        from explorer.cli.pipe_commands import export_predicted  # noqa: PLC0415

        print(export_predicted(source, machine, parse_sizes(size or []), dtype), end="")
        return
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
