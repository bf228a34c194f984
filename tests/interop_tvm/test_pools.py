"""Where the rings of a block lie: this package's arithmetic against TVM's shared-memory pool."""

from __future__ import annotations

import pytest
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import SMEMPool
from tvm.tirx.script.builder.ir import prim_func

from explorer.expr import const
from explorer.ir.dtypes import dtype
from explorer.ir.nodes import Buffer
from explorer.machine import H200, Scope
from explorer.memory.footprint import shared_layout

pytestmark = pytest.mark.interop

RINGS = {
    "gemm": ([((128, 64), "bfloat16", 4), ((128, 64), "bfloat16", 4)], [4]),
    "a ring each, and a staging buffer": (
        [((64, 64), "float16", 3), ((256, 64), "float16", 2), ((64, 256), "float16", 1)],
        [3, 2],
    ),
    "odd sizes": ([((3,), "float32", 2), ((5, 7), "int8", 3), ((1,), "float16", 1)], [2, 3]),
    "sub-byte elements": ([((3, 3), "int4", 2), ((64, 64), "int4", 2)], [2]),
}


@pytest.mark.parametrize("name", RINGS)
def test_offsets_are_those_of_the_pool(name: str) -> None:
    rings, depths = RINGS[name]
    buffers = [
        (Buffer(f"b{k}", tuple(map(const, shape)), dtype(kind), Scope.SHARED), versions)
        for k, (shape, kind, versions) in enumerate(rings)
    ]
    layout = shared_layout(buffers, depths, H200)
    memory = H200.memory(Scope.SHARED)
    assert memory is not None
    with IRBuilder(), prim_func():
        pool = SMEMPool()
        for placed, (shape, kind, versions) in zip(layout.rings, rings, strict=True):
            for version in range(versions):
                found = pool.alloc(shape, kind, align=memory.alignment_bytes)
                ours = placed.offset_bytes + version * placed.pitch_bytes
                assert int(found.elem_offset) * dtype(kind).bits == ours * 8
        pool.alloc((2 * sum(depths),), "uint64", align=memory.alignment_bytes)
        assert layout.total_bytes == pool.max_offset
        pool.commit()
