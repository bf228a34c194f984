"""Tuning: rules, candidates, compiler, device, race and records, wired into one run."""

from explorer.tune.compile_only import COMPILED, Compiled, CompileReport, compile_only
from explorer.tune.device import Device, DeviceEvaluator
from explorer.tune.result import TuneResult, outcome_counts, result_of
from explorer.tune.run import Request, Watcher, first_legal, problem_of, replay_run, tune

__all__ = [
    "COMPILED",
    "CompileReport",
    "Compiled",
    "Device",
    "DeviceEvaluator",
    "Request",
    "TuneResult",
    "Watcher",
    "compile_only",
    "first_legal",
    "outcome_counts",
    "problem_of",
    "replay_run",
    "result_of",
    "tune",
]
