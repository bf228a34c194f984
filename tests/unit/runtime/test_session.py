"""Sessions: outcomes of good and bad candidates, and what a bad one costs."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer.errors import ExplorerError, InputError
from explorer.machine import CPU
from explorer.records import Crashed, Measured, TimedOut, WrongResult
from explorer.runtime import Built, Host, Session, compile_library, load_workload, machine_here
from explorer.schedule.bound import Schedule
from explorer.space import Problem, SearchSpace, space_of

LAUNCH = "return ex_launch();"
LIMIT_S = 1.0


def _space(m: int = 96) -> tuple[Problem, SearchSpace]:
    workload = load_workload("gemm")
    problem = workload.problem({"M": m, "N": 80, "K": 200})
    return problem, space_of(workload, problem, machine_here(CPU, problem.dtype))


def _pair(space: SearchSpace) -> Schedule:
    """Producer and consumer, two slots."""
    assignment = {choice.name: choice.domain[0] for choice in space.choices}
    shape = space.machine.matrix_shapes[0]
    block_n = next(n for n in space.choice("block_N").domain if n % shape.n == 0)
    block_m = next(m for m in space.choice("block_M").domain if m % shape.m == 0)
    assignment |= {"skeleton": 1, "depth_A_B": 2, "block_N": block_n, "block_M": block_m}
    assignment |= {"mma_m": shape.m, "mma_n": shape.n}
    return space.candidate(space.canonical(assignment))


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    problem, space = _space()
    with Session("gemm", problem, space.machine, 1e-5, LIMIT_S) as opened:
        yield opened


@pytest.fixture(scope="module")
def good(session: Session) -> Built:
    built = session.build(_pair(_space()[1]))
    assert isinstance(built, Built)
    return built


def _changed(good: Built, old: str, new: str) -> Built:
    assert old in good.source
    built = compile_library(good.source.replace(old, new, 1))
    assert isinstance(built, Built)
    return built


def test_a_good_candidate_is_measured(session: Session, good: Built) -> None:
    outcome = session.measure(good, 3)
    assert isinstance(outcome, Measured)
    assert len(outcome.samples_us) == 3
    assert 0 < outcome.error < 1e-5
    assert outcome.time_us > 0


def test_an_output_that_nobody_writes_is_wrong(session: Session, good: Built) -> None:
    outcome = session.measure(_changed(good, LAUNCH, "return 0;"), 1)
    words = "7680 of 7680 elements of C were never written"
    assert outcome == WrongResult(float("inf"), 1e-5, words)


def test_a_fast_kernel_that_computes_something_else_is_wrong(
    session: Session, good: Built
) -> None:
    zeros = "memset(tensors[2], 0, 96 * 80 * 4); return 0;"
    outcome = session.measure(_changed(good, LAUNCH, zeros), 1)
    assert isinstance(outcome, WrongResult)
    assert outcome.error == pytest.approx(1.0)


def test_a_hang_names_who_waits_for_what(session: Session, good: Built) -> None:
    outcome = session.measure(_changed(good, "ex_arrive(&full_0[", "(void)(&full_0["), 1)
    assert isinstance(outcome, TimedOut)
    assert "role producer warp 0 waits at A_B.empty[0] parity 0" in outcome.report
    assert "role consumer warp 1 waits at A_B.full[0] parity 0" in outcome.report
    assert "1 arrivals pending" in outcome.report


def test_an_endless_loop_costs_its_worker_alone(session: Session, good: Built) -> None:
    endless = _changed(good, LAUNCH, 'for (;;) __asm__ volatile("");')
    started = time.monotonic()
    outcomes = [session.measure(each, 1) for each in (good, endless, good)]
    assert [type(outcome) for outcome in outcomes] == [Measured, TimedOut, Measured]
    assert time.monotonic() - started < 15


def test_a_crash_costs_its_worker_alone(session: Session, good: Built) -> None:
    fault = _changed(good, LAUNCH, "*(volatile int *)8 = 0; return 0;")
    outcomes = [session.measure(each, 1) for each in (good, fault, good)]
    assert [type(outcome) for outcome in outcomes] == [Measured, Crashed, Measured]
    assert "SIGSEGV" in str(outcomes[1])


def test_what_a_kernel_prints_does_not_disturb(session: Session, good: Built) -> None:
    noise = 'puts("{}"); write(1, "[\\n", 2); write(2, "!\\n", 2); return ex_launch();'
    assert isinstance(session.measure(_changed(good, LAUNCH, noise), 1), Measured)


def test_a_kernel_that_exits_is_a_crash(session: Session, good: Built) -> None:
    left = _changed(good, LAUNCH, 'fputs("goodbye\\n", stderr); exit(3);')
    assert session.measure(left, 1) == Crashed("exit status 3: goodbye")


def test_a_race_interleaves_candidates_and_peer(session: Session, good: Built) -> None:
    assert session.peer_name == "numpy"
    samples = session.race([good, good], 4, with_peer=True)
    assert [len(each or ()) for each in samples] == [4, 4, 4]


def test_a_race_goes_on_without_those_that_fail(session: Session, good: Built) -> None:
    fault = _changed(good, LAUNCH, "abort();")
    endless = _changed(good, LAUNCH, "for (volatile int x = 0;; x++);")
    hang = _changed(good, "ex_arrive(&full_0[", "(void)(&full_0[")
    samples = session.race([fault, good, endless, hang, good], 2, with_peer=True)
    assert [None if each is None else len(each) for each in samples] == [None, 2, None, None, 2, 2]


def test_sessions_of_one_host_share_a_worker() -> None:
    """Another problem in the same process, and right again."""
    pids = []
    with Host(_space()[1].machine) as host:
        for m in (96, 64):
            problem, space = _space(m)
            with Session("gemm", problem, space.machine, 1e-5, LIMIT_S, math.inf, host) as opened:
                built = opened.build(_pair(space))
                assert isinstance(built, Built)
                assert isinstance(opened.measure(built, 1), Measured)
                assert opened._worker is not None
                pids.append(opened._worker.pid)
    assert pids[0] == pids[1]
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_library_that_is_gone_is_a_crash(session: Session, tmp_path: Path) -> None:
    missing = Built("key", tmp_path / "missing.so", "", "", 0.0)
    assert isinstance(session.measure(missing, 1), Crashed)


BROKEN = """
from attrs import evolve
from explorer.runtime import load_workload
plain = load_workload("gemm")
def broken(problem, arrays):
    print("to be ignored")
    raise ValueError("no reference today")
workload = evolve(plain, reference=broken)
"""


def test_a_reference_that_fails_is_the_users_fault(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    problem, space = _space()
    with Session(f"{path}:workload", problem, space.machine, 1e-5, LIMIT_S) as session:
        built = session.build(_pair(space))
        assert isinstance(built, Built)
        with pytest.raises(InputError, match="ValueError: no reference today"):
            session.measure(built, 1)


ORPHAN = """
import sys, time
from explorer.machine import CPU
from explorer.runtime import Session, load_workload, machine_here
problem = load_workload("gemm").problem({"M": 64, "N": 64, "K": 64})
session = Session("gemm", problem, machine_here(CPU, problem.dtype), 1e-5, 60.0)
session.__enter__()
session._await_ready()
print(session._worker.pid, flush=True)
time.sleep(60)
"""


def test_a_killed_session_leaves_no_worker_behind() -> None:
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    with process.stdout:
        worker = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _alive(worker):
        time.sleep(0.05)
    assert not _alive(worker)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


SLOW = """
import time
from attrs import evolve
from explorer.runtime import load_workload
plain = load_workload("gemm")
def slow(problem, arrays):
    time.sleep(60)
workload = evolve(plain, reference=slow)
"""


def test_a_start_that_takes_the_whole_time_names_its_phase(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(SLOW)
    problem, space = _space()
    started = time.monotonic()
    arguments = (f"{path}:workload", problem, space.machine, 1e-5, LIMIT_S, started + 3.0)
    with Session(*arguments) as session:
        built = session.build(_pair(space))
        assert isinstance(built, Built)
        with pytest.raises(ExplorerError, match="while the worker process was computing the ref"):
            session.measure(built, 1)
    assert time.monotonic() - started < 6.0
