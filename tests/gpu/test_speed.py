"""The known good schedule against cuBLAS, interleaved in one process."""

from __future__ import annotations

from statistics import median

import pytest

from tests.gpu.support import built, session
from tests.support.cuda_candidates import GOOD, LAYOUTS, STAGED, candidate, gemm_space

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [4096, 8192])
def test_at_least_95_percent_of_cublas(layout: str, size: int) -> None:
    sizes = (size, size, size)
    space = gemm_space(layout, sizes)
    with session(layout, sizes) as opened:
        good = built(opened, candidate(space, STAGED, **GOOD))
        ours, peer = opened.race([good], rounds=20, with_peer=True)
    assert ours is not None
    assert peer is not None
    ratio = median(peer) / median(ours)
    print(f"{layout} {size}: {median(ours):.1f} us, cuBLAS {median(peer):.1f} us, {ratio:.3f}")
    assert ratio >= 0.95
