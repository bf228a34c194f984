"""TileLang accepts a schedule exactly where this package's rules find it legal."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.constraints import check
from explorer.export import export_kernel_tilelang
from explorer.machine import H200
from tests.interop_tilelang.materialize import Refused, load_kernel, materialize
from tests.unit.export.skeletons import CASES

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_the_same(case: str, tmp_path: Path) -> None:
    kernel, schedule = CASES[case]
    broken = {violation.rule for violation in check(kernel, schedule, H200).violations}
    exported = load_kernel(export_kernel_tilelang(kernel, schedule), tmp_path, kernel.name)
    if not broken:
        assert materialize(exported).num_warps == schedule.ws.num_warps
        return
    with pytest.raises(Refused) as refusal:
        materialize(exported)
    assert any(rule in str(refusal.value) for rule in broken), (broken, str(refusal.value))
