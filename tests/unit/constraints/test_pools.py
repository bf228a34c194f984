"""Rules of pools: offsets that an author chose, against lives, versions, uses and machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from attrs import evolve

import explorer.lang as T
from explorer.constraints import capacity, check_parts, pools
from explorer.constraints.rule import Requirement
from explorer.errors import IllegalSchedule
from explorer.expr import const, holds
from explorer.ir.nodes import Kernel
from explorer.machine import B200, CPU, H200, Machine, Scope
from explorer.memory.placement import BARRIERS
from explorer.memory.places import pool_regions
from explorer.passes import materialize
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import Extensions
from explorer.schedule.plan import Plan, PlanPipeline
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.unit.constraints.kernels import A, C, R, W

F16, F32 = T.float16, T.float32
Formula = Callable[[Plan, Machine], Iterator[Requirement]]


def plan_of(kernel: Kernel, depths: dict[str, int] | None = None) -> Plan:
    """A plan without roles, each named buffer in a pipeline of its own."""
    rings = (depths or {}).items()
    pipelines = tuple(PlanPipeline(name, (name,), const(depth)) for name, depth in rings)
    return Plan(kernel, const(4), (), pipelines, ())


def broken(
    rule: Formula,
    kernel: Kernel,
    machine: Machine = H200,
    depths: dict[str, int] | None = None,
) -> list[str]:
    plan = plan_of(kernel, depths)
    return [each.text({}) for each in rule(plan, machine) if not holds(each.holds)]


def staged(offset: int, carried: bool = False) -> T.TracedKernel:
    """Load into `a`, then stage in `b` at a byte offset; `carried` reads `a` once more."""

    @T.prim_func
    def kernel(X: T.Tensor((64, 64), F16)):
        with T.Kernel(1):
            pool = T.SMEMPool()
            a = pool.alloc_mma((64, 64), F16)
            pool.move_base_to(offset)
            b = pool.alloc_mma((64, 64), F16)
            pool.commit(65536)
            held = T.alloc_fragment((64, 64), F16)
            T.copy(X, a)
            T.copy(a, held)
            T.copy(held, b)
            T.copy(b, X)
            if carried:
                T.copy(a, held)

    return kernel


def test_shared_bytes_of_disjoint_lives_are_accepted() -> None:
    assert broken(pools.pool_overlap, staged(0)) == []
    assert broken(pools.pool_overlap, staged(1024)) == []


def test_shared_bytes_of_values_held_at_once_are_refused() -> None:
    (message,) = broken(pools.pool_overlap, staged(1024, carried=True))
    assert message == (
        "a x 1 takes bytes 0 to 8192, b x 1 takes 1024 to 9216, and both hold values at once"
    )
    assert broken(pools.pool_overlap, staged(8192, carried=True)) == []


def test_versions_take_the_bytes_behind_a_buffer() -> None:
    kernel = staged(16384, carried=True)
    assert broken(pools.pool_overlap, kernel, depths={"a": 2}) == []
    (message,) = broken(pools.pool_overlap, kernel, depths={"a": 3})
    assert message.startswith("a x 3 takes bytes 0 to 24576, b x 1 takes 16384")
    (message,) = broken(pools.pool_conditions, kernel, depths={"b": 7})
    assert message == "b x 7 ends at 73728, pool pool has 65536 bytes"


def test_the_word_of_tensor_memory_is_held_throughout() -> None:
    def kernel(back: bool) -> T.TracedKernel:
        @T.prim_func
        def use(X: T.Tensor((64,), F32)):
            with T.Kernel(1):
                pool = T.SMEMPool()
                tmem = T.TMEMPool(pool, 128)
                if back:
                    pool.move_base_to(0)
                a = pool.alloc((64,), align=4)
                pool.commit()
                tmem.commit()
                T.copy(X, a)
                tmem.dealloc()

        return use

    assert broken(pools.pool_overlap, kernel(False)) == []
    (message,) = broken(pools.pool_overlap, kernel(True))
    assert message.startswith("tmem_addr x 1 takes bytes 0 to 4, a x 1 takes 0 to 256")


def tensor(columns: int, second: int) -> T.TracedKernel:
    @T.prim_func
    def kernel(X: T.Tensor((128, 64), F32)):
        with T.Kernel(1):
            tmem = T.TMEMPool(None, columns, tmem_addr=0)
            first = tmem.alloc((128, 64))
            tmem.move_base_to(second)
            other = tmem.alloc((128, 64))
            tmem.commit()
            T.copy(X, first)
            T.copy(X, other)
            T.copy(first, X)
            T.copy(other, X)
            tmem.dealloc()

    return kernel


def test_columns_are_places_too() -> None:
    assert broken(pools.pool_overlap, tensor(128, 64), B200) == []
    (message,) = broken(pools.pool_overlap, tensor(128, 32), B200)
    assert message.startswith("first x 1 takes columns 0 to 64, other x 1 takes 32 to 96")
    regions = pool_regions(tensor(128, 64).pools, B200)
    assert regions.offsets == (("first", 0), ("other", 64 * 512))


def test_the_hardware_allocates_powers_of_two() -> None:
    assert broken(pools.pool_columns, tensor(128, 64), B200) == []
    (message,) = broken(pools.pool_columns, tensor(192, 64), B200)
    assert message.endswith("allocates 192 columns, which is not one of 32, 64, 128, 256, 512")


def test_lanes_and_columns_of_pools_are_counted_once() -> None:
    def kernel(rows: int, columns: int) -> T.TracedKernel:
        @T.prim_func
        def use(X: T.Tensor((rows, 256), F32)):
            with T.Kernel(1):
                tmem = T.TMEMPool(None, columns, tmem_addr=0)
                first = tmem.alloc((rows, 256))
                tmem.move_base_to(0)
                again = tmem.alloc((rows, 256))
                own = T.alloc_tmem((rows, 128), F32)
                tmem.commit()
                T.copy(X, first)
                T.copy(first, X)
                T.copy(X, again)
                T.copy(again, X)
                T.clear(own)
                tmem.dealloc()

        return use

    assert broken(capacity.tensor_capacity, kernel(128, 256), B200) == []
    (message,) = broken(capacity.tensor_capacity, kernel(128, 512), B200)
    assert message == "pool tmem 512 + own 1 x 128 = 640 columns of tensor memory > 512"
    found = broken(pools.pool_columns, kernel(160, 256), B200)
    assert found == ["first takes 160 lanes of 128", "again takes 160 lanes of 128"]


def in_a_buffer(touched: bool) -> T.TracedKernel:
    @T.prim_func
    def kernel(X: T.Tensor((64,), F32), raw_out: T.Tensor((512,), "uint8")):
        with T.Kernel(1):
            raw = T.alloc_shared((512,), "uint8")
            pool = T.SMEMPool(raw)
            a = pool.alloc((64,), align=128)
            T.copy(X, a)
            if touched:
                T.copy(raw, raw_out)
            T.copy(a, X)

    return kernel


def test_a_buffer_that_a_pool_divides_is_held_only_where_it_is_touched() -> None:
    assert broken(pools.pool_overlap, in_a_buffer(False)) == []
    (message,) = broken(pools.pool_overlap, in_a_buffer(True))
    assert message.startswith("a x 1 takes bytes 0 to 256, raw x 1 takes 0 to 512")


def test_conditions_on_open_sizes_are_rules_once_they_are_known() -> None:
    rows = T.Param("rows")

    @T.prim_func
    def kernel(X: T.Tensor((64, 64), F16)):
        with T.Kernel(1):
            pool = T.SMEMPool()
            small = pool.alloc((rows, 8), "uint8")
            tile = pool.alloc_mma((rows, 64), F16, align=0)
            pool.commit()
            T.copy(X[0:rows, 0:64], tile)
            T.clear(small)

    assert broken(pools.pool_conditions, kernel.at(rows=128)) == []
    found = broken(pools.pool_conditions, kernel.at(rows=64))
    assert any("its swizzle repeats every 1024 B" in message for message in found)
    found = broken(pools.pool_conditions, kernel.at(rows=12))
    assert any("(mma-swizzle)" in message for message in found)


def multiplied(mode: str = "auto", align: int = 128, by_column: bool = False) -> T.TracedKernel:
    """A gemm of `a`, allocated with a swizzle mode, and a plain tile that follows 16 bytes."""

    @T.prim_func
    def kernel(X: T.Tensor((64, 64), F16), Y: T.Tensor((64, 64), F16)):
        with T.Kernel(1):
            pool = T.SMEMPool()
            a = pool.alloc_mma((64, 64), F16, swizzle_mode=mode)
            b = pool.alloc_mma((64, 64), F16)
            pool.alloc((16,), "uint8")
            plain = pool.alloc(
                (64, 64), F16, strides=(1, 64) if by_column else (64, 1), align=align
            )
            pool.commit()
            acc = T.alloc_fragment((64, 64), F32)
            T.copy(X, a)
            T.copy(Y, b)
            T.gemm(a, b, acc, clear_accum=True)
            T.copy(acc, plain)
            T.copy(plain, Y)

    return kernel


def test_what_the_emitters_can_lay_out() -> None:
    assert broken(pools.pool_layout, multiplied()) == []
    found = broken(pools.pool_layout, multiplied("none"))
    assert found == ["a is an operand of gemm_acc without a swizzle"]
    found = broken(pools.pool_layout, multiplied(align=0))
    assert found == ["plain starts at byte 16400, copy_Y needs a multiple of 128"]
    found = broken(pools.pool_layout, multiplied(by_column=True))
    assert found == ["plain has strides or a layout of its own, which nothing emits"]
    assert broken(pools.pool_layout, multiplied("none", align=0), CPU) == []


@pytest.mark.parametrize(("shape", "count"), [((512, 128), 0), ((128, 512), 1)])
def test_plain_rows_of_bulk_copies_are_one_box(shape: tuple[int, int], count: int) -> None:
    @T.prim_func
    def kernel(X: T.Tensor(shape, F16)):
        with T.Kernel(1):
            pool = T.SMEMPool()
            plain = pool.alloc(shape, F16)
            pool.commit()
            T.copy(X, plain)

    assert len(broken(pools.pool_layout, kernel)) == count


@pytest.mark.parametrize(("columns", "count"), [(64, 0), (128, 1)])
def test_several_swizzled_tiles_in_one_buffer(columns: int, count: int) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((2, 64, columns), F16)):
        with T.Kernel(1):
            pool = T.SMEMPool()
            tiles = pool.alloc_mma((2, 64, columns), F16)
            pool.commit()
            T.copy(X, tiles)

    assert len(broken(pools.pool_layout, kernel)) == count


# ---------------------------------------------------------------- programs


def ring(stages: int, at: int, release_late: bool = True) -> tuple[Kernel, WSSchedule]:
    """A ring in a pool, and a staging buffer at a byte offset that a consumer writes after it."""

    @T.prim_func
    def kernel(X: T.Tensor((256, 64), F16), Y: T.Tensor((256, 64), F16)):
        with T.Kernel(1, threads=256):
            pool = T.SMEMPool()
            As = pool.alloc_mma((64, 64), F16)
            pool.move_base_to(at)
            out = pool.alloc_mma((64, 64), F16)
            pool.commit(4 * 8192)
            frag = T.alloc_fragment((64, 64), F16)
            for lk in T.Pipelined(4, num_stages=8, annotations={T.WSID: "lk"}):
                T.copy(X[lk * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, frag, annotations={T.WSID: "cfr"})
            T.copy(frag, out, annotations={T.WSID: "stage"})
            T.copy(out, Y[0, 0], annotations={T.WSID: "store"})

    roles = [
        WSRole("P", warps_lo=0, warps_hi=1, max_nreg=0),
        WSRole("C", warps_lo=4, warps_hi=8, max_nreg=0),
    ]
    schedule = WSSchedule(
        8,
        roles,
        [WSPipeline("buf", ["As"], stages)],
        [
            WSScope("lk", {"P": [A("buf"), "cin", C("buf")], "C": [W("buf"), "cfr", R("buf")]}),
            WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk", "stage", "store"]}),
        ],
    )
    return kernel, schedule


def placed(kernel: Kernel, schedule: WSSchedule) -> dict[str, int]:
    """Offsets in the program's shared memory."""
    bound = Schedule(bind(kernel, "h200", {}), schedule, Extensions())
    program = materialize(kernel, bound, H200)
    assert program.placement is not None
    return {each.buffer: each.offset_bytes for each in program.placement.buffers}


def test_programs_take_the_offsets_of_the_pool() -> None:
    kernel, schedule = ring(2, 16384)
    assert check_parts(kernel, schedule, Extensions(), H200).ok
    assert placed(kernel, schedule) == {"As": 0, "out": 16384, BARRIERS: 32768}
    kernel, schedule = ring(2, 8192)  # over the ring's second version, which is done by then
    assert check_parts(kernel, schedule, Extensions(), H200).ok
    assert placed(kernel, schedule) == {"As": 0, "out": 8192, BARRIERS: 32768}


def test_what_nothing_touches_may_lie_anywhere() -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64, 64), F16)):
        with T.Kernel(1, threads=128):
            pool = T.SMEMPool()
            pool.alloc_mma((64, 64), F16)
            pool.move_base_to(0)
            a = pool.alloc_mma((64, 64), F16)
            pool.commit()
            held = T.alloc_fragment((64, 64), F16)
            T.copy(X, held, annotations={T.WSID: "load"})
            T.copy(held, a, annotations={T.WSID: "put"})
            T.copy(a, X, annotations={T.WSID: "store"})

    assert broken(pools.pool_overlap, kernel) == []
    roles = [WSRole("C", warps_lo=0, warps_hi=4)]
    root = {"C": ["load", "put", "store"]}
    schedule = WSSchedule(4, roles, [], [WSScope(WSScope.ROOT, root)])
    assert placed(kernel, schedule) == {"a": 0}


def test_two_blocks_of_a_unit_have_a_pool_each() -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64, 64), F16)):
        with T.Kernel(1):
            pool = T.SMEMPool()
            a = pool.alloc_mma((64, 64), F16)
            pool.commit(128 * 1024)
            T.copy(X, a)

    plan = evolve(plan_of(kernel), blocks=const(2 * H200.units))
    found = [each for each in capacity.unit_residency(plan, H200) if not holds(each.holds)]
    assert [each.text({}) for each in found] == [
        "2 blocks x 132096 B > 233472 B of a unit's shared memory"
    ]


def test_sharing_that_no_barrier_hands_over_is_refused() -> None:
    @T.prim_func
    def kernel(X: T.Tensor((256, 64), F16), Y: T.Tensor((256, 64), F16)):
        with T.Kernel(1, threads=256):
            pool = T.SMEMPool()
            a = pool.alloc_mma((64, 64), F16)
            pool.move_base_to(0)
            b = pool.alloc_mma((64, 64), F16)
            pool.commit()
            one = T.alloc_fragment((64, 64), F16)
            two = T.alloc_fragment((64, 64), F16)
            T.copy(X[0:64, 0:64], one, annotations={T.WSID: "load"})
            T.copy(one, a, annotations={T.WSID: "put"})
            T.copy(a, one, annotations={T.WSID: "get"})
            T.copy(one, Y[0, 0], annotations={T.WSID: "first"})
            T.copy(X[64:128, 0:64], two, annotations={T.WSID: "load_2"})
            T.copy(two, b, annotations={T.WSID: "put_2"})
            T.copy(b, Y[64, 0], annotations={T.WSID: "second"})

    roles = [WSRole("P", warps_lo=0, warps_hi=4), WSRole("C", warps_lo=4, warps_hi=8)]
    root = {"P": ["load", "put", "get", "first"], "C": ["load_2", "put_2", "second"]}
    schedule = WSSchedule(8, roles, [], [WSScope(WSScope.ROOT, root)])
    bound = Schedule(bind(kernel, "h200", {}), schedule, Extensions())
    with pytest.raises(IllegalSchedule, match="pool-overlap: a and b share bytes"):
        materialize(kernel, bound, H200)
    assert Scope.SHARED in dict(pool_regions(kernel.pools, H200).sizes)
