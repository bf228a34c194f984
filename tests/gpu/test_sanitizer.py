"""compute-sanitizer finds nothing in random legal schedules."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
# The kernels of CuPy and cuBLAS are not what is tested, and CuPy probes the driver with errors.
OPTIONS = ("--kernel-regex", "kns=k_gemm", "--report-api-errors", "no", "--error-exitcode", "9")


@pytest.mark.parametrize(("tool", "count"), [("memcheck", 30), ("racecheck", 6)])
def test_nothing_is_found(tool: str, count: int, tmp_path: Path) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not on PATH")
    script = (sys.executable, "-m", "tests.gpu.sanitized", str(count), str(tmp_path))
    done = subprocess.run(
        (sanitizer, "--tool", tool, *OPTIONS, *script),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-1000:]}"
