"""The annotation and the whole kernel: what is printed, and what is refused."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from explorer.errors import KernelError, ScheduleError
from explorer.export import export_kernel_tilelang, export_tilelang
from explorer.export.limits import refusals
from explorer.export.persistent import tile_loop
from explorer.export.statements import StatementPrinter
from explorer.expr import TRUE, Var, const
from explorer.ir.dtypes import dtype
from explorer.ir.interpreter import run
from explorer.ir.nodes import (
    Buffer,
    Define,
    Element,
    Fill,
    Gemm,
    Group,
    If,
    Index,
    Kernel,
    Literal,
    Loop,
    Map,
    Reduce,
    Region,
    Store,
    While,
    whole,
)
from explorer.machine import H200, Scope
from explorer.schedule import ws
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixLag,
    MatrixTile,
    OpStage,
    Raster,
    Route,
    Side,
    SideMode,
    Split,
    StagedStore,
    Swapped,
)
from explorer.space import build_space
from tests.kernels.gemm import gemm as traced
from tests.unit.export.kernels import K, M, N, gemm, producer_consumer

LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]


def paste(text: str, kernel: Kernel) -> dict[str, Any]:
    """Execute a pasted block with this package's own schedule classes."""
    seen: dict[str, Any] = {"min_blocks": None, "swizzle": None}

    def allocate(shape: tuple[int, ...], kind: str) -> Any:
        return SimpleNamespace(name="C_staging", shape=shape, dtype=kind)

    language = SimpleNamespace(
        **{name: getattr(ws, name) for name in dir(ws) if name.startswith("WS")},
        annotate_ws_schedule=lambda schedule: seen.__setitem__("schedule", schedule),
        annotate_min_blocks_per_sm=lambda count: seen.__setitem__("min_blocks", count),
        use_swizzle=lambda panel, order: seen.__setitem__("swizzle", (panel, order)),
        alloc_shared=allocate,
        ceildiv=lambda a, b: -(-a // b),
        bfloat16="bfloat16",
    )
    names = {buffer.name: buffer for buffer in kernel.buffers}
    exec(compile(text, "pasted", "exec"), {"T": language, **names}, seen)
    return seen


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_pasted_block_gives_back_the_schedule(layout: tuple[bool, bool], staged: bool) -> None:
    kernel = gemm(*layout)
    schedule = producer_consumer(kernel, depth=4, warps=8, staged=staged)
    seen = paste(export_tilelang(kernel, schedule), kernel)
    assert seen["schedule"] == schedule.ws
    assert {name: seen[name] for name in kernel.params} == schedule.params
    assert seen["threads"] == 384
    assert seen["min_blocks"] == 1
    if staged:
        assert seen["C_staging"].shape == (128, 128)


def test_a_schedule_without_requests_asks_for_no_launch_bound() -> None:
    kernel = gemm()
    schedule = producer_consumer(kernel)
    roles = tuple(evolve(role, max_nreg=0) for role in schedule.ws.roles)
    bare = evolve(schedule, ws=evolve(schedule.ws, roles=roles))
    seen = paste(export_tilelang(kernel, bare), kernel)
    assert seen["schedule"] == bare.ws
    assert seen["min_blocks"] is None


@pytest.mark.parametrize(
    ("raster", "expected"),
    [(Raster.ROW, None), (Raster.COLUMN, (4, "row")), (Raster.GROUPED, (2, "row"))],
)
def test_a_raster_becomes_a_swizzle(raster: Raster, expected: object) -> None:
    kernel = gemm()
    schedule = producer_consumer(kernel, extensions=Extensions(launch=Launch(0, raster, 2)))
    assert paste(export_tilelang(kernel, schedule), kernel)["swizzle"] == expected


def test_the_pasted_block_shows_the_body_with_its_ids() -> None:
    kernel = gemm()
    text = export_tilelang(kernel, producer_consumer(kernel, staged=True))
    assert '#   T.copy(acc, C_staging, annotations={T.WSID: "store_stage"})' in text
    assert "policy=T.GemmWarpPolicy.FullRow" in text
    assert "with T.Kernel(T.ceildiv(1024, block_N), T.ceildiv(512, block_M)" in text


def test_a_turned_accumulator_is_allocated_anew() -> None:
    """What is swapped is another gemm there: its accumulator, its operands, its store."""
    kernel = gemm(transpose_b=False)
    schedule = producer_consumer(kernel, extensions=Extensions(swapped=(Swapped("mma"),)))
    text = export_tilelang(kernel, schedule)
    assert "acc = T.alloc_fragment((block_N, block_M), T.float32)  # in place of" in text
    assert "T.gemm(B_shared, A_shared, acc, policy=T.GemmWarpPolicy.FullRow, transpose_A" in text
    assert "C[(by * block_M) + store_0, (bx * block_N) + store_1] = acc[store_1, store_0]" in text


def test_the_whole_kernel() -> None:
    kernel = gemm()
    text = export_kernel_tilelang(kernel, producer_consumer(kernel, depth=2, warps=4))
    body = text[text.index("        T.clear") :]
    assert body == (
        '        T.clear(acc, annotations={T.WSID: "clear_acc"})\n'
        "        for k in T.Pipelined(8, num_stages=3, "
        'annotations={T.WSID: "loop_k"}):\n'
        "            T.copy(A[by * 128, k * 64], A_shared, "
        'annotations={T.WSID: "copy_A"})\n'
        "            T.copy(B[bx * 128, k * 64], B_shared, "
        'annotations={T.WSID: "copy_B"})\n'
        "            T.gemm(A_shared, B_shared, acc, policy=T.GemmWarpPolicy.FullRow, "
        'transpose_B=True, annotations={T.WSID: "mma"})\n'
        '        T.copy(acc, C[by * 128, bx * 128], annotations={T.WSID: "store"})\n'
    )
    assert "with T.Kernel(8, 4, threads=256) as (bx, by):" in text
    ast.parse(text)


def test_routes_are_options_of_the_copies() -> None:
    kernel = gemm()
    routes = (Route("copy_A", CopyRoute.ASYNC), Route("copy_B", CopyRoute.ELEMENT))
    text = export_kernel_tilelang(
        kernel, producer_consumer(kernel, extensions=Extensions(routes=routes))
    )
    assert 'A_shared, prefer_instruction="cp_async", annotations' in text
    assert "B_shared, disable_tma=True, annotations" in text


# ---------------------------------------------------------------- persistent launches


@pytest.mark.parametrize("raster", list(Raster))
@pytest.mark.parametrize("blocks", [1, 3, 4, 40])
def test_the_tile_loop_computes_the_same(raster: Raster, blocks: int) -> None:
    kernel = gemm().at(block_M=256, block_N=256, block_K=256)
    schedule = producer_consumer(gemm())
    looped, _ = tile_loop(kernel, schedule.ws, Launch(blocks, raster, 3))
    rng = np.random.default_rng(0)
    kind = dtype("bfloat16").numpy
    inputs = {
        "A": rng.standard_normal((M, K)).astype(kind),
        "B": rng.standard_normal((N, K)).astype(kind),
    }
    np.testing.assert_array_equal(run(looped, inputs)["C"], run(kernel, inputs)["C"])


def test_the_tile_loop_takes_the_root_of_every_role() -> None:
    kernel = gemm()
    schedule = producer_consumer(kernel, extensions=Extensions(launch=Launch(132)))
    seen = paste(export_tilelang(kernel, schedule), kernel)["schedule"]
    root, waves = seen.scope(ws.WSScope.ROOT), seen.scope("waves")
    assert root.bodies == (
        ("producer", (ws.WSOpRef("waves"),)),
        ("consumer", (ws.WSOpRef("waves"),)),
    )
    assert [entry.id for entry in waves.body("producer")] == ["tile_indices", "loop_k"]
    assert seen.scope("loop_k") == schedule.ws.scope("loop_k")


def test_names_of_the_tile_loop_do_not_clash() -> None:
    plain = gemm().at(block_M=256, block_N=256, block_K=256)
    clashing = evolve(
        plain, body=(Fill("waves", whole(plain.buffers[2]), Literal(0)), *plain.body)
    )
    looped, _ = tile_loop(clashing, producer_consumer(gemm()).ws, Launch(3))
    assert looped.body[0].id == "waves_"


# ---------------------------------------------------------------- refusals


def refused(extensions: Extensions) -> str:
    kernel = gemm()
    schedule = producer_consumer(kernel, extensions=extensions)
    with pytest.raises(ScheduleError) as caught:
        export_tilelang(kernel, schedule)
    assert "\n" not in str(caught.value)
    with pytest.raises(ScheduleError):
        export_kernel_tilelang(kernel, schedule)
    return str(caught.value)


def test_split_consumers_are_exported_as_one_role() -> None:
    """Same bodies, neighbouring warps, equal requests: one role of all their warps."""
    kernel, schedule = split_gemm()
    text = export_tilelang(kernel, schedule)
    assert 'T.WSRole("consumer", warps_lo=4, warps_hi=12, max_nreg=208)' in text
    assert "consumer_0" not in text and "consumer_1" not in text
    apart = evolve(schedule, ws=with_request(schedule.ws, "consumer_1", 200))
    with pytest.raises(ScheduleError, match="one role with 8 warps can be expressed"):
        export_tilelang(kernel, apart)


def split_gemm() -> tuple[Kernel, Schedule]:
    kernel = traced(512, 512, 512, "bfloat16")
    tiles = {"block_M": (128,), "block_N": (128,), "block_K": (64,)}
    space = build_space(kernel, H200, tiles)
    titles = [skeleton.title for skeleton in space.skeletons]
    values = {choice.name: choice.domain[0] for choice in space.choices}
    values |= {
        "skeleton": titles.index(
            "roles producer+consumer_0+consumer_1; rings A_shared+B_shared; direct epilogue"
        ),
        "nreg_consumer": 208,
        "warps_consumer": 4,
    }
    return kernel, space.candidate(values)


def with_request(made: ws.WSSchedule, name: str, nreg: int) -> ws.WSSchedule:
    roles = tuple(evolve(r, max_nreg=nreg) if r.name == name else r for r in made.roles)
    return evolve(made, roles=roles)


def test_what_tilelang_cannot_say_is_refused_by_name() -> None:
    pair = ("producer", "consumer")
    shared = Side("A_B", False, SideMode.SHARED, pair)
    message = refused(Extensions(sides=(shared,), splits=(Split(pair),)))
    assert "shared consumer side of pipeline 'A_B' (producer, consumer)" in message
    assert "one role with 9 warps" in message
    alternating = Side("A_B", False, SideMode.ALTERNATING, pair)
    assert "alternating consumer side" in refused(Extensions(sides=(alternating,)))
    assert "row split over roles" in refused(Extensions(splits=(Split(pair),)))
    assert "lag 1 of gemm 'mma'" in refused(Extensions(lags=(MatrixLag("mma", 1),)))
    stage = OpStage("consumer", "mma", 1)
    assert "its spans are at stage 0" in refused(Extensions(stages=(stage,)))
    outside = OpStage("consumer", "store", 1)
    assert "it is in no span" in refused(Extensions(stages=(outside,)))
    assert "clusters of 2 blocks" in refused(Extensions(launch=Launch(cluster=2)))
    pieces = StagedStore("store", "C_staging", pieces=2)
    assert "through C_staging in 2 pieces" in refused(Extensions(staged=(pieces,)))
    assert "reduction in 3 parts" in refused(Extensions(launch=Launch(split=3)))
    assert "leave out the stream" in refused(Extensions(launch=Launch(132, stream=True)))


def test_an_order_token_and_a_cpu_schedule_are_refused() -> None:
    kernel = gemm()
    schedule = producer_consumer(kernel)
    token = ws.WSPipeline("turn", [], 1)
    ordered = evolve(schedule, ws=evolve(schedule.ws, pipelines=(*schedule.ws.pipelines, token)))
    with pytest.raises(ScheduleError, match="order token 'turn'"):
        export_tilelang(kernel, ordered)
    with pytest.raises(ScheduleError, match="machine 'cpu' has 1 thread"):
        export_tilelang(kernel, producer_consumer(kernel, machine="cpu"))


def test_what_only_changes_speed_is_no_refusal() -> None:
    extensions = Extensions(
        lags=(MatrixLag("mma", 0),),
        matrix=(MatrixTile("mma", 64, 128),),
        stages=(OpStage("consumer", "mma", 0),),
    )
    assert refusals(producer_consumer(gemm(), extensions=extensions)) == ()


def test_another_kernels_schedule_is_refused() -> None:
    with pytest.raises(ScheduleError, match="bound to another"):
        export_tilelang(gemm(True, False), producer_consumer(gemm()))


@pytest.mark.parametrize("name", ["lambda", "T", "a-b", "x\n    import os"])
def test_no_name_reaches_the_source_unchecked(name: str) -> None:
    kernel = evolve(gemm(), name=name)
    with pytest.raises(ScheduleError, match="identifier"):
        export_kernel_tilelang(kernel, producer_consumer(kernel))
    op = Fill('x"}); import os; ({"', gemm().body[0].dst, Literal(0))  # type: ignore[union-attr]
    (line,) = StatementPrinter().lines(op, "")
    ast.parse(line)
    assert '\\"});' in line


def test_a_run_time_size_is_refused() -> None:
    kernel = gemm()
    tensor = evolve(kernel.tensors[0], shape=(Var("m"), const(K)))
    sized = evolve(kernel, tensors=(tensor, *kernel.tensors[1:]), scalars=("m",))
    with pytest.raises(KernelError, match="run-time size m"):
        export_kernel_tilelang(sized, producer_consumer(sized))


# ---------------------------------------------------------------- statements

TILE = Buffer("acc", (const(8), const(16)), dtype("float32"), Scope.FRAGMENT)
ROW = Buffer("row", (const(8),), dtype("float32"), Scope.FRAGMENT)
HERE = Element(TILE, (Var("i"), Var("j")))


def printed(*statements: Any) -> str:
    return "\n".join(StatementPrinter().body(statements, ""))


def test_element_wise_bodies() -> None:
    store = Store(TILE, (Var("i"), Var("j")), HERE)
    guarded = Store(ROW, (Var("i"),), HERE, atomic=True)
    axes = (("i", const(8)), ("j", const(16)))
    assert printed(Map("scale", axes, (store, guarded), (TRUE, Var("j") < 4))) == (
        'for i, j in T.Parallel(8, 16, annotations={T.WSID: "scale"}):\n'
        "    acc[i, j] = acc[i, j]\n"
        "    if j < 4:\n"
        "        T.atomic_add(row[i], acc[i, j])"
    )


def test_forms_without_annotations_are_wrapped() -> None:
    assert printed(Reduce("top", "max", whole(TILE), whole(ROW), 1, clear=False)) == (
        'with T.ws_op("top"):\n    T.reduce_max(acc, row, dim=1, clear=False)'
    )
    assert printed(Define("size", "n", Index(Var("bx") + 1))) == (
        'with T.ws_op("size"):\n    n = bx + 1'
    )
    assert printed(While("walk", Var("n") < 4, (Fill("fill", whole(TILE), Literal(1.0)),))) == (
        'with T.ws_op("walk"):\n'
        "    while n < 4:\n"
        '        T.fill(acc, 1.0, annotations={T.WSID: "fill"})'
    )
    grouped = Group(
        "both", (Define("a", "n", Index(const(1))), Fill("f", whole(TILE), Literal(0)))
    )
    assert printed(grouped) == 'with T.ws_op("both"):\n    n = 1\n    T.clear(acc)'


def test_loops_and_conditions() -> None:
    body = (Gemm("mma", whole(TILE), whole(TILE), whole(TILE), True, False, Var("k") < 1),)
    text = printed(
        Loop("outer", "k", const(2), const(4), "unrolled", 0, (If("some", Var("k") < 5, body),))
    )
    assert text == (
        'for k in T.unroll(2, 6, annotations={T.WSID: "outer"}):\n'
        "    if k < 5:\n"
        "        T.gemm(acc, acc, acc, policy=T.GemmWarpPolicy.FullRow, transpose_A=True, "
        'clear_accum=k < 1, annotations={T.WSID: "mma"})'
    )


def test_part_of_a_reduction_is_refused() -> None:
    part = Region(TILE, (const(0), const(0)), (const(4), const(16)))
    with pytest.raises(KernelError, match="whole buffers"):
        printed(Reduce("top", "max", part, whole(ROW), 1))


def test_the_digest_names_the_schedule() -> None:
    kernel = gemm()
    schedule = producer_consumer(kernel)
    assert schedule.digest in export_tilelang(kernel, schedule)
