"""The pools against TVM's: the same offsets and the same refusals for any sequence of calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tvm.script import tirx as theirs
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder.ir import prim_func

from explorer.errors import MemoryPlanError
from explorer.memory.records import Allocation
from explorer.memory.smem_pool import SMEMPool
from explorer.memory.tmem_pool import TMEMPool
from explorer.memory.tmem_stages import TMEMStages
from tests.interop_tvm.sequences import (
    function,
    our_pools,
    run_ours,
    run_theirs,
    sequence,
    their_pools,
)

pytestmark = pytest.mark.interop

BATCH = 50


def place(allocation: Any, found: Any) -> tuple[int, int]:
    """Our offset and theirs, in their unit: whole elements, or columns."""
    if isinstance(allocation, Allocation):
        bits = allocation.offset_bytes * 8
        return bits // allocation.dtype.bits, int(found.elem_offset)
    return allocation.column, int(found.allocated_addr[0])


def cursors(pools: dict[str, Any]) -> list[int]:
    return [getattr(pools[k], a) for k in ("smem", "tmem") for a in ("offset", "max_offset")]


@pytest.mark.parametrize("batch", range(12))
def test_offsets_and_refusals(batch: int) -> None:
    seen: Counter[tuple[str, bool]] = Counter()
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        with function():
            their, our = their_pools(), our_pools()
            for call in sequence(seed):
                granted, found = run_theirs(call, their)
                same, allocation = run_ours(call, our)
                assert same == granted, (seed, call)
                if found is not None:
                    ours, expected = place(allocation, found)
                    assert ours == expected, (seed, call)
                assert cursors(our) == cursors(their), (seed, call)
                seen[call.method, granted] += 1
    for method in ("alloc", "alloc_mma", "alloc_sf"):
        assert seen[method, True] > BATCH // 6 and seen[method, False] > BATCH // 6


def test_the_figures_of_a_mixed_sequence() -> None:
    with function():
        for pools in (their_pools, our_pools):
            smem = pools()["smem"]
            smem.move_base_to(0)
            smem.alloc((3,), "float32")
            assert smem.offset == 12
            smem.alloc((5,), "float4_e2m1fn")
            assert smem.offset == 15
            smem.alloc_mma((64, 64), "float16")
            assert smem.offset == 9216


def test_the_address_word_counts_in_the_shared_pool() -> None:
    with function():
        for smem_type, tmem_type in (
            (theirs.SMEMPool, theirs.TMEMPool),
            (SMEMPool, TMEMPool),
        ):
            smem = smem_type()
            smem.alloc((9216,), "uint8")
            tmem_type(smem, tmem_addr=7)
            assert smem.max_offset == 9216
            assert tmem_type(smem, tmem_addr=7).addr == 7
            tmem_type(smem)
            assert smem.max_offset == 9220


def test_a_callers_pointer_records_nothing() -> None:
    with function():
        for pool in (theirs.SMEMPool(ptr=theirs.SMEMPool().ptr), SMEMPool(ptr="base")):
            pool.alloc((16,), "float32")
            pool.move_base_to(500)
            pool.commit(1)
            assert (pool.offset, pool.max_offset) == (500, 0)


@pytest.mark.parametrize("options", [{}, {"dealloc_warp": 3}, {"cta_group": 2, "alloc_warp": 1}])
@pytest.mark.parametrize("sync", [True, False])
def test_instructions(options: dict[str, int], sync: bool) -> None:
    with IRBuilder() as builder:
        with prim_func():
            pool = theirs.TMEMPool(theirs.SMEMPool(), 256, sync_after_alloc=sync, **options)
            pool.commit()
            pool.dealloc()
        lines = builder.get().script().splitlines()
    ours = TMEMPool(SMEMPool(), 256, sync_after_alloc=sync, **options)
    ours.commit()
    ours.dealloc()
    written = []
    warp = None
    for line in lines:
        if "if v" in line:
            warp = int(line.rstrip(":").rsplit("== ", 1)[1])
        if "T.ptx." in line or "warp_sync" in line:
            name = line.strip().removeprefix("T.").split("(")[0].rsplit(".", 1)[1]
            numbers = [
                int(n)
                for n in line.replace(")", "").replace("(", ",").split(",")[1:]
                if n.strip().isdigit()
            ]
            written.append((name, warp, numbers))
    recorded = []
    for step in ours.instructions:
        name = {"Tcgen05Alloc": "alloc", "WarpSync": "warp_sync", "Tcgen05Dealloc": "dealloc"}.get(
            type(step).__name__, "relinquish_alloc_permit"
        )
        given = [getattr(step, k) for k in ("columns", "cta_group") if hasattr(step, k)]
        recorded.append((name, step.warp, given))
    assert recorded == written


@pytest.mark.parametrize(
    "index",
    [0, 1, 3, (1, slice(None)), (1, slice(4, None)), (1, slice(None, 8)), (2, slice(4, 8))],
    ids=str,
)
@pytest.mark.parametrize("stride", [None, 48])
def test_stages(index: Any, stride: int | None) -> None:
    with function():
        buffer = their_pools()["tmem"].alloc((128, 256))
        found = theirs.TMEMStages(buffer, 16, 32, 4, stride)[index].region[1]
    ours = TMEMStages(TMEMPool(SMEMPool()).alloc((128, 256)), 16, 32, 4, stride)[index]
    assert (ours.start, ours.width) == (int(found.min), int(found.extent))


@pytest.mark.parametrize("index", [(1, 3), (1, slice(0, 4), 2), (1,)], ids=str)
def test_stages_refuse(index: Any) -> None:
    with function():
        buffer = their_pools()["tmem"].alloc((128, 256))
        with pytest.raises(AssertionError):
            theirs.TMEMStages(buffer, 0, 32)[index]
    with pytest.raises(MemoryPlanError, match="tmem-stages"):
        TMEMStages(TMEMPool(SMEMPool()).alloc((128, 256)), 0, 32)[index]
