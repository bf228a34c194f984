"""The trial table: one row a trial, one column a choice.

Invariant: the table holds what trials.jsonl holds, so that each can be made from the other; it is
written from the trials, never edited.
"""

from __future__ import annotations

import io
import json
from typing import Any

from explorer.data import structure, unstructure
from explorer.errors import RecordError
from explorer.records.outcomes import Measured, WrongResult, kind_of, reason_of
from explorer.records.trial import Trial

CHOICE = "choice."


def rows(trials: tuple[Trial, ...]) -> list[dict[str, Any]]:
    """The trials as plain rows; columns of choices are named `choice.<name>`."""
    return [_row(trial) for trial in trials]


def parquet_bytes(trials: tuple[Trial, ...]) -> bytes:
    """The table as a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415  (slow to import, needed once a run)
    import pyarrow.parquet as pq  # noqa: PLC0415

    names = list(dict.fromkeys(name for trial in trials for name, _ in trial.assignment))
    columns = [
        ("number", pa.int64()),
        ("outcome", pa.string()),
        ("time_us", pa.float64()),
        ("error", pa.float64()),
        ("reason", pa.string()),
        ("origin", pa.string()),
        ("solver_ms", pa.float64()),
        ("compile_s", pa.float64()),
        ("measure_s", pa.float64()),
        ("schedule_digest", pa.string()),
        ("samples_us", pa.list_(pa.float64())),
        ("failure", pa.string()),
        *((CHOICE + name, pa.int64()) for name in names),
    ]
    table = pa.Table.from_pylist(rows(trials), schema=pa.schema(columns))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def trials_of(table: bytes) -> tuple[Trial, ...]:
    """The trials of a Parquet file that `parquet_bytes` wrote; RecordError for any other."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        found = pq.read_table(io.BytesIO(table)).to_pylist()
        return tuple(_trial(row) for row in found)
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as problem:
        reason = " ".join(str(problem).split())
        raise RecordError(f"not a trial table: {type(problem).__name__}: {reason:.160}") from None


def _trial(row: dict[str, Any]) -> Trial:
    measured = row["failure"] is None
    outcome = (
        {
            "type": Measured.__name__,
            "time_us": row["time_us"],
            "samples_us": row["samples_us"],
            "error": row["error"],
        }
        if measured
        else json.loads(row["failure"])
    )
    plain = ("number", "schedule_digest", "origin", "solver_ms", "compile_s", "measure_s")
    choices = [
        [name.removeprefix(CHOICE), value]
        for name, value in row.items()
        if name.startswith(CHOICE) and value is not None
    ]
    fields = {name: row[name] for name in plain}
    return structure({**fields, "assignment": choices, "outcome": outcome}, Trial)


def _row(trial: Trial) -> dict[str, Any]:
    outcome = trial.outcome
    measured = outcome if isinstance(outcome, Measured) else None
    checked = isinstance(outcome, (Measured, WrongResult))
    return {
        "number": trial.number,
        "outcome": kind_of(outcome),
        "time_us": measured.time_us if measured else None,
        "error": outcome.error if checked else None,  # type: ignore[union-attr]
        "reason": reason_of(outcome),
        "origin": trial.origin,
        "solver_ms": trial.solver_ms,
        "compile_s": trial.compile_s,
        "measure_s": trial.measure_s,
        "schedule_digest": trial.schedule_digest,
        "samples_us": list(measured.samples_us) if measured else [],
        # The outcome of a trial that was not measured, whole; of a measured one the columns are.
        "failure": None if measured else json.dumps(unstructure(trial)["outcome"]),
        **{CHOICE + name: value for name, value in trial.assignment},
    }
