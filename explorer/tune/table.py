"""The table of a suite: what was measured of each case, as JSON and as text.

Invariant: a ratio is taken round by round, so that a drift of the device meets both sides of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from attrs import frozen

from explorer.data import dumps, loads
from explorer.errors import RecordError
from explorer.records import write_atomic, writing
from explorer.space import Case

HEADS = (
    "shape", "operands", "type", "ours us", "peer us", "peer/ours", "spread", "TFLOP/s", "error",
)  # fmt: skip
DECILES = 10


@frozen
class Figures:
    """What was measured of a case.

    `ratio` is the peer's time over ours, the median of the rounds; a tenth of the rounds lie below
    `ratio_low`, a tenth above `ratio_high`. Without a peer they are None. `tflops` are ours,
    `error` is ||out - ref|| / ||ref||; `trials` and `tuned_s` are those of the tuning run.
    """

    time_us: float
    peer: str
    peer_us: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    tflops: float
    error: float
    trials: int
    tuned_s: float

    @classmethod
    def of(
        cls,
        *,
        ours: Sequence[float],
        peers: Sequence[float],
        peer: str,
        operations: float,
        error: float,
        trials: int,
        tuned_s: float,
    ) -> Figures:
        """The figures of samples in microseconds, taken in the same rounds."""
        time_us = median(ours)
        ratios = [theirs / mine for mine, theirs in zip(ours, peers, strict=False)]
        low, high = _deciles(ratios) if ratios else (None, None)
        return cls(
            time_us=time_us,
            peer=peer,
            peer_us=median(peers) if ratios else None,
            ratio=median(ratios) if ratios else None,
            ratio_low=low,
            ratio_high=high,
            tflops=operations / time_us * 1e-6,
            error=error,
            trials=trials,
            tuned_s=tuned_s,
        )


def _deciles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    cuts = quantiles(values, n=DECILES, method="inclusive")
    return cuts[0], cuts[-1]


@frozen
class Row:
    """A case with its figures, or why it has none."""

    case: Case
    layout: str
    figures: Figures | None
    failure: str = ""


@frozen
class Table:
    """The rows of one interleaved run."""

    suite: str
    machine: str
    device: str
    toolchain: str
    rows: tuple[Row, ...]

    @property
    def measured(self) -> bool:
        """Whether any case has figures."""
        return any(row.figures is not None for row in self.rows)

    @property
    def ratios(self) -> dict[Case, float]:
        """Peer over ours, for the cases that have both."""
        return {
            row.case: row.figures.ratio
            for row in self.rows
            if row.figures is not None and row.figures.ratio is not None
        }

    @property
    def mean(self) -> float | None:
        """The geometric mean of the ratios; None where there is none."""
        return geometric_mean(list(self.ratios.values()))

    def means(self) -> dict[str, float]:
        """The geometric mean of each layout and type, by a name for the two."""
        groups: dict[str, list[float]] = {}
        for case, ratio in self.ratios.items():
            groups.setdefault(f"{case.workload} {case.dtype}", []).append(ratio)
        return {name: geometric_mean(ratios) or 0.0 for name, ratios in groups.items()}

    def cells(self) -> list[list[str]]:
        """The table, cell by cell, its heads first."""
        return [list(HEADS), *map(_cells, self.rows)]

    def summary(self) -> list[str]:
        """The means, line by line, then what failed."""
        lines = [f"{name}: {mean:.3f}" for name, mean in self.means().items()]
        if self.mean is not None:
            worst = min(self.ratios, key=self.ratios.__getitem__)
            lines.append(
                f"all: {self.mean:.3f}, geometric mean of peer/ours over {len(self.ratios)} "
                f"cases; lowest {self.ratios[worst]:.3f} ({worst.name})"
            )
        lines += [f"{row.case.name}: {row.failure}" for row in self.rows if row.failure]
        return lines


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean of positive values; None of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _cells(row: Row) -> list[str]:
    case, found = row.case, row.figures
    what = [case.shape, row.layout, case.dtype]
    if found is None:
        return [*what, "failed", *("-" for _ in range(5))]
    ratio, spread, peer_us = "-", "-", "-"
    if found.ratio is not None and found.peer_us is not None:
        ratio, peer_us = f"{found.ratio:.3f}", f"{found.peer_us:,.1f}"
        spread = f"{found.ratio_low:.3f}..{found.ratio_high:.3f}"
    times = [f"{found.time_us:,.1f}", peer_us, ratio, spread]
    return [*what, *times, f"{found.tflops:,.1f}", f"{found.error:.1e}"]


def markdown(cells: Sequence[Sequence[str]]) -> list[str]:
    """Cells as the lines of a Markdown table, columns aligned."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [lines[0], rule, *lines[1:]]


def recorded_cases(folder: Path) -> tuple[Case, ...]:
    """The cases of the table in a folder; none where there is no table that can be read."""
    try:
        table = loads((folder / "table.json").read_text(), Table)
    except (OSError, RecordError):
        return ()
    return tuple(row.case for row in table.rows)


def save_table(table: Table, folder: Path) -> None:
    """Write table.json and table.md."""
    text = [
        f"# {table.suite} on {table.device or table.machine}",
        "",
        f"One interleaved run, {table.toolchain}. peer/ours above 1: ours is faster; spread: the "
        "middle 80 % of the rounds.",
        "",
        *markdown(table.cells()),
        "",
        *(f"- {line}" for line in table.summary()),
    ]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "table.json", dumps(table))
    write_atomic(folder / "table.md", "\n".join(text) + "\n")
