"""A short suite on the card: tuned, measured again, and the ablation of a winner."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.tune import BenchRequest, ablate_case, bench_suite

pytestmark = pytest.mark.gpu

SHAPES = ((1024, 1024, 1024), (512, 2048, 512))


def test_a_suite_is_tuned_and_its_winners_measured_in_one_run(tmp_path: Path) -> None:
    request = BenchRequest("gemm", shapes=SHAPES, seconds=10.0, out=tmp_path)
    table = bench_suite(request)
    again = bench_suite(BenchRequest("gemm", shapes=SHAPES, out=tmp_path, resume=True))
    for found in (table, again):
        print(*found.cells(), *found.summary(), sep="\n")
        assert len(found.ratios) == len(SHAPES)
        for row in found.rows:
            assert row.figures is not None
            assert row.figures.error <= 8e-3
            assert row.figures.tuned_s <= 14.0
            assert row.figures.ratio is not None
            assert row.figures.ratio < 3.0, "the peer is timed without its host"
    ladder = ablate_case(BenchRequest("gemm", shapes=SHAPES[:1], out=tmp_path))
    assert any(step.time_us is not None for step in ladder.steps)
