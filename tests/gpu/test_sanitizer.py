"""compute-sanitizer finds nothing: in random legal schedules, and at every trip count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import trip_counts
from tests.gpu.trip_counts import SAMPLE, build, check, compute_sanitizer

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
# The kernels of CuPy and cuBLAS are not what is tested, and CuPy probes the driver with errors.
OPTIONS = ("--kernel-name", "kns=k_gemm", "--report-api-errors", "no", "--error-exitcode", "9")
# What racecheck says of kernels that run to their end under memcheck and under nothing.
TOOL_FAILED = "Internal Sanitizer Error"


@pytest.mark.parametrize(("tool", "count"), [("memcheck", 30), ("racecheck", 6)])
def test_random_schedules(tool: str, count: int, tmp_path: Path) -> None:
    sanitizer = compute_sanitizer()
    if not sanitizer:
        pytest.skip("compute-sanitizer is not on PATH")
    script = (sys.executable, "-m", "tests.gpu.sanitized", tool, str(count), str(tmp_path))
    done = subprocess.run(
        (sanitizer, "--tool", tool, *OPTIONS, *script),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if TOOL_FAILED in done.stdout:
        pytest.skip(f"{tool} did not come to an end by itself: {TOOL_FAILED}")
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-1000:]}"


@pytest.mark.parametrize("tool", ["", *trip_counts.TOOLS])
def test_every_trip_count_around_the_depths(tool: str, tmp_path: Path) -> None:
    """Loops of 0 to depth + 3 iterations, GEMM and copies, against the NumPy interpreter."""
    if tool and not compute_sanitizer():
        pytest.skip("compute-sanitizer is not on PATH")
    build(tmp_path, every_lane=tool == "racecheck")
    done = check(tmp_path, tool)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-1000:]}"
    assert f"{SAMPLE} of {SAMPLE} cases, 0 wrong" in done.stdout
