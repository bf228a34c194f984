"""`explorer tune`: options in, progress on stderr, the answer on stdout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.options import DTYPE, INTERRUPTED, JSON, MACHINE, SIZE, SPACE, parse_sizes


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
    as_json: Annotated[bool, JSON] = False,
) -> int:
    """Find the fastest legal schedule, measured."""
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
    )
    with Progress(request.trials) as progress:
        result = find(request, watcher=progress)
    if as_json:
        print(result.json_text())
    else:
        print_result(result)
    return INTERRUPTED if result.info.state == "interrupted" else 0
