"""The progress bar of a tuning run, on stderr: trials, best so far, time."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from explorer.records import Trial, kind_of
from explorer.space import Case


class Progress:
    """A `Watcher` that draws a bar; where stderr is no terminal, it prints a line now and then."""

    def __init__(self, trials: int) -> None:
        self._console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[best]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._trials = trials
        self._task = self._bars.add_task("starting", total=trials, best="")
        self._best_us: float | None = None

    def phase(self, text: str) -> None:
        """Name what is going on."""
        self._bars.update(self._task, description=text)
        self._line(text)

    def trial(self, trial: Trial, done: int, best_us: float | None) -> None:
        """Show a finished trial."""
        best = (
            f"best {best_us:,.1f} us" if best_us is not None else f"last {kind_of(trial.outcome)}"
        )
        self._bars.update(self._task, completed=done, best=best)
        if best_us != self._best_us or done % 16 == 0:
            self._line(f"{done}/{self._trials} trials, {best}")
        self._best_us = best_us

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            _print(self._console, text)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()


class CaseProgress:
    """A `Watcher` of one case of a suite: a line at its start and at every new best."""

    def __init__(self, console: Console, label: str) -> None:
        self._console, self._label = console, label
        self._best_us: float | None = None

    def phase(self, text: str) -> None:
        """Name what is going on."""
        self._print(text)

    def trial(self, trial: Trial, done: int, best_us: float | None) -> None:
        """Show a new best."""
        if best_us is not None and best_us != self._best_us:
            self._print(f"{done} trials, best {best_us:,.1f} us")
        self._best_us = best_us

    def _print(self, text: str) -> None:
        _print(self._console, f"{self._label}: {text}")


class BenchProgress:
    """A `BenchWatcher` that prints lines on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    def case(self, case: Case, number: int, count: int) -> CaseProgress:
        """A watcher of a case."""
        return CaseProgress(self._console, f"[{number}/{count}] {case.name}")

    def phase(self, text: str) -> None:
        """Name what is going on."""
        _print(self._console, text)


def _print(console: Console, text: str) -> None:
    """Print a line as it is: paths may hold what looks like markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
