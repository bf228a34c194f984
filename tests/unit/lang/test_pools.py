"""Pools in kernels: what they give out, what stays with the kernel, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import explorer.lang as T
from explorer.errors import ExplorerError, KernelError, MemoryPlanError
from explorer.expr import holds
from explorer.ir.interpreter import run
from explorer.ir.nodes import Copy, Region, ops
from explorer.ir.pools import TensorGrant
from explorer.ir.printer import kernel_digest, show_kernel
from explorer.machine import B200, CPU, Scope
from explorer.memory import SMEMPool, SwizzleMode, TMEMPool
from explorer.memory.places import layout_of, pool_regions

F16, F32 = T.float16, T.float32
Use = Callable[[], Any]


def pooled(use: Use) -> T.TracedKernel:
    """A kernel that only calls `use`."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), F16)):
        with T.Kernel(1):
            use()
            held = T.alloc_fragment((64, 64), F16)
            T.copy(A, held)

    return kernel


def offsets(kernel: T.TracedKernel) -> dict[str, tuple[str, str]]:
    return {
        place.buffer: (str(place.offset), str(place.size))
        for pool in kernel.pools
        for place in pool.places
    }


def test_offsets_of_a_mixed_sequence() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), F16)):
        with T.Kernel(1):
            pool = T.SMEMPool()
            first = pool.alloc((3,))
            nibbles = pool.alloc((5,), "float4_e2m1fn")
            tile = pool.alloc_mma((64, 64), F16)
            assert (pool.offset, pool.max_offset) == (1024 + 8192, 9216)
            tmem = T.TMEMPool(pool)
            pool.commit()
            big = tmem.alloc((128, 256))
            half = tmem.alloc((128, 128), F16)
            scattered = tmem.alloc((64, 64), datapath="F")
            factors = tmem.alloc_sf((128, 16), T.float8_e4m3, sf_per_mma=4)
            assert (tmem.offset, tmem.max_offset) == (400, 400)
            tmem.commit()
            T.copy(A, tile)
            tmem.dealloc()

    assert offsets(kernel) == {
        "first": ("0", "12"),
        "nibbles": ("12", "3"),
        "tile": ("1024", "8192"),
        "tmem_addr": ("9216", "4"),
        "big": ("0", "256"),
        "half": ("256", "64"),
        "scattered": ("320", "64"),
        "factors": ("384", "16"),
    }
    shared, tensor = kernel.pools
    assert (shared.name, shared.scope, str(shared.size)) == ("pool", Scope.SHARED, "9220")
    assert (tensor.name, tensor.scope, str(tensor.size)) == ("tmem", Scope.TMEM, "512")
    assert tensor.grant == TensorGrant("tmem_addr", 0, 0, 1, True)
    assert kernel.buffer("tile").scope == Scope.SHARED
    assert kernel.buffer("half").scope == Scope.TMEM
    assert [p.buffer for p in shared.places if p.permanent] == ["tmem_addr"]


@pytest.mark.parametrize("mode", ["auto", "none", *SwizzleMode])
def test_swizzles_and_layouts_are_those_of_the_pool(mode: Any) -> None:
    def use() -> None:
        pool = T.SMEMPool()
        pool.alloc_mma((2, 16, 64), F16, swizzle_mode=mode)
        pool.commit()

    (place,) = pooled(use).pools[0].places
    plain = SMEMPool().alloc_mma((2, 16, 64), "float16", mode)
    assert layout_of(place) == plain.map
    assert place.swizzle_bytes == plain.map.swizzle.atom_bytes


@pytest.mark.parametrize(
    "options",
    [
        {"shape": (128, 32)},
        {"shape": (64, 32), "datapath": "F"},
        {"shape": (128, 32), "cols": 40},
        {
            "shape": (2, 128, 24),
            "layout": T.TileLayout(
                [
                    T.LayoutIter(2, 24, T.LayoutAxis.COLUMN),
                    T.LayoutIter(128, 1, T.LayoutAxis.LANE),
                    T.LayoutIter(24, 1, T.LayoutAxis.COLUMN),
                ]
            ),
        },
    ],
    ids=str,
)
def test_layouts_of_tensor_memory(options: dict[str, Any]) -> None:
    def use() -> None:
        tmem = T.TMEMPool(None, tmem_addr=7)
        tmem.alloc(**options)
        tmem.commit()
        tmem.dealloc()

    (pool,) = pooled(use).pools
    plain = TMEMPool(None, tmem_addr=7).alloc(**options)
    assert layout_of(pool.places[0]) == plain.layout
    assert str(pool.places[0].size) == str(plain.columns)


def test_the_grant_says_who_allocates_and_frees() -> None:
    def use() -> None:
        word = T.alloc_shared((1,), "uint32")
        tmem = T.TMEMPool(
            None, 256, cta_group=2, alloc_warp=1, dealloc_warp=3, tmem_addr=word,
            sync_after_alloc=False,
        )  # fmt: skip
        assert tmem.addr.buffer.name == word.name
        tmem.commit()
        tmem.dealloc()

    (pool,) = pooled(use).pools
    assert pool.grant == TensorGrant("shared", 1, 3, 2, False)
    assert str(pool.size) == "256"


def test_stages_are_regions() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), F32)):
        with T.Kernel(1):
            tmem = T.TMEMPool(None, tmem_addr=0)
            acc = tmem.alloc((128, 512))
            stages = T.TMEMStages(acc, 64, 64, stages=4, stride=96)
            plain = T.TMEMStages(acc, 0, 64)
            for i in T.serial(4):
                T.copy(A, stages[i])
                T.copy(stages[3, 32:], stages[1, :32])
            T.copy(plain[0], A)
            tmem.commit()
            tmem.dealloc()

    found: list[Region] = []
    for op in ops(kernel.body):
        assert isinstance(op, Copy)
        found += [r for r in (op.src, op.dst) if r.buffer.name == "acc"]
    columns = [(str(region.start[1]), str(region.extent[1])) for region in found]
    assert columns == [
        ("64 + i * 96", "64"),
        ("384", "32"),
        ("160", "32"),
        ("0", "64"),
    ]


def test_a_pool_in_a_buffer_of_the_kernel() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((64,), F32)):
        with T.Kernel(1):
            raw = T.alloc_shared((4096,), "uint8")
            pool = T.SMEMPool(raw)
            a = pool.alloc((64,), align=128)
            pool.move_base_to(1024)
            b = pool.alloc((64,))
            assert pool.max_offset == 0
            T.copy(A, a)
            T.copy(a, b)

    (pool,) = kernel.pools
    assert (pool.base, str(pool.size)) == ("raw", "4096")
    assert offsets(kernel) == {"a": ("0", "256"), "b": ("1024", "256")}
    assert pool_regions(kernel.pools, B200).offset("raw") == 0


def test_regions_follow_each_other_where_slots_are_packed() -> None:
    def use() -> None:
        for _ in range(2):
            pool = T.SMEMPool()
            pool.alloc((100,), "uint8")
            pool.alloc((16,), align=16)
            pool.commit(1500)

    kernel = pooled(use)
    regions = pool_regions(kernel.pools, B200)
    assert [at for _, at in regions.offsets] == [0, 112, 2048, 2160]
    assert dict(regions.sizes) == {Scope.SHARED: 3548}
    assert pool_regions(kernel.pools, CPU).offsets == ()


def test_sizes_may_be_open() -> None:
    rows = T.Param("rows")

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), F16)):
        with T.Kernel(1):
            pool = T.SMEMPool()
            a = pool.alloc_mma((rows, 64), F16)
            b = pool.alloc((64, 64), F16)
            pool.commit()
            T.copy(A[0:rows, 0:64], a)
            T.copy(A, b)

    assert kernel.params == ("rows",)
    fixed = kernel.at(rows=32)
    assert offsets(fixed) == {"a": ("0", "4096"), "b": ("4096", "8192")}
    assert str(fixed.pools[0].size) == "12288"
    assert layout_of(fixed.pools[0].places[0]) == SMEMPool().alloc_mma((32, 64)).map
    rules = {c.rule for c in kernel.pools[0].conditions}
    assert {"mma-swizzle", "pool-element-alignment", "pool-capacity"} <= rules
    assert all(holds(condition.holds) for condition in fixed.pools[0].conditions)
    broken = [c.rule for c in kernel.at(rows=12).pools[0].conditions if not holds(c.holds)]
    assert broken == ["mma-swizzle"]


def test_places_identify_a_kernel_and_do_not_change_its_meaning() -> None:
    def kernel(offset: int) -> T.TracedKernel:
        @T.prim_func
        def twice(A: T.Tensor((8, 8), F32), B: T.Tensor((8, 8), F32)):
            with T.Kernel(1):
                pool = T.SMEMPool()
                a = pool.alloc((8, 8))
                pool.move_base_to(offset)
                b = pool.alloc((8, 8))
                pool.commit()
                T.copy(A, a)
                for i, j in T.Parallel(8, 8):
                    b[i, j] = a[i, j] * 2.0
                T.copy(b, B)

        return twice

    apart, shared = kernel(256), kernel(0)
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    for each in (apart, shared):
        assert (run(each, {"A": values})["B"] == 2 * values).all()
    assert kernel_digest(apart) != kernel_digest(shared)
    assert "b at 256 :+ 256 B" in show_kernel(apart)


def refused(use: Use) -> tuple[type[ExplorerError], str]:
    with pytest.raises(ExplorerError) as caught:
        pooled(use)
    assert "test_pools.py:" in str(caught.value)
    return type(caught.value), str(caught.value)


def tmem_of(**options: Any) -> T.TMEMPool:
    return T.TMEMPool(None, tmem_addr=0, **options)


def _never_committed() -> None:
    T.SMEMPool().alloc((4,))


def _late() -> None:
    pool = T.SMEMPool()
    pool.commit()
    pool.alloc((4,))


def _too_little() -> None:
    pool = T.SMEMPool()
    pool.alloc((4,))
    pool.commit(15)


def _outside_its_buffer() -> None:
    T.SMEMPool(T.alloc_shared((64,), "uint8")).alloc((17,))


def _misaligned() -> None:
    pool = T.SMEMPool()
    pool.alloc((1,), "uint8")
    pool.alloc((4,))
    pool.commit()


def _held() -> None:
    tmem_of().commit()


def _stepped() -> None:
    T.TMEMStages(tmem_of().alloc((128, 64)), 0, 32)[0, ::2]


@pytest.mark.parametrize(
    ("use", "kind", "message"),
    [
        (_never_committed, MemoryPlanError, "pool-commit: 'pool' asks for no memory"),
        (_late, MemoryPlanError, "pool-late-allocation: 'pool' gave out 16 B and committed 0 B"),
        (_too_little, MemoryPlanError, "pool-size: commit of 15 B is less than the 16 B"),
        (_outside_its_buffer, MemoryPlanError, "ends at byte 68 of the 64 B of 'pool'"),
        (_misaligned, MemoryPlanError, "starts at byte 1, inside an element of 32 bits"),
        (tmem_of, MemoryPlanError, "tmem-commit: 'tmem' allocates nothing"),
        (_held, MemoryPlanError, "tmem-held: the 512 columns of 'tmem' are never freed"),
        (lambda: tmem_of().dealloc(), MemoryPlanError, "tmem-dealloc: nothing is allocated"),
        (lambda: tmem_of().alloc((128, 513)), MemoryPlanError, "columns 0 to 513 of 512"),
        (lambda: tmem_of().alloc((2, 128, 8)), MemoryPlanError, "tmem-shape"),
        (lambda: tmem_of(cta_group=3), MemoryPlanError, "tmem-cta-group"),
        (lambda: T.TMEMPool(None), MemoryPlanError, "tmem-address"),
        (lambda: T.TMEMPool(5), KernelError, "takes a T.SMEMPool first, got 5"),
        (lambda: T.SMEMPool("base"), KernelError, "takes a shared buffer as ptr, got 'base'"),
        (lambda: T.SMEMPool().alloc((0,)), KernelError, "must be at least 1, got 0"),
        (lambda: T.SMEMPool().alloc(()), KernelError, "needs at least one dimension"),
        (lambda: T.SMEMPool().alloc((4,), scope="local"), KernelError, "got scope 'local'"),
        (lambda: T.SMEMPool().alloc((4,), "float7"), ExplorerError, "unknown dtype 'float7'"),
        (lambda: T.SMEMPool().alloc_mma((8, 24), F16), MemoryPlanError, "mma-swizzle"),
        (lambda: T.SMEMPool().move_base_to(-1), MemoryPlanError, "it must be at least 0"),
        (_stepped, KernelError, "only step 1 is supported"),
        (lambda: T.TMEMStages(3, 0, 32), KernelError, "takes a buffer in tensor memory"),
    ],
)
def test_refusals_name_the_line_and_the_numbers(
    use: Use, kind: type[ExplorerError], message: str
) -> None:
    found, text = refused(use)
    assert issubclass(found, kind)
    assert message in text


def test_pools_belong_into_kernels() -> None:
    for use in (T.SMEMPool, lambda: T.TMEMPool(None), lambda: T.TMEMStages(None, 0, 1)):
        with pytest.raises(KernelError, match="used outside a kernel"):
            use()
