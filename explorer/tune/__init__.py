"""Tuning: rules, candidates, compiler, device, race and records, wired into one run."""

from explorer.tune.ablation import Ladder, ablate_case
from explorer.tune.bench import BenchRequest, BenchWatcher, bench_suite
from explorer.tune.compile_only import COMPILED, Compiled, CompileReport, compile_only
from explorer.tune.device import Device, DeviceEvaluator
from explorer.tune.legal import first_legal
from explorer.tune.pipes import PipeCandidate, PipeReport, tune_pipes
from explorer.tune.request import Request, problem_of
from explorer.tune.result import TuneResult, outcome_counts, result_of
from explorer.tune.run import Watcher, replay_run, tune
from explorer.tune.starts import recorded
from explorer.tune.table import Table
from explorer.tune.why import Explanation, explain

__all__ = [
    "COMPILED",
    "BenchRequest",
    "BenchWatcher",
    "CompileReport",
    "Compiled",
    "Device",
    "DeviceEvaluator",
    "Explanation",
    "Ladder",
    "PipeCandidate",
    "PipeReport",
    "Request",
    "Table",
    "TuneResult",
    "Watcher",
    "ablate_case",
    "bench_suite",
    "compile_only",
    "explain",
    "first_legal",
    "outcome_counts",
    "problem_of",
    "recorded",
    "replay_run",
    "result_of",
    "tune",
    "tune_pipes",
]
