"""A kernel that hangs or faults costs itself alone, and a hang is explained."""

from __future__ import annotations

import time

import pytest

from explorer.records import Crashed, Measured, TimedOut
from tests.gpu.support import built, crashing, hanging, session
from tests.support.cuda_candidates import DIRECT, SMALL, candidate, gemm_space, program_of

pytestmark = pytest.mark.gpu
SIZES = (1024, 1024, 512)


def test_a_hang_is_killed_and_explained() -> None:
    """C37: [good, one arrive too many, good]."""
    space = gemm_space("gemm", SIZES)
    schedule = candidate(space, DIRECT, **SMALL, depth_A_B=2)
    bad = hanging(program_of(space, schedule))
    with session("gemm", SIZES, limit_s=2.0) as opened:
        good = built(opened, schedule)
        started = time.monotonic()
        outcomes = [opened.measure(each, repeats=1) for each in (good, bad, good)]
        assert time.monotonic() - started < 60.0
    first, middle, last = outcomes
    assert isinstance(first, Measured)
    assert isinstance(last, Measured)
    assert isinstance(middle, TimedOut), middle
    assert "role consumer_0 waits at A_B.full[0] parity 0" in middle.report
    assert "role producer waits at A_B.empty[0] parity 0" in middle.report


def test_a_crash_poisons_nobody_else() -> None:
    """C38: [good, illegal access, good]."""
    space = gemm_space("gemm", SIZES)
    schedule = candidate(space, DIRECT, **SMALL, depth_A_B=2)
    bad = crashing(program_of(space, schedule))
    with session("gemm", SIZES) as opened:
        good = built(opened, schedule)
        outcomes = [opened.measure(each, repeats=1) for each in (good, bad, good)]
        assert [type(each) for each in outcomes] == [Measured, Crashed, Measured]
        samples = opened.race([good, bad, good], rounds=2, with_peer=True)
        assert [each is None for each in samples] == [False, True, False, False]
