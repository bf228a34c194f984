"""Two blocks a unit, and rasters by table: what is refused, and with which numbers."""

from __future__ import annotations

from explorer.constraints import check
from explorer.machine import H200
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import Raster
from explorer.space import SearchSpace
from tests.support.cuda_candidates import GOOD, ONE_CONSUMER, STAGED, gemm_space

SPACE = gemm_space("gemm", (4096, 4096, 4096))
SMALL = GOOD | {"block_N": 128, "nreg_consumer": 208, "blocks": 264}


def schedule(space: SearchSpace, title: str, **choices: int) -> Schedule:
    index = [skeleton.title for skeleton in space.skeletons].index(title)
    values = {choice.name: choice.domain[0] for choice in space.choices} | choices
    return space.candidate(values | {"skeleton": index})


def refused(space: SearchSpace, title: str, **choices: int) -> dict[str, str]:
    found = check(space.kernel, schedule(space, title, **choices), H200)
    return {violation.rule: violation.message for violation in found.violations}


def test_two_blocks_share_the_memory_of_a_unit() -> None:
    assert refused(SPACE, ONE_CONSUMER, **SMALL | {"depth_A_B": 3}) == {}
    found = refused(SPACE, ONE_CONSUMER, **SMALL | {"depth_A_B": 4})
    assert "2 blocks x 132160 B > 233472 B" in found["unit-residency"]
    assert refused(SPACE, ONE_CONSUMER, **SMALL | {"depth_A_B": 4, "blocks": 132}) == {}


def test_two_blocks_share_the_registers_of_a_unit() -> None:
    found = refused(SPACE, ONE_CONSUMER, **SMALL | {"depth_A_B": 3, "nreg_consumer": 232})
    assert "34816 registers" in found["register-pool"]
    wide = SMALL | {"block_M": 64, "block_N": 256, "depth_A_B": 2}
    assert "needs 154 registers" in refused(SPACE, ONE_CONSUMER, **wide)["register-entry"]


def test_blocks_share_the_threads_of_a_unit() -> None:
    many = SMALL | {"warps_consumer": 16, "blocks": 4 * 132, "depth_A_B": 1}
    found = check(SPACE.kernel, schedule(SPACE, ONE_CONSUMER, **many), H200)
    messages = [v.message for v in found.violations if v.rule == "unit-residency"]
    assert any("4 blocks x 640 threads > 2048" in message for message in messages)


def test_a_table_holds_the_order_of_so_many_tiles() -> None:
    """The tiles of 64 x 96 are 65536 and more; the other rasters are formulas."""
    hilbert = {"raster": tuple(Raster).index(Raster.HILBERT), "group": 1}
    assert refused(SPACE, STAGED, **GOOD | hilbert) == {}
    large = gemm_space("gemm", (65536, 65536, 64))
    assert "512 tiles > 65536" in refused(large, STAGED, **GOOD | hilbert)["launch"]
    assert refused(large, STAGED, **GOOD) == {}
