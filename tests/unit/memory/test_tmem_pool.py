"""The tensor-memory pool and its stages: columns, layouts, instructions, refusals."""

from typing import Any

import pytest

from explorer.errors import MemoryPlanError
from explorer.expr import Param, Var, evaluate, holds
from explorer.ir.dtypes import DType
from explorer.memory.layouts import Axis, Iter, TileLayout
from explorer.memory.records import (
    Tcgen05Alloc,
    Tcgen05Dealloc,
    Tcgen05RelinquishAllocPermit,
    WarpSync,
    Word,
)
from explorer.memory.smem_pool import SMEMPool
from explorer.memory.tmem_pool import TMEMPool
from explorer.memory.tmem_stages import TMEMStages

SCALE = DType("float8_e8m0fnu", 8, "float")
STAGED = TileLayout([Iter(2, 64, Axis.COLUMN), Iter(128, 1, Axis.LANE), Iter(64, 1, Axis.COLUMN)])


def pool(**options: Any) -> TMEMPool:
    return TMEMPool(SMEMPool(), **options)


def test_a_mixed_sequence() -> None:
    smem = SMEMPool()
    smem.alloc((9216,), "int8")
    tmem = TMEMPool(smem)
    assert smem.max_offset == 9220
    ends = [
        tmem.alloc((128, 256), "float32").end_column,
        tmem.alloc((128, 128), "float16").end_column,
        tmem.alloc((64, 64), "float32", datapath="F").end_column,
        tmem.alloc_sf((128, 16), SCALE, sf_per_mma=4).end_column,
    ]
    assert ends == [256, 320, 384, 400]
    assert (tmem.offset, tmem.max_offset) == (400, 400)


def test_the_address_word() -> None:
    smem = SMEMPool()
    smem.alloc((1,), "int8")
    tmem = TMEMPool(smem)
    assert smem.allocations[1].offset_bytes == 4
    assert tmem.addr == Word(smem.allocations[1])
    given = smem.alloc((2,), "uint32")
    assert TMEMPool(smem, tmem_addr=given).addr == Word(given)
    assert TMEMPool(None, tmem_addr=64).addr == 64
    assert len(smem.allocations) == 3


def test_datapath_f_uses_sixteen_lanes_of_each_quarter() -> None:
    cells = pool().alloc((64, 2), datapath="F").cells()
    assert cells.lane[::2].tolist() == [32 * (r // 16) + r % 16 for r in range(64)]
    assert cells.column[:4].tolist() == [0, 1, 0, 1]


def test_narrow_elements_share_cells() -> None:
    tmem = pool()
    tmem.move_base_to(10)
    cells = tmem.alloc((128, 4), "float16").cells()
    assert cells.column[:4].tolist() == [10, 10, 11, 11]
    assert cells.bit[:4].tolist() == [0, 16, 0, 16]


def test_scale_factors_are_repeated_for_each_warp() -> None:
    found = pool().alloc_sf((128, 4), SCALE, sf_per_mma=4)
    assert found.layout.copies(Axis.LANE) == (0, 32, 64, 96)
    cells = found.cells()
    assert cells.lane[::4][[0, 31, 32, 127]].tolist() == [0, 31, 0, 31]
    assert cells.column[::4][[0, 31, 32, 127]].tolist() == [0, 0, 1, 3]
    assert cells.bit[:4].tolist() == [0, 8, 16, 24]


def test_reuse_stores_each_factor_once() -> None:
    found = pool().alloc_sf((128, 16), SCALE, sf_per_mma=1, sf_reuse=4)
    assert found.columns == 4
    assert found.cells().bit[:16].tolist() == [0] * 4 + [8] * 4 + [16] * 4 + [24] * 4


def test_a_layout_gives_the_columns() -> None:
    assert pool().alloc((2, 128, 64), layout=STAGED).columns == 128
    assert pool().alloc((2, 128, 64), layout=STAGED, cols=130).columns == 130


def test_instructions() -> None:
    tmem = pool(total_cols=256, cta_group=2, alloc_warp=1, dealloc_warp=4)
    tmem.alloc((128, 64))
    tmem.commit()
    tmem.dealloc()
    assert tmem.instructions == (
        Tcgen05Alloc(1, tmem.addr, 256, 2),
        WarpSync(1),
        Tcgen05RelinquishAllocPermit(4, 2),
        Tcgen05Dealloc(4, tmem.addr, 256, 2),
    )
    silent = pool(alloc_warp=3, sync_after_alloc=False)
    silent.commit()
    silent.dealloc()
    assert [step.warp for step in silent.instructions if not isinstance(step, WarpSync)] == [3] * 3
    assert len(silent.instructions) == 3


def twice(tmem: TMEMPool) -> None:
    tmem.commit()
    tmem.commit()


def freed_twice(tmem: TMEMPool) -> None:
    tmem.commit()
    tmem.dealloc()
    tmem.dealloc()


REFUSED: list[tuple[Any, str]] = [
    (lambda t: t.alloc((128, 600)), r"tmem-overflow: .* columns 500 to 1100 of 512; move_base_to"),
    (lambda t: t.alloc((128, 8), name="acc", cols=13), "'acc' .* takes columns 500 to 513 of 512"),
    (lambda t: t.alloc((128, 3), "float16"), "tmem-whole-columns: .* 3 x 16 = 48 bits a lane"),
    (lambda t: t.alloc((128, 7), "float16", datapath="D"), "7 x 16 = 112 bits a lane"),
    (lambda t: t.alloc((0, 4)), r"tmem-shape: shape \(0, 4\) has no rows"),
    (lambda t: t.alloc((2, 128, 4)), r"tmem-shape: .* 3 dimensions; pass layout="),
    (lambda t: t.alloc((2, 128, 4), cols=8), "tmem-shape: .* pass layout="),
    (lambda t: t.alloc((2, 64, 4), datapath="F"), "tmem-shape: .* datapath='F' takes"),
    (lambda t: t.alloc((128, 4), datapath="E"), "tmem-datapath: datapath 'E' is not known"),
    (lambda t: t.alloc((64, 4), datapath="D"), "'D' has 128 rows, not 64; use datapath 'F'"),
    (lambda t: t.alloc((32, 4), datapath="F"), "'F' has 64 rows, not 32; use 64 rows, or pass"),
    (lambda t: t.alloc((128, 4), datapath="D", layout=STAGED), "tmem-layout: .* pass one"),
    (lambda t: t.alloc((128, 4), cols=-3), "pool-size: cols is -3"),
    (lambda t: t.alloc((128, 4), cols=2.5), "pool-size: cols is 2.5"),
    (lambda t: t.move_base_to(-1), "pool-size: the column of move_base_to is -1"),
    (lambda t: t.alloc_sf((128,), SCALE, sf_per_mma=4), "1 dimensions; use .rows, factors x sf_r"),
    (lambda t: t.alloc_sf((128, 15), SCALE, sf_per_mma=1, sf_reuse=4), "15 .* sf_reuse 4; use 16"),
    (lambda t: t.alloc_sf((128, 5), SCALE, sf_per_mma=2), "= 5 factors .* sf_per_mma 2; use 6"),
    (lambda t: t.alloc_sf((128, 0), SCALE, sf_per_mma=2), "= 0 factors .* use 2"),
    (lambda t: t.alloc_sf((16, 4), SCALE, sf_per_mma=4), "16 rows are less than the 32"),
    (lambda t: t.alloc_sf((128, 4), SCALE, sf_per_mma=0), "sf_per_mma is 0"),
    (lambda t: t.alloc_sf((128, 4), SCALE, sf_per_mma=4, sf_reuse=0), "sf_reuse is 0"),
    (lambda t: t.alloc_sf((32, 1), SCALE, sf_per_mma=1), "tmem-whole-columns: .* 1 x 8 = 8 bits"),
    (lambda t: t.alloc_sf((Param("m"), 4), SCALE, sf_per_mma=4), "symbolic-size: .* is 'm'"),
    (lambda t: t.dealloc(), r"tmem-dealloc: .* call commit\(\) before"),
    (twice, r"tmem-commit: .* once"),
    (freed_twice, r"tmem-dealloc: the columns are freed already"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refusals_leave_the_pool_as_it_was(call: Any, message: str) -> None:
    tmem = pool()
    tmem.move_base_to(500)
    with pytest.raises(MemoryPlanError, match=message) as caught:
        call(tmem)
    assert "\n" not in str(caught.value)
    assert (tmem.offset, tmem.max_offset, tmem.allocations) == (500, 500, ())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TMEMPool(None), "tmem-address: .* pass an SMEMPool or tmem_addr="),
        (lambda: pool(cta_group=3), "tmem-cta-group: cta_group is 3"),
        (lambda: pool(total_cols=-1), "pool-size: total_cols is -1"),
    ],
)
def test_impossible_pools(build: Any, message: str) -> None:
    with pytest.raises(MemoryPlanError, match=message):
        build()


def test_symbolic_columns() -> None:
    tmem = pool()
    found = tmem.alloc((128, Param("block_N")), "float16", datapath="D", name="acc")
    tmem.alloc((128, Param("block_N")), "float32")
    rules = [o.rule for o in tmem.obligations]
    assert rules == [*["tmem-whole-columns", "tmem-overflow"] * 2]
    fits = {
        n: all(holds(o.holds, {"block_N": n}) for o in tmem.obligations)
        for n in (63, 64, 256, 342, 344)
    }
    assert fits == {63: False, 64: True, 256: True, 342: False, 344: False}
    expected = pool().alloc((128, 64), "float16", datapath="D", name="acc")
    assert found.at({"block_N": 64}) == expected


def test_stages() -> None:
    acc = pool().alloc((128, 256))
    stages = TMEMStages(acc, 16, 32, stages=4, stride=64)

    def columns(item: Any) -> tuple[Any, ...]:
        region = stages[item]
        return region.start, region.stop, region.step

    assert columns(0) == (16, 48, 1)
    assert columns(3) == (208, 240, 1)
    assert columns((1, slice(None))) == (80, 112, 1)
    assert columns((1, slice(4, None))) == (84, 112, 1)
    assert columns((1, slice(None, 8))) == (80, 88, 1)
    assert columns((1, slice(None, None, 2))) == (80, 112, 2)
    assert stages[1, 1::3].width == 11
    assert TMEMStages(acc, 0, 16, 2)[1].start == 16
    moving = stages[Var("w") % 4]
    assert [evaluate(moving.start, {"w": w}) for w in (0, 1, 5)] == [16, 80, 80]
    assert evaluate(moving.width, {"w": 2}) == 32


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((1, 3), r"write stages\[s\] or stages\[s, start:stop\]"),
        ((1, slice(None), 2), r"write stages\[s\]"),
        ((1, slice(None, None, 0)), "step 0; use an integer of at least 1"),
        ((1, slice(8, 4)), "columns 8:4 are 88:84 .* use start <= stop"),
        (-1, "pool-size: the stage is -1; it must be at least 0"),
        ("1", "pool-size: the stage is '1'; it must be an integer"),
        ((1, slice(-4, None)), "pool-size: the slice's start is -4"),
        ((Var("w"), slice(8, 4)), "stage 0 columns 8:4 .* use start <= stop"),
        ((Var("w"), slice(0, 49)), "stage 3 columns 0:49 are 208:257 of 'acc'"),
        (4, "stage 4 columns 0:32 are 272:304 of 'acc', which has 256"),
    ],
)
def test_stages_stay_inside_the_buffer(item: Any, message: str) -> None:
    stages = TMEMStages(pool().alloc((128, 256), name="acc"), 16, 32, stages=4, stride=64)
    with pytest.raises(MemoryPlanError, match=message):
        stages[item]


def test_all_declared_stages_fit() -> None:
    acc = pool().alloc((128, 64), name="acc")
    with pytest.raises(MemoryPlanError, match=r"stage 2 .* 64:96 of 'acc', which has 64"):
        TMEMStages(acc, 0, 32, stages=3)
    staged = pool().alloc((2, 128, 64), layout=STAGED)
    with pytest.raises(MemoryPlanError, match="stages are columns of a 2-D buffer"):
        TMEMStages(staged, 0, 32)
