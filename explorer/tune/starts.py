"""Recorded winners as the first candidates of a new run.

Runs are looked for under results/, in the checkout or beside the package, and in the working
directory. The winner of the same problem goes first; winners of the same workload at other sizes
follow, the nearest first. A record is a hint and no verdict: it is checked against the rules of
today and the sizes of the problem, and skipped with a reason where it is not legal.

Invariant: nothing is taken from another device, workload or element type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from explorer.constraints import FeasibleModel, check
from explorer.errors import InputError, RecordError
from explorer.machine import machine_named
from explorer.records import Run, load
from explorer.space import SKELETON, Hint, Problem, SearchSpace, Workload
from explorer.tune.prior import hinted_target

NEAREST = 3
_PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = (_PACKAGE / "_bundled" / "results", _PACKAGE.parent / "results", Path("results"))


@frozen
class Starts:
    """Hints from recorded runs, and a line on each record that was looked at."""

    hints: tuple[Hint, ...]
    notes: tuple[str, ...]


def starts(
    workload: Workload, problem: Problem, space: SearchSpace, model: FeasibleModel, device: str
) -> Starts:
    """What recorded runs suggest for a problem: the winner of the same one, then the nearest."""
    hints: list[Hint] = []
    notes: list[str] = []
    seen: set[tuple[str, tuple[tuple[str, int], ...]]] = set()
    for path in found_runs(workload.name, problem, space.machine.name, device)[: 1 + NEAREST]:
        try:
            hint = winner_of(load(path))
        except RecordError as failure:
            notes.append(f"skipping {path}: {failure}")
            continue
        reason = refusal(hint, space, model)
        if reason:
            notes.append(f"skipping {path}: {reason}")
            continue
        key = (hint.skeleton, tuple(sorted(hint.values.items())))
        if key not in seen:
            seen.add(key)
            hints.append(hint)
            notes.append(f"starting from {path}")
    return Starts(tuple(hints), tuple(notes))


def recorded(
    space: str,
    *,
    sizes: Mapping[str, int] | None = None,
    dtype: str | None = None,
    machine: str = "h200",
) -> Run:
    """The recorded run of a problem, on whatever device of that machine; RecordError if none."""
    from explorer.runtime import load_workload  # noqa: PLC0415

    workload = load_workload(space)
    problem = workload.problem(sizes, dtype, machine_named(machine).name)
    for path in found_runs(workload.name, problem, machine):
        run = load(path)
        if run.info.sizes == problem.sizes and run.best is not None:
            return run
    raise RecordError(
        f"no recorded run of {space} {problem} on {machine}: `explorer tune` makes one"
    )


def found_runs(workload: str, problem: Problem, machine: str, device: str = "") -> list[Path]:
    """Folders of finished runs of a workload and type, the same sizes first, then the nearest."""
    found: dict[Path, tuple[float, str]] = {}
    for folder in FOLDERS:
        for best in sorted(folder.rglob("best.json")) if folder.is_dir() else ():
            said = _said(best.parent)
            if (
                said is not None
                and (said.workload, said.dtype) == (workload, problem.dtype.name)
                and said.machine == machine
                and device in ("", said.device)
            ):
                place = best.parent.resolve()
                found[place] = (_distance(said.sizes, problem), str(place))
    return sorted(found, key=found.__getitem__)


@frozen
class _Said:
    """What a run.json says of its problem, whether this release reads the rest or not."""

    workload: str
    dtype: str
    machine: str
    device: str
    sizes: Mapping[str, int]


def _said(folder: Path) -> _Said | None:
    """What the run.json of a folder says; None where there is none that can be read."""
    try:
        value = json.loads((folder / "run.json").read_text())["value"]
        return _Said(
            workload=value["workload"],
            dtype=value["dtype"],
            machine=value["machine"]["name"],
            device=value["key"]["device"],
            sizes=dict(value["sizes"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _distance(sizes: Mapping[str, int], problem: Problem) -> float:
    """How far apart two problems are: the logarithms of the ratios of their sizes, summed."""
    if sizes.keys() != dict(problem.sizes).keys():
        return math.inf
    return sum(abs(math.log(sizes[name] / value)) for name, value in problem.sizes)


def winner_of(run: Run) -> Hint:
    """The best candidate of a run: its skeleton, and the values of the choices that it uses."""
    if run.best is None:
        raise RecordError("it has no best schedule")
    number = run.best.trial
    chosen = next(trial for trial in run.trials if trial.number == number).choices
    skeleton = run.info.skeletons[chosen[SKELETON]]
    return Hint(skeleton.title, {name: chosen[name] for name in skeleton.choices})


def refusal(hint: Hint, space: SearchSpace, model: FeasibleModel) -> str:
    """Why a hint is no legal candidate of a space, in one line; empty if it is one."""
    target = hinted_target(space, hint)
    if target is None:
        return f"the space has no skeleton '{hint.skeleton}'"
    for name, value in _strangers(hint, space):
        return f"the space has no {name} of {value}"
    assignment = space.canonical(target)
    try:
        report = check(space.kernel, space.candidate(assignment), space.machine)
    except InputError as failure:
        return str(failure)
    if not report.ok:
        return str(report.violations[0])
    return "" if model.is_legal(assignment) else "the solver does not find it legal"


def _strangers(hint: Hint, space: SearchSpace) -> Iterator[tuple[str, int]]:
    domains = {choice.name: choice.domain for choice in space.choices}
    for name, value in hint.values.items():
        if value not in domains.get(name, ()):
            yield name, value
