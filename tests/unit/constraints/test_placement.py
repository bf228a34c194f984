"""Placement: the least footprint, its proof, alignment by use, and what may share bytes."""

from __future__ import annotations

import time
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.constraints.placement import RESOURCES, pack, place
from explorer.expr import const, evaluate
from explorer.ir.dtypes import DTYPES, dtype
from explorer.ir.nodes import Buffer
from explorer.machine import B200, CPU, H200, Machine, Scope
from explorer.memory.footprint import SlotForm, slot_bytes, slot_form
from explorer.memory.packing import allocated_columns
from explorer.memory.placement import ALWAYS, BARRIERS, TENSOR_ADDRESS
from explorer.passes import materialize
from explorer.program.arrange import Packing, broken_pair, in_order, least_bytes
from explorer.program.requests import Request
from explorer.program.sharing import Sharing
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import Launch
from tests.support.placed import STAGING, attention_program, staged_gemm
from tests.unit.constraints.test_rulebook import tensor_gemm, tensor_schedule

HEAD_128 = {"sizes": (128, 128, 128), "length": 1024}


def request(name: str, size: int, alignment: int = 16, scope: Scope = Scope.SHARED) -> Request:
    return Request(name, scope, SlotForm(size, size, alignment), 1, ALWAYS)


def packed(
    items: list[Request], sharing: list[tuple[str, str, Sharing]], resources: int = RESOURCES
) -> Packing:
    shared = {frozenset((one, other)): how for one, other, how in sharing}
    return pack(tuple(items), shared, resources=resources)


# ---------------------------------------------------------------- packing


def brute_force(items: list[Request], shared: dict[frozenset[str], Sharing]) -> int:
    """The least total over every order in which buffers sink to the lowest place that is free."""
    best = in_order(items)[1]
    for order in permutations(range(len(items))):
        offsets: dict[int, int] = {}
        for index in order:
            step = items[index].form.alignment_bytes
            for at in range(0, best, step):
                others = [
                    broken_pair((items[index], items[k]), shared, (at, offsets[k]))
                    for k in offsets
                ]
                if not any(others):
                    offsets[index] = at
                    break
            else:
                break
        if len(offsets) == len(items):
            best = min(best, max(offsets[k] + items[k].size_bytes for k in offsets))
    return best


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Request], list[tuple[str, str, Sharing]]]:
    count = draw(st.integers(1, 5))
    items = [
        request(f"b{k}", 16 * draw(st.integers(1, 6)), draw(st.sampled_from((16, 32, 64))))
        for k in range(count)
    ]
    sharing = [
        (f"b{a}", f"b{b}", draw(st.sampled_from(Sharing)))
        for a, b in combinations(range(count), 2)
        if draw(st.booleans())
    ]
    return items, sharing


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_the_footprint_is_the_least_of_all(
    problem: tuple[list[Request], list[tuple[str, str, Sharing]]],
) -> None:
    items, sharing = problem
    shared = {frozenset((a, b)): how for a, b, how in sharing}
    packing = packed(items, sharing)
    assert packing.proven
    assert broken_pair(items, shared, packing.offsets) is None
    assert all(
        at % i.form.alignment_bytes == 0 for at, i in zip(packing.offsets, items, strict=True)
    )
    assert packing.total_bytes == brute_force(items, shared)
    assert least_bytes(items, shared) <= packing.total_bytes <= in_order(items)[1]


def test_buffers_that_may_share_lie_apart_where_that_costs_nothing() -> None:
    items = [request("a", 64), request("b", 64), request("c", 32)]
    sharing = [("a", "b", Sharing.ANY), ("a", "c", Sharing.ANY)]
    packing = packed(items, sharing)
    assert packing.total_bytes == 96
    shared = {frozenset(("a", "b")): Sharing.ANY}
    assert broken_pair(items, shared, packing.offsets) is None  # a over b, c by itself


def hard_problem() -> tuple[list[Request], list[tuple[str, str, Sharing]]]:
    """Alignments that leave gaps, in which no arrangement meets the bound."""
    items = [request(f"b{k}", 16 * (7 + 5 * k % 11), 16 << (k % 4)) for k in range(12)]
    names = [item.name for item in items]
    sharing = [
        (a, b, Sharing.ANY)
        for a, b in combinations(names, 2)
        if (int(a[1:]) * 7 + int(b[1:])) % 3 == 0
    ]
    return items, sharing


def test_what_the_solver_leaves_open_is_not_proven_and_still_an_answer() -> None:
    items, sharing = hard_problem()
    packing = packed(items, sharing, resources=1)
    assert not packing.proven
    shared = {frozenset((a, b)): how for a, b, how in sharing}
    assert broken_pair(items, shared, packing.offsets) is None
    assert packing.total_bytes <= in_order(items)[1]


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize("blocks", [0, 2])
def test_attention_places_the_staging_over_the_queries_in_a_second(blocks: int) -> None:
    program = attention_program(H200, Launch(blocks), **HEAD_128)
    begin = time.perf_counter()
    placement = place(program, H200)
    assert time.perf_counter() - begin < 1.0
    queries, staging = placement.buffer("Q_shared"), placement.buffer(STAGING)
    assert queries.offset_bytes == staging.offset_bytes
    assert queries.size_bytes == staging.size_bytes == 128 * 128 * 2
    assert placement.sharers("Q_shared") == {STAGING}
    assert placement.sharers("K_shared") == placement.sharers(BARRIERS) == frozenset()
    found = placement.footprint(Scope.SHARED)
    assert (found.total_bytes, found.proven) == (5 * 32768 + 112, True)
    assert found.bump_bytes == 6 * 32768 + 112


def test_queries_released_before_the_store_keep_their_bytes() -> None:
    """The next tile's queries would land in what the store still reads."""
    early = attention_program(H200, Launch(2), release_last=False, **HEAD_128)
    assert place(early, H200).sharers(STAGING) == frozenset()
    once = attention_program(H200, Launch(0), release_last=False, **HEAD_128)
    assert place(once, H200).sharers(STAGING) == {"Q_shared"}


# ---------------------------------------------------------------- the epilogue of a GEMM


def test_staging_lies_over_the_ring_where_a_block_has_one_tile() -> None:
    placement = place(staged_gemm(), H200)
    assert placement.sharers("C_stage") & {"A_shared", "B_shared"}


def test_a_persistent_block_loads_ahead_of_the_store() -> None:
    assert place(staged_gemm(launch=Launch(2)), H200).sharers("C_stage") == frozenset()


def test_a_host_thread_walks_many_tiles_in_any_launch() -> None:
    assert place(staged_gemm(CPU), CPU).sharers("C_stage") == frozenset()


def test_another_consumer_may_still_read_the_ring() -> None:
    assert place(staged_gemm(consumers=2), H200).sharers("C_stage") == frozenset()


# ---------------------------------------------------------------- alignment by use (C19)


@pytest.mark.parametrize(
    ("columns", "bulk", "alignment"),
    [
        (64, True, 1024),
        (32, True, 512),
        (16, True, 256),
        (24, True, 128),
        (24, False, 16),
        (64, False, 1024),
    ],
)
def test_c19_a_tile_is_aligned_by_its_use(columns: int, bulk: bool, alignment: int) -> None:
    tile = Buffer("tile", (const(64), const(columns)), dtype("bfloat16"), Scope.SHARED)
    form = slot_form(tile, H200, bulk=bulk)
    assert form.alignment_bytes == alignment
    pad = Request("pad", Scope.SHARED, SlotForm(64, 64, 16), 1, ALWAYS)
    (_, at), total = in_order([pad, Request("tile", Scope.SHARED, form, 1, ALWAYS)])
    assert at == max(64, alignment)
    assert total == at + 64 * columns * 2


def test_c19_the_solver_fills_the_gap_before_a_swizzled_tile() -> None:
    pad, tile = request("pad", 64), request("tile", 8192, 1024)
    assert in_order([pad, tile])[1] == 9216
    assert packed([pad, tile], []).total_bytes == 8192 + 64


@pytest.mark.parametrize("machine", [H200, B200, CPU], ids=lambda m: m.name)
@pytest.mark.parametrize("element", DTYPES.values(), ids=str)
def test_c21_every_extent_and_type_of_a_buffer_has_a_form(
    machine: Machine, element: object
) -> None:
    """Versions of bulk copies are multiples of 128 bytes apart and aligned for their swizzle; no
    form takes more than the capacity rule counts."""
    for columns in range(1, 257):
        for rows in (1, 4, 64):
            shape = (const(rows), const(columns))
            buffer = Buffer("tile", shape, element, Scope.SHARED)
            form = slot_form(buffer, machine, bulk=True)
            assert form.pitch_bytes % form.alignment_bytes == 0
            assert machine.slots or form.pitch_bytes % 128 == 0
            assert 0 < form.version_bytes <= form.pitch_bytes
            assert form.pitch_bytes <= slot_bytes(buffer, machine).__index__()
            if form.row_bytes:
                assert form.boxes * form.rows * form.row_bytes == form.version_bytes


# ---------------------------------------------------------------- tensor memory


def test_tensor_memory_has_a_place_and_its_address_a_word() -> None:
    kernel = tensor_gemm()
    program = materialize(kernel, Schedule(bind(kernel, "b200", {}), tensor_schedule()), B200)
    placement = place(program, B200)
    assert placement.buffer("acc").scope == Scope.TMEM
    columns = placement.footprint(Scope.TMEM)
    assert columns.total_bytes == columns.allocated_bytes == 128 * 512
    assert placement.buffer(TENSOR_ADDRESS).size_bytes == 4
    assert placement.footprint(Scope.SHARED).total_bytes == 6 * 16384 + 8 * 8 + 4


@pytest.mark.parametrize(
    ("columns", "used", "allocated"),
    [((384, 4, 4, 4), 396, 512), ((384, 4, 8), 396, 512), ((20,), 20, 32), ((33,), 33, 64)],
)
def test_c23_tensor_memory_is_one_arena(
    columns: tuple[int, ...], used: int, allocated: int
) -> None:
    memory = B200.tensor_memory
    assert memory is not None
    items = []
    for index, count in enumerate(columns):
        shape = (const(128), const(count))
        buffer = Buffer(f"t{index}", shape, dtype("float32"), Scope.TMEM)
        items.append(Request(buffer.name, Scope.TMEM, slot_form(buffer, B200), 1, ALWAYS))
    packing = packed(items, [])
    assert packing.total_bytes == used * 512
    assert evaluate(allocated_columns(used, memory)) == allocated
