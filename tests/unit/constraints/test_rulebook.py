"""The rulebook's pairs, W1 to W9 and W12: each id is a rule's, and that rule says yes and no.

Pairs that vary BASE alone stand in `test_rules`; the rest is here, with kernels of its own.
"""

from __future__ import annotations

import re

import pytest
from attrs import evolve

import explorer.lang as T
from explorer.constraints import RULES, Report, check_parts
from explorer.expr import Var
from explorer.ir.nodes import If, Kernel, Loop, Stmt
from explorer.machine import B200, CPU, H200, Machine
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixLag,
    MatrixTile,
    OpStage,
    Route,
    Side,
    SideMode,
    Split,
    StagedStore,
)
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.unit.constraints.kernels import (
    CONSUMER,
    PRODUCER,
    A,
    Body,
    C,
    R,
    W,
    base_schedule,
    copy_pipeline,
    gemm_loop,
    report,
    rules,
)

P = WSRole("P", warps_lo=0, warps_hi=4)
Q = WSRole("C", warps_lo=4, warps_hi=8)
D = WSRole("D", warps_lo=8, warps_hi=12)

# Ids that no schedule can break here: the surface language has no word for it, or it is a fact
# about what is emitted.
ELSEWHERE = {"R-A8": "lang: one dimension of threads", "R-C4": "lang: no else"}
IDS = [
    *(f"R-A{n}" for n in range(1, 9)),
    *(f"R-B{n}" for n in range(1, 9)),
    *(f"R-C{n}" for n in range(1, 10)),
    *(f"R-D{n}" for n in range(1, 10)),
    "R-E1",
    *(f"R-H{n}" for n in range(1, 5)),
    *(f"W9.{n}" for n in (1, 2, 3, 4, 5, 8)),
    "W7",
    "W12",
]


@pytest.mark.parametrize("rulebook", IDS)
def test_every_rule_of_the_rulebook_is_some_rules_source(rulebook: str) -> None:
    sources = [rule.source for rule in RULES]
    named = any(re.search(rf"{re.escape(rulebook)}\b", source) for source in sources)
    assert named or rulebook in ELSEWHERE


def test_rules_have_distinct_ids_and_say_what_they_mean() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.kind in ("form", "safety")
        assert rule.sentence and rule.source and rule.remedy


def test_the_surface_has_no_else_and_one_dimension_of_threads() -> None:
    """R-A8 and R-C4."""
    with pytest.raises(Exception, match="one dimension of threads"):

        @T.prim_func
        def square(x: T.Tensor((64, 64), T.float16)):
            with T.Kernel(1, threads=(64, 2)) as bx:
                T.clear(x)

    with pytest.raises(Exception, match="else"):

        @T.prim_func
        def forked(x: T.Tensor((64, 64), T.float16)):
            with T.Kernel(4, threads=128) as bx:
                f = T.alloc_fragment((64, 64), T.float16)
                if bx < 2:
                    T.clear(f)
                else:
                    T.fill(f, 1.0)


# ---------------------------------------------------------------- kernels


def chain(trips: int = 4, start: int = 0, num_stages: int = 8) -> Kernel:
    """X -> As, Y -> Bs; both read into one fragment and stored, `trips` times from `start`."""

    @T.prim_func
    def two(
        x: T.Tensor((64 * 16, 64), T.float16),
        y: T.Tensor((64 * 16, 64), T.float16),
        z: T.Tensor((64 * 16, 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            Bs = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.Pipelined(
                start, start + trips, num_stages=num_stages, annotations={T.WSID: "lk"}
            ):
                T.copy(x[lk * 64, 0], As, annotations={T.WSID: "ca"})
                T.copy(y[lk * 64, 0], Bs, annotations={T.WSID: "cb"})
                with T.ws_op("add"):
                    for i, j in T.Parallel(64, 64):
                        f[i, j] = As[i, j] + Bs[i, j]
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "out"})

    return two


def chain_schedule(stage: int = 0, depth: int = 2, **change: Body) -> WSSchedule:
    bodies: dict[str, Body] = {
        "P": [A("a"), "ca", C("a"), A("c", stage), "cb", C("c", stage)],
        "C": [W("a"), W("c"), "add", R("a"), R("c"), "out"],
    }
    return WSSchedule(
        8,
        [P, Q],
        [WSPipeline("a", ["As"], depth), WSPipeline("c", ["Bs"], depth)],
        [
            WSScope("lk", bodies | change),
            WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
        ],
    )


def nested(inner: int = 4, outer: int = 3) -> Kernel:
    """lw: lk: { load: S <- X; read: Y <- S }; read_last: Z <- S; a sibling loop lj reads S too."""

    @T.prim_func
    def carried(
        x: T.Tensor((64 * outer * max(inner, 1), 64), T.float16),
        y: T.Tensor((64 * outer * max(inner, 1), 64), T.float16),
        z: T.Tensor((64 * outer, 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            S = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            g = T.alloc_fragment((64, 64), T.float16)
            for lw in T.serial(outer, annotations={T.WSID: "lw"}):
                for lk in T.serial(inner, annotations={T.WSID: "lk"}):
                    T.copy(x[(lw * inner + lk) * 64, 0], S, annotations={T.WSID: "load"})
                    T.copy(S, f, annotations={T.WSID: "read"})
                    T.copy(f, y[(lw * inner + lk) * 64, 0], annotations={T.WSID: "keep"})
                for lj in T.serial(1, annotations={T.WSID: "lj"}):
                    T.copy(S, g, annotations={T.WSID: "rl"})
                T.copy(g, z[lw * 64, 0], annotations={T.WSID: "out"})

    return carried


def nested_schedule(
    producer: Body = (A("o"), "lk", C("o")),
    consumer: Body = ("lk", W("o"), "lj", R("o"), "out"),
    depths: tuple[int, int] = (2, 1),
    scopes: tuple[WSScope, ...] = (),
) -> WSSchedule:
    return WSSchedule(
        8,
        [P, Q],
        [WSPipeline("o", ["S"], depths[0]), WSPipeline("i", ["S"], depths[1])],
        [
            WSScope("lk", {"P": [A("i"), "load", C("i")], "C": [W("i"), "read", R("i"), "keep"]}),
            *scopes,
            WSScope("lw", {"P": producer, "C": consumer}),
            WSScope(WSScope.ROOT, {"P": ["lw"], "C": ["lw"]}),
        ],
    )


def checked(
    kernel: Kernel,
    schedule: WSSchedule,
    extensions: Extensions = Extensions(),
    machine: Machine = H200,
) -> Report:
    found = check_parts(kernel, schedule, extensions, machine)
    for violation in found.violations:
        assert "\n" not in str(violation)
    return found


# ---------------------------------------------------------------- R-B


def test_rb4_pipelines_of_one_buffer_stand_in_nested_scopes() -> None:
    assert checked(nested(), nested_schedule()).violations == ()
    twice = base_schedule(
        pipelines=(WSPipeline("buf", ["As"], 2), WSPipeline("again", ["As"], 2)),
        producer=[A("buf"), A("again"), "cin", C("again"), C("buf")],
        consumer=[W("buf"), W("again"), "cfr", R("again"), R("buf"), "cout"],
    )
    assert "nested-pipelines" in rules(report(twice))


def test_rb5_a_side_is_one_roles_or_an_extensions() -> None:
    roles = (P, Q, D)
    scopes = [
        WSScope("lk", {"P": PRODUCER, "C": CONSUMER, "D": [W("buf"), "cfr", R("buf"), "cout"]}),
        WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"], "D": ["lk"]}),
    ]
    schedule = base_schedule(num_warps=12, roles=roles, scopes=scopes)
    assert "pipeline-sides" in rules(report(schedule))
    side = Side("buf", False, SideMode.SHARED, ("C", "D"))
    shared = Extensions(sides=(side,), splits=(Split(("C", "D")),))
    assert report(schedule, extensions=shared).ok
    assert "pipeline-sides" in rules(report(base_schedule(producer=[A("buf"), "cin"])))


def test_rb6_a_bulk_copy_is_counted_by_its_own_roles_side() -> None:
    moved = base_schedule(
        producer=[A("buf"), C("buf")], consumer=[W("buf"), "cin", "cfr", R("buf"), "cout"]
    )
    assert "async-side" in rules(report(moved))
    by_threads = Extensions(routes=(Route("cin", CopyRoute.ELEMENT),))
    assert "async-side" not in rules(report(moved, extensions=by_threads))


def tensor_gemm() -> Kernel:
    @T.prim_func
    def tensor(
        a: T.Tensor((128, 256), T.bfloat16),
        b: T.Tensor((256, 128), T.bfloat16),
        c: T.Tensor((128, 128), T.float32),
    ):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((128, 64), T.bfloat16)
            Bs = T.alloc_shared((64, 128), T.bfloat16)
            acc = T.alloc_tmem((128, 128), T.float32)
            f = T.alloc_fragment((128, 128), T.float32)
            for lk in T.Pipelined(4, num_stages=4, annotations={T.WSID: "lk"}):
                T.copy(a[0, lk * 64], As, annotations={T.WSID: "ca"})
                T.copy(b[lk * 64, 0], Bs, annotations={T.WSID: "cb"})
                T.gemm(As, Bs, acc, clear_accum=lk == 0, annotations={T.WSID: "mma"})
            T.copy(acc, f, annotations={T.WSID: "take"})
            T.copy(f, c, annotations={T.WSID: "out"})

    return tensor


def tensor_schedule(warps: int = 1, held: bool = True) -> WSSchedule:
    pipelines = [WSPipeline("ab", ["As", "Bs"], 3), WSPipeline("acc", ["acc"], 1)]
    mma: Body = [A("acc"), "lk", C("acc")]
    take: Body = [W("acc"), "take", R("acc"), "out"]
    if not held:
        pipelines, mma, take = pipelines[:1], ["lk"], ["take", "out"]
    return WSSchedule(
        8,
        [
            WSRole("L", warps_lo=0, warps_hi=1),
            WSRole("M", warps_lo=1, warps_hi=1 + warps),
            WSRole("E", warps_lo=4, warps_hi=8),
        ],
        pipelines,
        [
            WSScope(
                "lk",
                {
                    "L": [A("ab"), "ca", "cb", C("ab")],
                    "M": [W("ab"), "mma", R("ab")],
                },
            ),
            WSScope(WSScope.ROOT, {"L": ["lk"], "M": mma, "E": take}),
        ],
    )


def test_rb7_rb8_tensor_memory_gemms() -> None:
    kernel = tensor_gemm()
    assert checked(kernel, tensor_schedule(), machine=B200).violations == ()
    assert "tensor-memory" in rules(checked(kernel, tensor_schedule(warps=2), machine=B200))
    assert "tensor-memory" in rules(checked(kernel, tensor_schedule(held=False), machine=B200))
    found = checked(kernel, tensor_schedule(), machine=H200)
    assert "acc is in tensor memory, which h200 has not" in str(found)


def test_tensor_memory_holds_512_columns() -> None:
    schedule = tensor_schedule()
    wide = WSSchedule(
        8,
        schedule.roles,
        [schedule.pipelines[0], WSPipeline("acc", ["acc"], 5)],
        schedule.scopes,
    )
    (violation,) = checked(tensor_gemm(), wide, machine=B200).violations
    assert str(violation) == (
        "tensor-capacity: acc 5 x 128 = 640 columns of tensor memory > 512; depth of acc 4 fits"
    )


# ---------------------------------------------------------------- R-C


@pytest.mark.parametrize(
    ("rule", "scopes"),
    [
        ("op-placement", [WSScope("lk", {"P": PRODUCER, "C": CONSUMER})]),
        (
            "op-placement",
            [
                WSScope("lk", {"P": PRODUCER, "C": CONSUMER}),
                WSScope(WSScope.ROOT, {"P": ["lk", WSScope.ROOT], "C": ["lk"]}),
            ],
        ),
        (
            "op-placement",
            [
                WSScope("lk", {"P": PRODUCER, "C": CONSUMER}),
                WSScope(WSScope.ROOT, {"P": ["lk", "lk"], "C": ["lk"]}),
            ],
        ),
        (
            "op-placement",
            [
                WSScope("lk", {"P": PRODUCER, "C": CONSUMER}),
                WSScope("lk", {"P": PRODUCER, "C": CONSUMER}),
                WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
            ],
        ),
        (
            "scope-entry",
            [
                WSScope("lk", {"P": PRODUCER, "C": CONSUMER}),
                WSScope(WSScope.ROOT, {"P": ["lk"], "C": []}),
            ],
        ),
        (
            "op-placement",
            [
                WSScope("lk", {"P": [*PRODUCER, "lk"], "C": [*CONSUMER, "lk"]}),
                WSScope(WSScope.ROOT, {}),
            ],
        ),
        (
            "scope-loop",
            [
                WSScope("lk", {"P": PRODUCER, "C": CONSUMER}),
                WSScope("cin", {"P": []}),
                WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
            ],
        ),
        (
            "op-placement",
            [
                WSScope("lk", {"P": PRODUCER, "C": CONSUMER}),
                WSScope("ghost", {"X": ["boo"]}),
                WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
            ],
        ),
    ],
    ids=["no root", "root in root", "twice", "two lk", "not entered", "cycle", "op", "ghost"],
)
def test_rc1_rc3_malformed_scopes(rule: str, scopes: list[WSScope]) -> None:
    assert rule in rules(report(base_schedule(scopes=scopes)))


@pytest.mark.parametrize("loop", [T.serial, T.unroll])
@pytest.mark.parametrize("start", [0, 3])
def test_rc3_serial_and_unrolled_loops_of_any_base(loop: object, start: int) -> None:
    @T.prim_func
    def base(x: T.Tensor((512, 64), T.float16), z: T.Tensor((512, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in loop(start, start + 4, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, f, annotations={T.WSID: "cfr"})
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "cout"})

    assert checked(base, base_schedule()).ok


def test_rc5_an_op_of_two_roles() -> None:
    assert "shared-op" in rules(report(base_schedule(producer=[*PRODUCER, "cout"])))
    reads = base_schedule(producer=[A("buf"), "cin", "cfr", C("buf")])
    assert "shared-op" in rules(report(reads))


def test_rc6_one_op_writes_one_pipeline() -> None:
    @T.prim_func
    def both(x: T.Tensor((256, 64), T.float16), z: T.Tensor((256, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            X = T.alloc_shared((64, 64), T.float16)
            Y = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.serial(4, annotations={T.WSID: "lk"}):
                with T.ws_op("fill"):
                    T.fill(X, 1.0)
                    T.fill(Y, 2.0)
                with T.ws_op("use"):
                    for i, j in T.Parallel(64, 64):
                        f[i, j] = X[i, j] + Y[i, j]
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "out"})

    def schedule(pipelines: list[WSPipeline]) -> WSSchedule:
        names = [pipeline.name for pipeline in pipelines]
        return WSSchedule(
            8,
            [P, Q],
            pipelines,
            [
                WSScope(
                    "lk",
                    {
                        "P": [*map(A, names), "fill", *map(C, names)],
                        "C": [*map(W, names), "use", *map(R, names), "out"],
                    },
                ),
                WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
            ],
        )

    assert checked(both, schedule([WSPipeline("a", ["X", "Y"], 2)])).ok
    found = checked(both, schedule([WSPipeline("a", ["X"], 2), WSPipeline("c", ["Y"], 2)]))
    assert rules(found) == {"one-pipeline-written"}


def guarded(source: str) -> Kernel:
    """A loop whose read stands under a flag: from `flags`, from `notes` (written), or a ring."""

    @T.prim_func
    def flagged(
        x: T.Tensor((256, 64), T.float16),
        flags: T.Tensor((4,), T.int32),
        notes: T.Tensor((4,), T.int32),
        z: T.Tensor((256, 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.serial(4, annotations={T.WSID: "lk"}):
                with T.ws_op("flag"):
                    if source == "flags":
                        on = flags[lk]
                    elif source == "notes":
                        on = notes[lk] + 1
                    else:
                        on = T.cast(As[0, 0], T.int32)
                T.copy(x[lk * 64, 0], As, annotations={T.WSID: "cin"})
                if on > 0:
                    T.copy(As, f, annotations={T.WSID: "cfr"})
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "cout"})
                with T.ws_op("note"):
                    for i in T.Parallel(1):
                        notes[lk] = 1

    return flagged


def guarded_schedule(consumer: Body = ("flag", *CONSUMER, "note")) -> WSSchedule:
    return base_schedule(roles=(P, Q), producer=PRODUCER, consumer=consumer)


@pytest.mark.parametrize(("source", "legal"), [("flags", True), ("notes", False), ("As", False)])
def test_rc7_a_guard_reads_what_nobody_writes(source: str, legal: bool) -> None:
    """A global flag is accepted; one that the kernel writes, or in a ring, is not (W9.5)."""
    found = checked(guarded(source), guarded_schedule())
    assert ("uniform-guard" not in rules(found)) == legal
    assert found.ok or not legal


def test_rc8_an_asynchronous_copy_stands_alone() -> None:
    @T.prim_func
    def grouped(x: T.Tensor((256, 64), T.float16), z: T.Tensor((256, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            Bs = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.serial(4, annotations={T.WSID: "lk"}):
                with T.ws_op("cin"):
                    T.copy(x[lk * 64, 0], As)
                    T.fill(Bs, 1.0)
                with T.ws_op("cfr"):
                    for i, j in T.Parallel(64, 64):
                        f[i, j] = As[i, j] + Bs[i, j]
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "cout"})

    schedule = base_schedule(pipelines=(WSPipeline("buf", ["As", "Bs"], 2),))
    assert rules(checked(grouped, schedule)) == {"async-direct"}
    copy = next(s.id for s in grouped.statement("cin").body if "copy" in s.id)
    by_threads = Extensions(routes=(Route(copy, CopyRoute.ELEMENT),))
    assert rules(checked(grouped, schedule, by_threads)) == {"register-copies"}
    roles = [evolve(role, max_nreg=max(role.max_nreg, 96)) for role in schedule.roles]
    assert checked(grouped, evolve(schedule, roles=roles), by_threads).ok


def scalars() -> Kernel:
    @T.prim_func
    def offsets(
        x: T.Tensor((256, 64), T.float16),
        where: T.Tensor((4,), T.int32),
        z: T.Tensor((256, 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.Pipelined(4, num_stages=4, annotations={T.WSID: "lk"}):
                with T.ws_op("define"):
                    at = where[lk]
                T.copy(x[at * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, f, annotations={T.WSID: "cfr"})
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "cout"})

    return offsets


@pytest.mark.parametrize(
    ("producer", "consumer", "stages", "legal"),
    [
        (["define", *PRODUCER], CONSUMER, (), True),
        (["define", *PRODUCER], ["define", *CONSUMER], (), True),
        (PRODUCER, ["define", *CONSUMER], (), False),
        ([*PRODUCER, "define"], CONSUMER, (), False),
        (
            ["define", A("buf", 1), "cin", C("buf", 1)],
            CONSUMER,
            (OpStage("P", "define", 1),),
            True,
        ),
        (
            ["define", A("tok"), C("tok"), A("buf", 1), "cin", C("buf", 1)],
            [*CONSUMER, W("tok"), R("tok")],
            (),
            False,
        ),
    ],
    ids=["producer", "both", "consumer only", "after use", "one stage", "another stage"],
)
def test_rc9_scalars_are_defined_before_their_use(
    producer: Body, consumer: Body, stages: tuple[OpStage, ...], legal: bool
) -> None:
    pipelines = [WSPipeline("buf", ["As"], 2)]
    if any(getattr(entry, "pipeline", "") == "tok" for entry in producer):
        pipelines.append(WSPipeline("tok", [], 2))
    schedule = base_schedule(
        roles=(P, Q),
        pipelines=pipelines,
        producer=producer,
        consumer=consumer,
    )
    found = checked(scalars(), schedule, Extensions(stages=stages))
    assert ("scalar-definition" not in rules(found)) == legal, found
    assert found.ok or not legal


def test_rc9_a_definition_under_a_guard_that_its_use_is_not_under() -> None:
    kernel = scalars()
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    define, *rest = loop.body

    def guarded_kernel(*body: Stmt) -> Kernel:
        return evolve(kernel, body=(evolve(loop, body=body),))

    schedule = base_schedule(roles=(P, Q), producer=["define", *PRODUCER])
    alone = guarded_kernel(If("when", Var("lk") < 3, (define,)), *rest)
    found = checked(alone, schedule)
    assert rules(found) == {"scalar-definition"} and "only under when" in str(found)
    copy, *others = rest
    depth_1 = base_schedule(
        roles=(P, Q),
        pipelines=(WSPipeline("buf", ["As"], 1),),
        producer=["define", *PRODUCER],
    )
    assert checked(guarded_kernel(If("when", Var("lk") < 3, (define, copy)), *others), depth_1).ok


# ---------------------------------------------------------------- R-D


def test_rd1_to_rd4_spans_alternate_in_one_body() -> None:
    for producer in (
        [A("buf"), A("buf"), "cin", C("buf"), C("buf")],
        ["cin", C("buf")],
        [A("buf"), "cin", C("buf"), A("buf")],
    ):
        assert "span-pairing" in rules(report(base_schedule(producer=producer)))
    both = base_schedule(producer=[*PRODUCER, W("buf"), R("buf")])
    assert "pipeline-sides" in rules(report(both))


@pytest.mark.parametrize(
    ("producer", "consumer"),
    [
        (PRODUCER, [W("buf"), R("buf"), "cfr", "cout"]),
        (["cin", A("buf"), C("buf")], CONSUMER),
    ],
)
def test_rd5_accesses_outside_a_span(producer: Body, consumer: Body) -> None:
    found = report(base_schedule(producer=producer, consumer=consumer))
    assert "dependence-coverage" in rules(found)


def after_loop() -> Kernel:
    @T.prim_func
    def late(x: T.Tensor((256, 64), T.float16), z: T.Tensor((256, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.serial(4, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, f, annotations={T.WSID: "cfr"})
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "cout"})
            with T.ws_op("last"):
                for i, j in T.Parallel(64, 64):
                    f[i, j] = As[i, j]

    return late


@pytest.mark.parametrize("depth", [1, 2])
def test_rd6_a_read_after_the_loop_of_the_only_pipeline(depth: int) -> None:
    schedule = base_schedule(
        roles=(P, Q),
        pipelines=(WSPipeline("buf", ["As"], depth),),
        root={"P": ["lk"], "C": ["lk", "last"]},
    )
    found = checked(after_loop(), schedule)
    assert rules(found) == {"dependence-coverage"}
    assert "touches As in last, outside the scope of buf" in str(found)


def test_rd7_a_producer_holds_the_enclosing_pipeline() -> None:
    loose = nested_schedule(producer=["lk", A("o"), C("o")])
    found = checked(nested(), loose)
    assert "dependence-coverage" in rules(found)
    assert "without holding the enclosing pipeline o" in str(found)


@pytest.mark.parametrize(("depth", "legal"), [(1, True), (2, False)])
def test_rd8_a_consumer_is_in_the_loop_before_its_own_outer_entries(
    depth: int, legal: bool
) -> None:
    """Inside the loop first, then wait: accepted. After its release: only with one slot."""
    behind = nested_schedule(consumer=[W("o"), "lj", R("o"), "lk", "out"], depths=(depth, 4))
    found = checked(nested(), behind)
    assert ("behind its own release of o" not in str(found)) == legal


def test_rd8_holding_the_outer_ring_over_the_loop_hangs() -> None:
    """The outer commit comes after the loop that needs the consumer."""
    held = nested_schedule(consumer=[W("o"), "lk", "lj", R("o"), "out"])
    assert "deadlock" in rules(checked(nested(), held))


def test_rd9_a_read_from_beside_the_inner_pipelines_scope() -> None:
    """`rl` in the body of lw is above lk; in a scope lj of its own it is beside it."""
    assert checked(nested(), nested_schedule(depths=(2, 3))).violations == ()
    sibling = WSScope("lj", {"C": ["rl"]})
    found = checked(nested(), nested_schedule(depths=(2, 3), scopes=(sibling,)))
    assert rules(found) == {"dependence-coverage"}
    assert "beside the scope of i, whose depth is 3" in str(found)
    assert checked(nested(), nested_schedule(depths=(2, 1), scopes=(sibling,))).ok


def test_w98_another_role_signals_the_outer_side() -> None:
    """The writer of inner storage is on the outer pipeline too."""
    scopes = [
        WSScope("lk", {"P": [A("i"), "load", C("i")], "C": [W("i"), "read", R("i"), "keep"]}),
        WSScope(
            "lw", {"P": ["lk"], "C": ["lk", W("o"), "lj", R("o"), "out"], "D": [A("o"), C("o")]}
        ),
        WSScope(WSScope.ROOT, {"P": ["lw"], "C": ["lw"], "D": ["lw"]}),
    ]
    pipelines = [WSPipeline("o", ["S"], 2), WSPipeline("i", ["S"], 1)]
    found = checked(nested(), WSSchedule(12, [P, Q, D], pipelines, scopes))
    assert "dependence-coverage" in rules(found)
    assert "which o binds, but is on neither side of it" in str(found)


# ---------------------------------------------------------------- R-E, R-H


@pytest.mark.parametrize(
    ("producer", "consumer", "legal"),
    [
        (PRODUCER, CONSUMER, True),
        ([*PRODUCER, A("buf"), C("buf")], [*CONSUMER, W("buf"), R("buf")], True),
        ([*PRODUCER, A("buf"), C("buf")], CONSUMER, False),
        (PRODUCER, ["cfr", "cout"], False),
    ],
)
def test_re1_cycles_balance(producer: Body, consumer: Body, legal: bool) -> None:
    assert report(base_schedule(producer=producer, consumer=consumer)).ok == legal


@pytest.mark.parametrize(("blocks", "legal"), [(0, True), (2, False)])
def test_re1_the_root_is_not_balanced_unless_it_is_repeated(blocks: int, legal: bool) -> None:
    """Two commits and one release: legal once at depth 2, a drift over the tiles of a block."""
    root = {
        "P": [A("t"), C("t"), A("t"), C("t"), "lk"],
        "C": [W("t"), R("t"), "lk"],
    }
    pipelines = (WSPipeline("buf", ["As"], 2), WSPipeline("t", [], 2))
    found = report(
        base_schedule(pipelines=pipelines, root=root),
        extensions=Extensions(launch=Launch(blocks)),
    )
    assert rules(found) == (set() if legal else {"cycle-balance"})
    shallow = (WSPipeline("buf", ["As"], 2), WSPipeline("t", [], 1))
    thrice = {**root, "P": [*root["P"], A("t"), C("t")]}
    found = report(base_schedule(pipelines=shallow, root=thrice))
    assert "cycle-balance" in rules(found)


def test_rh1_rh2_spans_and_their_ops_at_one_stage() -> None:
    broken = base_schedule(producer=[A("buf", 0), "cin", C("buf", 1)])
    assert "span-pairing" in rules(report(broken))
    assert checked(chain(), chain_schedule(stage=1)).ok
    apart: Body = [W("a"), W("c", 1), "add", R("a"), R("c", 1), "out"]
    assert "span-stages" in rules(checked(chain(), chain_schedule(C=apart)))
    own = Extensions(stages=(OpStage("C", "add", 1),))
    assert "span-stages" in rules(checked(chain(), chain_schedule(), own))


def test_rh3_a_shifted_loop_starts_at_0() -> None:
    assert checked(chain(start=0), chain_schedule(stage=1)).ok
    found = checked(chain(start=3), chain_schedule(stage=1))
    assert rules(found) == {"stage-form"} and "does not start at 0" in str(found)
    assert checked(chain(start=3), chain_schedule(stage=0)).ok


def test_rh4_no_shift_in_the_root_body() -> None:
    def with_tokens(stage: int) -> WSSchedule:
        root = {
            "P": [A("t", stage), C("t", stage), A("u", 1), C("u", 1), "lk"],
            "C": [W("t"), R("t"), W("u"), R("u"), "lk"],
        }
        tokens = (WSPipeline("t", [], 1), WSPipeline("u", [], 1))
        return base_schedule(pipelines=(WSPipeline("buf", ["As"], 2), *tokens), root=root)

    assert report(with_tokens(1)).ok
    found = report(with_tokens(0))
    assert "stage-form" in rules(found) and "not in a loop" in str(found)


# ---------------------------------------------------------------- W9, W11, W12


def test_w93_an_accumulator_in_shared_memory_is_not_versioned() -> None:
    @T.prim_func
    def summed(x: T.Tensor((256, 64), T.float16), z: T.Tensor((256, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            total = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.serial(4, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], As, annotations={T.WSID: "cin"})
                with T.ws_op("add"):
                    for i, j in T.Parallel(64, 64):
                        total[i, j] = total[i, j] + As[i, j]
                T.copy(total, f, annotations={T.WSID: "cfr"})
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "cout"})

    def schedule(depth: int) -> WSSchedule:
        return WSSchedule(
            12,
            [P, Q, D],
            [WSPipeline("buf", ["As"], 2), WSPipeline("t", ["total"], depth)],
            [
                WSScope(
                    "lk",
                    {
                        "P": [A("buf"), "cin", C("buf")],
                        "C": [W("buf"), A("t"), "add", C("t"), R("buf")],
                        "D": [W("t"), "cfr", R("t"), "cout"],
                    },
                ),
                WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"], "D": ["lk"]}),
            ],
        )

    assert checked(summed, schedule(1)).ok
    assert "loop-carried" in rules(checked(summed, schedule(2)))


def carried_load() -> Kernel:
    """C10: S preloaded; each trip first uses S, then copies the next tile into it."""

    @T.prim_func
    def carried(x: T.Tensor((256, 64), T.float16), z: T.Tensor((256, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            S = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.serial(3, annotations={T.WSID: "lk"}):
                T.copy(S, f, annotations={T.WSID: "use"})
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "out"})
                T.copy(x[lk * 64, 0], S, annotations={T.WSID: "next"})

    return carried


def carried_schedule(depth: int, reader_first: bool) -> WSSchedule:
    first: Body = (
        [A("s"), "use", C("s"), "out"] if reader_first else [W("s"), "use", R("s"), "out"]
    )
    then: Body = [W("s"), "next", R("s")] if reader_first else [A("s"), "next", C("s")]
    return WSSchedule(
        8,
        [P, Q],
        [WSPipeline("s", ["S"], depth)],
        [
            WSScope("lk", {"P": then, "C": first}),
            WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"]}),
        ],
    )


def test_c10_a_value_carried_by_the_loop_is_not_versioned() -> None:
    by_threads = Extensions(routes=(Route("next", CopyRoute.ELEMENT),))
    assert checked(carried_load(), carried_schedule(1, True), by_threads).ok
    assert "loop-carried" in rules(checked(carried_load(), carried_schedule(2, True), by_threads))
    swapped = checked(carried_load(), carried_schedule(1, False))
    assert rules(swapped) == {"ring-order"}
    assert "runs next before use, but the kernel has use first" in str(swapped)


def conditional(limit: int = 3) -> Kernel:
    @T.prim_func
    def some(x: T.Tensor((256, 64), T.float16), z: T.Tensor((256, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            As = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.serial(4, annotations={T.WSID: "lk"}):
                if lk < limit:
                    T.copy(x[lk * 64, 0], As, annotations={T.WSID: "cin"})
                T.copy(As, f, annotations={T.WSID: "cfr"})
                T.copy(f, z[lk * 64, 0], annotations={T.WSID: "cout"})

    return some


@pytest.mark.parametrize(("depth", "legal"), [(1, True), (2, False)])
def test_w94_a_guarded_write_into_a_ring(depth: int, legal: bool) -> None:
    schedule = base_schedule(pipelines=(WSPipeline("buf", ["As"], depth),))
    found = checked(conditional(), schedule)
    assert rules(found) == (set() if legal else {"guarded-write"})


def test_global_data_that_one_role_writes_and_another_reads() -> None:
    @T.prim_func
    def relay(x: T.Tensor((64, 64), T.float16), z: T.Tensor((64, 64), T.float16)):
        with T.Kernel(1, threads=256) as bx:
            f = T.alloc_fragment((64, 64), T.float16)
            g = T.alloc_fragment((64, 64), T.float16)
            T.clear(f, annotations={T.WSID: "start"})
            T.copy(f, x, annotations={T.WSID: "write"})
            T.copy(x, g, annotations={T.WSID: "read"})
            T.copy(g, z, annotations={T.WSID: "out"})

    def schedule(bodies: dict[str, Body]) -> WSSchedule:
        return WSSchedule(8, [P, Q], [], [WSScope(WSScope.ROOT, bodies)])

    one = schedule({"P": ["start", "write", "read", "out"], "C": []})
    assert checked(relay, one).ok
    two = schedule({"P": ["start", "write"], "C": ["read", "out"]})
    assert "touch x in global memory" in str(checked(relay, two))


def lifetimes() -> Kernel:
    """C09: an index is loaded, then used by a conditional store."""

    @T.prim_func
    def later(x: T.Tensor((1024, 64), T.float16), z: T.Tensor((1024, 64), T.float16)):
        with T.Kernel(1, threads=128) as bx:
            f = T.alloc_fragment((64, 64), T.float16)
            for lk in T.Pipelined(16, num_stages=4, annotations={T.WSID: "lk"}):
                T.copy(x[lk * 64, 0], f[0:32, :], annotations={T.WSID: "load"})
                if lk > 3:
                    T.copy(f, z[lk * 64, 0], annotations={T.WSID: "store"})

    return later


@pytest.mark.parametrize(
    ("body", "legal"), [(["load", "store"], False), (["store", "load"], True)]
)
def test_c09_a_value_used_after_the_next_write_of_its_slot(body: list[str], legal: bool) -> None:
    """A buffer that is not renewed whole has one version: a store one iteration late is late."""
    schedule = WSSchedule(
        4,
        [P],
        [],
        [WSScope("lk", {"P": body}), WSScope(WSScope.ROOT, {"P": ["lk"]})],
    )
    found = checked(lifetimes(), schedule, Extensions(stages=(OpStage("P", "store", 1),)))
    assert rules(found) == (set() if legal else {"program-order"})


def test_w12_a_lag_in_a_ring_and_without_one() -> None:
    def schedule(depth: int) -> WSSchedule:
        return base_schedule(
            pipelines=(WSPipeline("buf", ["As", "Bs"], depth),),
            producer=[A("buf"), "copy_A", "copy_B", C("buf")],
            consumer=[W("buf"), "mma", R("buf")],
            root={"P": ["lk"], "C": ["clear", "lk", "store"]},
        )

    lagged = Extensions(lags=(MatrixLag("mma", 1),))
    assert report(schedule(2), gemm_loop(), lagged).ok
    assert "ring-distance" in rules(report(schedule(1), gemm_loop(), lagged))
    loose = WSSchedule(
        4,
        [P],
        [],
        [
            WSScope("lk", {"P": ["copy_A", "copy_B", "mma"]}),
            WSScope(WSScope.ROOT, {"P": ["clear", "lk", "store"]}),
        ],
    )
    found = report(loose, gemm_loop(), lagged)
    assert {"lag-pipelined", "matrix-in-flight"} <= rules(found)


# ---------------------------------------------------------------- registers


def test_ra6_an_idle_group_takes_the_smallest_request() -> None:
    """40 + 224 + 2 x 40 = 344 fits; with 240 + 240 the idle groups of 24 warps do not."""
    roles = (
        WSRole("P", warps_lo=0, warps_hi=1, max_nreg=40),
        WSRole("C", warps_lo=4, warps_hi=8, max_nreg=224),
    )
    assert report(base_schedule(num_warps=16, roles=roles)).ok
    wide = (
        WSRole("P", warps_lo=0, warps_hi=1, max_nreg=144),
        WSRole("C", warps_lo=4, warps_hi=8, max_nreg=240),
    )
    found = report(base_schedule(num_warps=16, roles=wide))
    assert "(1 x 144 + 1 x 240 + 2 x 144 idle) x 128 = 86016 registers > 65536" in str(found)


def test_a_role_without_a_request_keeps_what_it_starts_with() -> None:
    roles = (
        WSRole("P", warps_lo=0, warps_hi=1),
        WSRole("C", warps_lo=4, warps_hi=12, max_nreg=240),
    )
    found = report(base_schedule(num_warps=12, roles=roles))
    assert "(1 x 168 + 2 x 240) x 128 = 82944 registers > 65536" in str(found)


def test_c27_one_consumer_group_too_many() -> None:
    def groups(count: int, nreg: int) -> Report:
        roles = (
            WSRole("P", warps_lo=0, warps_hi=4, max_nreg=24),
            WSRole("C", warps_lo=4, warps_hi=4 + 4 * count, max_nreg=nreg),
        )
        return report(base_schedule(num_warps=4 + 4 * count, roles=roles))

    assert "register-total" in rules(groups(4, 160))
    # 64512 registers fit the file, but 640 threads enter with 96 each: 61440 (seen to hang).
    assert rules(groups(4, 120)) == {"register-pool"}
    assert groups(4, 112).ok
    assert groups(3, 160).ok


# ---------------------------------------------------------------- names, huge numbers


def test_names_that_nothing_has() -> None:
    extensions = Extensions(
        sides=(Side("nothing", False, SideMode.SHARED, ("C", "nobody")),),
        splits=(Split(("C", "E")),),
        stages=(OpStage("C", "boo", 1),),
        lags=(MatrixLag("no_gemm", 1),),
        routes=(Route("no_copy", CopyRoute.BULK),),
        matrix=(MatrixTile("no_mma", 64, 64),),
        staged=(StagedStore("no_store", "stage"),),
    )
    found = report(base_schedule(), extensions=extensions)
    assert rules(found) == {"extension-names"}
    text = "; ".join(violation.message for violation in found.violations)
    names = ("nothing", "nobody", "E", "boo", "no_gemm", "no_copy", "no_mma", "no_store")
    for name in names:
        assert name in text


HUGE = 10**9


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("smem-capacity", {"pipelines": (WSPipeline("buf", ["As"], HUGE),)}),
        (
            "smem-capacity",
            {"pipelines": (WSPipeline("buf", [], HUGE),), "producer": [A("buf"), "cin", C("buf")]},
        ),
        (
            "stage-form",
            {
                "producer": [A("buf", HUGE), "cin", C("buf", HUGE), A("t"), C("t")],
                "consumer": [*CONSUMER, W("t"), R("t")],
                "pipelines": (WSPipeline("buf", ["As"], 2), WSPipeline("t", [], 2)),
            },
        ),
        ("warp-count", {"num_warps": HUGE}),
        ("register-range", {"roles": (WSRole("P", warps_lo=0, warps_hi=1, max_nreg=HUGE), Q)}),
        ("warp-ranges", {"roles": (WSRole("P", warps_lo=0, warps_hi=HUGE), Q)}),
    ],
)
@pytest.mark.timeout(5)
def test_huge_numbers_answer_at_once(rule: str, change: dict[str, object]) -> None:
    assert rule in rules(report(base_schedule(**change), copy_pipeline(HUGE)))  # type: ignore[arg-type]


@pytest.mark.timeout(5)
def test_huge_trip_counts_answer_at_once() -> None:
    assert report(base_schedule(), copy_pipeline(HUGE)).ok
    assert checked(copy_pipeline(HUGE), base_schedule(roles=(P, Q)), machine=H200).ok
    assert "register-range" in rules(report(base_schedule(), copy_pipeline(HUGE), machine=CPU))
