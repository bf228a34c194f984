"""The run folder: where a run keeps what it finds, while it runs and afterwards.

    run.json           RunInfo: what was asked, the study's key, how far it came
    environment.json   host, interpreter, packages, compiler, device
    study.journal      the study, written by search
    trials.jsonl       one finished trial a line, on the disk before the next one starts
    trials.parquet     the same as a table
    best.json          BestSchedule
    source.c           the generated source of the best schedule (source.cu on a GPU)

A folder that is kept for good is packed: the table stands for log and study, which are made again
from it when the run goes on.

Invariant: run.json says that a run is over only after every other file has been written; one
process owns a folder at a time.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Self, TypeVar

from explorer.data import dumps, dumps_line, loads
from explorer.errors import RecordError
from explorer.records.environment import Environment
from explorer.records.files import append_line, drop_torn_line, whole_lines, write_atomic, writing
from explorer.records.table import parquet_bytes, trials_of
from explorer.records.trial import BestSchedule, RunInfo, StudyKey, Trial, first_difference

RUN, ENVIRONMENT, STUDY = "run.json", "environment.json", "study.journal"
LOG, TABLE, BEST, SOURCE, LOCK = "trials.jsonl", "trials.parquet", "best.json", "source", ".lock"
T = TypeVar("T")


def default_folder(workload: str, machine: str) -> Path:
    """A new folder results/<workload>-<machine>-<time>, numbered where that one is taken."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    first = Path("results") / f"{workload}-{machine}-{stamp}"
    for number in count(1):
        path = first if number == 1 else first.with_name(f"{first.name}-{number}")
        with writing(path), suppress(FileExistsError):
            path.mkdir(parents=True)
            return path
    raise AssertionError("count does not end")


class RunFolder:
    """A run folder that this process owns until `close`."""

    def __init__(self, path: Path, info: RunInfo, trials: tuple[Trial, ...], lock: int) -> None:
        self.path = path
        self.info = info
        self.trials = list(trials)
        self._lock = lock

    @classmethod
    def create(cls, path: Path, info: RunInfo, environment: Environment) -> Self:
        """A new run; RecordError where the folder holds something already."""
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            present = [each for each in path.iterdir() if each.name != LOCK]
        if present:
            raise RecordError(
                f"{path} is not empty: --resume goes on with the run in it, --out names another"
            )
        lock = _lock(path)
        write_atomic(path / ENVIRONMENT, dumps(environment))
        write_atomic(path / RUN, dumps(info))
        return cls(path, info, (), lock)

    @classmethod
    def resume(cls, path: Path, key: StudyKey) -> Self:
        """A run that goes on; RecordError where it belongs to another study."""
        info = read_info(path)
        if not key.reusable:
            raise RecordError(
                f"{path} cannot go on: inputs or reference of the workload are in no readable file"
            )
        difference = first_difference(info.key, key)
        if difference:
            raise RecordError(f"{path} is a run of another study: {difference}")
        lock = _lock(path)
        drop_torn_line(path / LOG)
        drop_torn_line(path / STUDY)
        trials = read_trials(path)
        if trials and not (path / LOG).exists():
            lines = [f"{dumps_line(trial)}\n" for trial in trials]
            write_atomic(path / LOG, "".join(lines))
        return cls(path, info, trials, lock)

    @property
    def study(self) -> Path:
        """The file that holds the study."""
        return self.path / STUDY

    def append(self, trial: Trial) -> None:
        """Keep a finished trial; it survives any kill from here on."""
        append_line(self.path / LOG, dumps_line(trial))
        self.trials.append(trial)

    def update(self, info: RunInfo) -> None:
        """Replace what run.json says, while the run goes on."""
        self.info = info
        write_atomic(self.path / RUN, dumps(info))

    def finish(self, info: RunInfo, best: BestSchedule | None, source: tuple[str, str]) -> None:
        """Write the table, the best schedule and its source (suffix, text), then close the run."""
        write_atomic(self.path / TABLE, parquet_bytes(tuple(self.trials)))
        if best is not None:
            suffix, text = source
            write_atomic(self.path / f"{SOURCE}{suffix}", text)
            write_atomic(self.path / BEST, dumps(best))
        self.update(info)

    def close(self) -> None:
        """Give the folder up."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_info(path: Path) -> RunInfo:
    """What run.json says; RecordError where there is none or it is not readable."""
    if not path.is_dir():
        raise RecordError(f"no run folder at {path}")
    return read_document(path / RUN, RunInfo, f"{path} is not a run folder")


def read_trials(path: Path) -> tuple[Trial, ...]:
    """The finished trials, in order; RecordError that names the first damaged line."""
    if not (path / LOG).exists() and (path / TABLE).exists():
        try:
            return trials_of((path / TABLE).read_bytes())
        except RecordError as problem:
            raise RecordError(f"{path / TABLE}: {problem}") from None
    result: dict[int, Trial] = {}
    for number, line in enumerate(whole_lines(path / LOG), start=1):
        try:
            trial = loads(line, Trial)
        except RecordError as problem:
            raise RecordError(f"{path / LOG} line {number}: {problem}") from None
        if trial.number in result:
            raise RecordError(f"{path / LOG} line {number}: there is a trial {trial.number} above")
        result[trial.number] = trial
    return tuple(result.values())


def pack(path: Path) -> None:
    """Leave log and study of a run that is over to its table; RecordError where they differ."""
    lock = _lock(path)
    try:
        if not (path / LOG).exists():
            return
        if trials_of((path / TABLE).read_bytes()) != read_trials(path):
            raise RecordError(f"{path}: {TABLE} does not hold what {LOG} holds")
        for name in (STUDY, LOG):
            (path / name).unlink(missing_ok=True)
    finally:
        os.close(lock)
        (path / LOCK).unlink(missing_ok=True)


def read_document(path: Path, kind: type[T], missing: str) -> T:
    """A document of the folder; `missing` opens the message where there is none."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise RecordError(f"{missing}: {path.name} is missing") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise RecordError(f"cannot read {path}: {problem}") from None
    try:
        return loads(text, kind)
    except RecordError as problem:
        raise RecordError(f"{path}: {problem}") from None


def _lock(path: Path) -> int:
    with writing(path / LOCK):
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise RecordError(f"{path} is in use by another run") from None
    return descriptor
