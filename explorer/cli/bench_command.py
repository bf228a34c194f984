"""`explorer bench`: a suite tuned case by case, and its table; or the ablation of one winner."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.options import JSON
from explorer.cli.streams import answer_alone
from explorer.errors import InputError, NoLegalCandidate

if TYPE_CHECKING:
    from explorer.tune import BenchRequest

SHAPE_METAVAR = "AxBxC"


def bench(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="a suite of search_spaces/: gemm")],
    machine: Annotated[str | None, typer.Option(help="the suite's machine if not given")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar=SHAPE_METAVAR, help="sizes, such as 4096x4096x512; repeat"),
    ] = None,
    layout: Annotated[
        list[str] | None, typer.Option(help="a workload of the suite, such as gemm_nt; repeat")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="element type; repeat")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="time to tune a shape, all included; 45 if not given")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder of the run folders; results/MACHINE/SUITE")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="skip what is done, go on with what is not")
    ] = False,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="tune nothing, measure the winners again")
    ] = False,
    ablate: Annotated[
        str | None,
        typer.Option(
            metavar=SHAPE_METAVAR, help="tune nothing, measure one winner without each feature"
        ),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> int:
    """Tune every shape of a suite, then race all winners against the vendor's library.

    Layouts are named by what lies in memory: gemm reads A[M,K] B[K,N] and is what a BLAS calls NN;
    gemm_nt reads A[M,K] B[N,K], the BLAS TN, torch's A @ B.T; gemm_tn is the BLAS NT.
    """
    from explorer.tune import BenchRequest  # noqa: PLC0415  (commands import what they use)

    if ablate is not None and (shape or resume or table_only):
        raise InputError("--ablate names its own shape and tunes nothing: leave the others out")
    if table_only and (resume or seconds is not None):
        raise InputError("--table-only tunes nothing: leave --resume and --seconds out")
    shapes = [ablate] if ablate is not None else shape or []
    request = BenchRequest(
        suite=suite,
        machine=machine,
        shapes=tuple(map(parse_shape, shapes)),
        layouts=tuple(layout or ()),
        dtypes=tuple(dtype or ()),
        seconds=seconds,
        out=out,
        resume=resume,
        table_only=table_only,
    )
    with _terminable(), answer_alone(as_json):
        answer = _table(request) if ablate is None else _ladder(request)
    print(json.dumps(answer.json()) if as_json else answer.text())
    return 0 if answer.measured else NoLegalCandidate.exit_code


class _Answer:
    """What a command prints."""

    def __init__(
        self, document: Any, cells: list[list[str]], lines: list[str], measured: bool = True
    ) -> None:
        self._document, self._cells, self._lines = document, cells, lines
        self.measured = measured

    def json(self) -> Any:
        """The plain content."""
        from explorer.data import unstructure  # noqa: PLC0415

        return unstructure(self._document)

    def text(self) -> str:
        """A table for people, then the summary."""
        from explorer.cli.text import aligned  # noqa: PLC0415

        return "\n".join([*aligned(self._cells), *self._lines])


def _table(request: BenchRequest) -> _Answer:
    from explorer.cli.progress import BenchProgress  # noqa: PLC0415
    from explorer.tune import bench_suite  # noqa: PLC0415

    table = bench_suite(request, BenchProgress())
    return _Answer(table, table.cells(), table.summary(), table.measured)


def _ladder(request: BenchRequest) -> _Answer:
    from explorer.tune import ablate_case  # noqa: PLC0415

    ladder = ablate_case(request)
    return _Answer(ladder, ladder.cells(), [])


def parse_shape(text: str) -> tuple[int, ...]:
    """Sizes from AxBxC; InputError for anything else."""
    parts = text.split("x")
    if not all(part.isascii() and part.isdigit() and 0 < len(part) <= 18 for part in parts):
        raise InputError(f"--shape {text!r} is not sizes joined by x, such as 4096x4096x512")
    return tuple(map(int, parts))


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a polite kill stop a bench as Ctrl-C does: what was measured is kept and goes on."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
