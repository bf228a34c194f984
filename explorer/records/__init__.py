"""Records: outcomes, trials, best schedules, keys, and the run folder that holds them."""

from explorer.records.environment import Environment, describe_environment, usable_cores
from explorer.records.files import write_atomic, writing
from explorer.records.folder import RunFolder, default_folder, pack, read_document, read_info
from explorer.records.load import ANSWERED, Run, load, read_schedule
from explorer.records.outcomes import (
    OUTCOMES,
    CompileFailed,
    Crashed,
    Infeasible,
    Measured,
    Outcome,
    TimedOut,
    WrongResult,
    kind_of,
    reason_of,
)
from explorer.records.trial import (
    Baseline,
    BestSchedule,
    Contract,
    RunInfo,
    SkeletonNote,
    StudyKey,
    Trial,
    first_difference,
)

__all__ = [
    "ANSWERED",
    "OUTCOMES",
    "Baseline",
    "BestSchedule",
    "CompileFailed",
    "Contract",
    "Crashed",
    "Environment",
    "Infeasible",
    "Measured",
    "Outcome",
    "Run",
    "RunFolder",
    "RunInfo",
    "SkeletonNote",
    "StudyKey",
    "TimedOut",
    "Trial",
    "WrongResult",
    "default_folder",
    "describe_environment",
    "first_difference",
    "kind_of",
    "load",
    "pack",
    "read_document",
    "read_info",
    "read_schedule",
    "reason_of",
    "usable_cores",
    "write_atomic",
    "writing",
]
