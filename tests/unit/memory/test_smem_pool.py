"""The shared-memory pool: offsets, the mark, refusals, symbolic sizes."""

from typing import Any

import numpy as np
import pytest

from explorer.errors import InputError, MemoryPlanError
from explorer.expr import Param, holds
from explorer.ir.dtypes import DType
from explorer.machine import Scope
from explorer.memory.audit import audit_shared
from explorer.memory.layouts import Iter, TileLayout, row_major
from explorer.memory.records import PoolSize
from explorer.memory.smem_pool import SMEMPool
from explorer.memory.swizzle import SwizzleMode, alignment_bytes


def test_a_mixed_sequence() -> None:
    pool = SMEMPool()
    first = pool.alloc((3,), "float32")
    nibbles = pool.alloc((5,), "float4_e2m1")
    tile = pool.alloc_mma((64, 64), "float16")
    assert [a.offset_bytes for a in (first, nibbles, tile)] == [0, 12, 1024]
    assert [a.end_bytes for a in (first, nibbles, tile)] == [12, 15, 9216]
    assert (pool.offset, pool.max_offset) == (9216, 9216)
    assert tile.map.swizzle == SwizzleMode.SWIZZLE_128B_ATOM
    assert pool.allocations == (first, nibbles, tile)


@pytest.mark.parametrize(
    ("mode", "offset"),
    [
        (SwizzleMode.SWIZZLE_128B_ATOM, 1024),
        (SwizzleMode.SWIZZLE_64B_ATOM, 512),
        (SwizzleMode.SWIZZLE_32B_ATOM, 256),
    ],
)
def test_a_swizzled_tile_behind_a_pad(mode: SwizzleMode, offset: int) -> None:
    pool = SMEMPool()
    pool.alloc((64,), "uint8")
    tile = pool.alloc_mma((64, 64), "bfloat16", mode, align=alignment_bytes(mode))
    assert (tile.offset_bytes, pool.max_offset) == (offset, offset + 8192)
    assert audit_shared(pool) == ()


def test_records_are_complete() -> None:
    pool = SMEMPool()
    pool.alloc((1,), "int8")
    found = pool.alloc((4, 4), "float32", strides=(8, 1), scope="shared", align=16, name="padded")
    assert (found.name, found.shape, str(found.dtype)) == ("padded", (4, 4), "float32")
    assert (found.offset_bytes, found.align, found.scope) == (16, 16, "shared")
    assert found.strides == (8, 1)
    assert found.byte_addresses().reshape(4, 4)[1].tolist() == [48, 52, 56, 60]
    buffer = found.buffer()
    assert (buffer.name, buffer.scope) == ("padded", Scope.SHARED)


def test_layouts() -> None:
    pool = SMEMPool()
    assert pool.alloc((2, 3)).layout == row_major((2, 3))
    assert pool.alloc((2, 3), layout=None).layout is None
    turned = TileLayout([Iter(2, 1), Iter(3, 2)])
    found = pool.alloc((2, 3), "int8", layout=turned)
    assert found.byte_addresses().tolist() == [48 + n for n in (0, 2, 4, 1, 3, 5)]
    assert found.byte_addresses(np.array([4])).tolist() == [51]


def test_sub_byte_elements_share_bytes() -> None:
    found = SMEMPool().alloc((3,), "int4")
    assert found.bits().tolist() == [0, 4, 8]
    assert found.byte_addresses().tolist() == [0, 0, 1]
    assert found.size_bytes == 2


def test_move_base_to_shares_bytes_and_keeps_the_mark() -> None:
    pool = SMEMPool()
    pool.alloc((1024,), "float32")
    pool.move_base_to(0)
    staging = pool.alloc((256,), "float32")
    assert (staging.offset_bytes, pool.offset, pool.max_offset) == (0, 1024, 4096)
    pool.move_base_to(8000)
    assert pool.max_offset == 8000


def test_commit() -> None:
    pool = SMEMPool()
    pool.alloc((100,), "int8")
    with pytest.raises(MemoryPlanError, match=r"pool-size: commit of 99 B .* 100 B"):
        pool.commit(99)
    assert pool.instructions == ()
    pool.commit()
    pool.commit(128)
    assert pool.instructions == (PoolSize(100), PoolSize(128))
    assert pool.committed_bytes == 128


@pytest.mark.parametrize("ptr", ["base", None])
def test_a_callers_pointer(ptr: Any) -> None:
    pool = SMEMPool(ptr)
    pool.alloc((16,))
    pool.commit(1)
    assert (pool.offset, pool.max_offset, pool.instructions) == (64, 0, ())
    assert not pool.owned


REFUSED: list[tuple[Any, str]] = [
    (lambda p: p.alloc(4), r"pool-shape: 4 is not a shape; write a tuple, such as \(4,\)"),
    (lambda p: p.alloc((2, -1)), "pool-size: extent 1 is -1; it must be at least 0"),
    (lambda p: p.alloc((2.5,)), "pool-size: extent 0 is 2.5; it must be an integer"),
    (lambda p: p.alloc((4, 4), strides=(4,)), r"pool-strides: strides \(4,\) for shape \(4, 4\)"),
    (lambda p: p.alloc((4,), layout="rows"), "pool-layout: layout 'rows'; use 'default', None"),
    (lambda p: p.alloc((4,), "float33"), "unknown dtype 'float33'"),
    (lambda p: p.move_base_to(-8), "pool-size: the offset of move_base_to is -8"),
    (lambda p: p.alloc_mma((64, 64), swizzle_mode="wide"), "mma-swizzle: swizzle_mode 'wide'"),
    (lambda p: p.alloc_mma((64, 64), swizzle_mode=3), "mma-swizzle: swizzle_mode 3; use 'auto'"),
    (lambda p: p.alloc_mma((64,)), r"shape \(64,\) has 1 dimensions, .* swizzle_mode='none'"),
    (lambda p: p.alloc_mma((64, 32)), "rows of 64 B, .* 128 B atom .* SWIZZLE_64B_ATOM fits"),
    (lambda p: p.alloc_mma((64, 65)), "rows of 130 B, .* SWIZZLE_NONE fits, .* multiple of 64"),
    (lambda p: p.alloc_mma((8, 255), "int4"), "rows of 127.5 B, .* a multiple of 256"),
    (lambda p: p.alloc_mma((8, 0)), "rows of 0 B"),
    (lambda p: p.alloc_mma((12, 64)), "12 rows, not a positive multiple of the 8 rows"),
    (lambda p: p.alloc_mma((0, 8, 64)), r"shape \(0, 8, 64\) has no elements"),
    (lambda p: p.alloc_mma((8, 512), DType("fp6", 6, "float")), "6 bits, which do not divide"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refusals_leave_the_pool_as_it_was(call: Any, message: str) -> None:
    pool = SMEMPool()
    pool.alloc((3,), "int8")
    with pytest.raises(InputError, match=message) as caught:
        call(pool)
    assert "\n" not in str(caught.value)
    assert (pool.offset, pool.max_offset, len(pool.allocations)) == (3, 3, 1)
    assert pool.obligations == ()


def test_a_refusal_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="mma-swizzle"):
        SMEMPool().alloc_mma((64, 32))


def test_none_takes_any_shape() -> None:
    pool = SMEMPool()
    assert pool.alloc_mma((3, 5), swizzle_mode="none").map == row_major((3, 5))
    assert pool.alloc_mma((7,), swizzle_mode=SwizzleMode.SWIZZLE_NONE).offset_bytes == 1024


def test_symbolic_sizes() -> None:
    rows, columns = Param("block_M"), Param("block_K")
    pool = SMEMPool()
    tile = pool.alloc_mma((rows, columns), "bfloat16")
    after = pool.alloc((4,), "int8", align=128)
    pool.commit()
    (whole,) = pool.obligations
    assert whole.rule == "mma-swizzle" and "(block_M, block_K)" in whole.message
    assert holds(whole.holds, {"block_M": 64, "block_K": 128})
    assert not holds(whole.holds, {"block_M": 60, "block_K": 128})
    assert not holds(whole.holds, {"block_M": 64, "block_K": 96})
    sizes = {"block_M": 64, "block_K": 128}
    expected = SMEMPool()
    assert tile.at(sizes) == expected.alloc_mma((64, 128), "bfloat16")
    assert after.at(sizes).offset_bytes == 64 * 128 * 2
    with pytest.raises(MemoryPlanError, match=r"symbolic-size: .* bind it with at\(\)"):
        tile.bits()
