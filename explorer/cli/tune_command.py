"""`explorer tune`: options in, progress on stderr, the answer on stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.options import DTYPE, INTERRUPTED, JSON, MACHINE, SIZE, SPACE, parse_sizes
from explorer.cli.streams import answer_alone

if TYPE_CHECKING:
    from explorer.tune import Request


def tune(
    space: Annotated[str, SPACE],
    machine: Annotated[str, MACHINE] = "cpu",
    size: Annotated[list[str] | None, SIZE] = None,
    dtype: Annotated[str | None, DTYPE] = None,
    trials: Annotated[int | None, typer.Option(help="candidates to try")] = None,
    seconds: Annotated[float | None, typer.Option(help="time to spend, all included")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of the search")] = None,
    out: Annotated[Path | None, typer.Option(help="run folder to write")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="start without recorded winners of other runs")
    ] = False,
    as_json: Annotated[bool, JSON] = False,
    only_compile: Annotated[
        bool,
        typer.Option("--compile-only", help="compile and predict; needs no device, times nothing"),
    ] = False,
) -> int:
    """Find the fastest legal schedule: measured, or predicted where the machine is not here."""
    if only_compile and trials is None:
        from explorer.tune import COMPILED  # noqa: PLC0415

        trials = COMPILED
    from explorer.cli.progress import Progress  # noqa: PLC0415  (commands import what they use)
    from explorer.cli.text import print_result  # noqa: PLC0415
    from explorer.tune import Request  # noqa: PLC0415
    from explorer.tune import tune as find  # noqa: PLC0415

    request = Request(
        space=space,
        machine=machine,
        sizes=parse_sizes(size or []),
        dtype=dtype,
        trials=trials,
        seconds=seconds,
        seed=seed,
        out=out,
        resume=resume,
        recorded=not cold,
    )
    if only_compile:
        return _compile_only(request, as_json)
    from explorer.cli.pipe_commands import is_pipe_machine, tune_predicted  # noqa: PLC0415

    if is_pipe_machine(machine):
        return tune_predicted(request, as_json)
    with Progress(request.trials) as progress, answer_alone(as_json):
        result = find(request, watcher=progress)
    if as_json:
        print(result.json_text())
    else:
        print_result(result)
    return INTERRUPTED if result.info.state == "interrupted" else 0


def _compile_only(request: Request, as_json: bool) -> int:
    from explorer.cli.predicted import print_predicted  # noqa: PLC0415
    from explorer.tune import compile_only  # noqa: PLC0415

    with answer_alone(as_json):
        report = compile_only(request)
    if as_json:
        print(report.json_text())
    else:
        print_predicted(report)
    return 0
