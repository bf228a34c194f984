"""What the commands do for pipe machines, where a schedule is predicted and never timed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from explorer.cli.pipe_text import print_pipes
from explorer.cli.streams import answer_alone
from explorer.data import dumps
from explorer.errors import InputError
from explorer.machine import Machine, machine_named
from explorer.records import read_document
from explorer.schedule.pipe import PipeSchedule, show_pipe_schedule
from explorer.tune import Request, tune_pipes
from explorer.tune.pipes import annotated_kernel, check_schedule, read_report


def is_pipe_machine(name: str) -> bool:
    """Whether schedules for a machine are predicted; InputError for an unknown one."""
    return machine_named(name).family == "pipe"


def tune_predicted(request: Request, as_json: bool) -> int:
    """`explorer tune` for a pipe machine."""
    with answer_alone(as_json):
        report = tune_pipes(request)
    if as_json:
        print(json.dumps(report.to_json()))
    else:
        print_pipes(report)
    return 0


def show_predicted(folder: Path, as_json: bool) -> None:
    """`explorer show` of a folder that holds predictions."""
    report = read_report(folder)
    if as_json:
        print(json.dumps(report.to_json()))
    else:
        print_pipes(report)


def show_space(
    space: str,
    machine: str,
    sizes: Mapping[str, int],
    dtype: str | None,
    schedule: Path | None,
    as_json: bool,
) -> int:
    """`explorer show` of a space: the schedule in a file, or the predicted candidates."""
    request = Request(space, machine=machine, sizes=sizes, dtype=dtype)
    if schedule is None:
        return tune_predicted(request, as_json)
    found = _read(schedule)
    report = check_schedule(request, found)
    for violation in report.violations:
        print(violation, file=sys.stderr if as_json else sys.stdout)
    print(dumps(found) if as_json else show_pipe_schedule(found), end="")
    return 0 if report.ok else 1


def check_predicted(
    space: str,
    machine: Machine,
    sizes: Mapping[str, int],
    dtype: str | None,
    schedule: Path | None,
) -> int:
    """`explorer check` for a pipe machine: a stored schedule, or whether there is one."""
    request = Request(space, machine=machine.name, sizes=sizes, dtype=dtype)
    if schedule is None:
        report = tune_pipes(request)
        print(
            f"{len(report.candidates)} candidates have a schedule, {report.refused} have none, "
            f"{report.undecided} undecided, {report.skipped} left out"
        )
        return 0
    found = check_schedule(request, _read(schedule))
    for violation in found.violations:
        print(violation)
    if found.ok:
        print(f"legal on {machine.name}; its times are predicted")
    return 0 if found.ok else 1


def _read(path: Path) -> PipeSchedule:
    return read_document(path, PipeSchedule, f"no schedule in {path.parent}")


def export_predicted(
    source: str, machine: str, sizes: Mapping[str, int], dtype: str | None
) -> str:
    """The annotated kernel of a folder of predictions, or of the first candidate of a space."""
    folder = Path(source)
    if folder.is_dir():
        if sizes or dtype:
            raise InputError(f"{source} holds its own sizes: leave out --size and --dtype")
        return annotated_kernel(read_report(folder))
    return annotated_kernel(tune_pipes(Request(source, machine=machine, sizes=sizes, dtype=dtype)))
