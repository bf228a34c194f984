"""The deadlock rule against the simulator, which knows no rule: exhaustively, and at random.

For every extent from 0 to 24, and for two-level nests up to 8 x 8, a schedule that the rule
accepts finishes in the simulator, and one that it refuses hangs there at the extent that the
refusal names.
"""

from __future__ import annotations

import itertools
import random

import pytest

import explorer.lang as T
from explorer.constraints import check_parts
from explorer.ir.nodes import Kernel
from explorer.machine import H200
from explorer.passes import materialize
from explorer.program.simulator import trace
from explorer.program.verdict import Finished, Hang, Verdict
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import Extensions
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.unit.constraints.kernels import A, Body, C, R, W
from tests.unit.constraints.test_deadlock import reversed_loops, staged, two_loops, two_rings

P = WSRole("P", warps_lo=0, warps_hi=4)
Q = WSRole("C", warps_lo=4, warps_hi=8)


def simulated(kernel: Kernel, ws: WSSchedule, seed: int = 0) -> Verdict:
    schedule = Schedule(bind(kernel, "h200", {}), ws)
    return trace(materialize(kernel, schedule, H200), seed)


def legal(kernel: Kernel, ws: WSSchedule) -> bool:
    found = check_parts(kernel, ws, Extensions(), H200)
    assert {violation.rule for violation in found.violations} <= {"deadlock"}
    return found.ok


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_stage_offsets_at_every_extent(depth: int) -> None:
    for stage, extent in itertools.product(range(5), range(25)):
        kernel, ws = two_rings(extent), staged(depth, stage)
        verdict = simulated(kernel, ws)
        assert isinstance(verdict, Finished if legal(kernel, ws) else Hang), (stage, extent)


@pytest.mark.parametrize("order", [["l1", "l2"], ["l2", "l1"]])
def test_two_loops_at_every_extent(order: list[str]) -> None:
    for depth, extent in itertools.product((1, 2, 4), range(0, 25, 3)):
        kernel, ws = two_loops(extent), reversed_loops(depth, order)
        verdict = simulated(kernel, ws)
        assert isinstance(verdict, Finished if legal(kernel, ws) else Hang), (depth, extent)


def nest(outer: int, inner: int) -> Kernel:
    @T.prim_func
    def nested(
        x: T.Tensor((64 * max(outer, 1), 64), T.float16),
        y: T.Tensor((64 * max(outer * inner, 1), 64), T.float16),
        z: T.Tensor((64 * max(outer, 1), 64), T.float16),
    ):
        with T.Kernel(1, threads=256) as bx:
            o = T.alloc_shared((64, 64), T.float16)
            i = T.alloc_shared((64, 64), T.float16)
            fo = T.alloc_fragment((64, 64), T.float16)
            fi = T.alloc_fragment((64, 64), T.float16)
            for lo in T.serial(outer, annotations={T.WSID: "lo"}):
                T.copy(x[lo * 64, 0], o, annotations={T.WSID: "co"})
                for li in T.serial(inner, annotations={T.WSID: "li"}):
                    T.copy(y[(lo * inner + li) * 64, 0], i, annotations={T.WSID: "ci"})
                    T.copy(i, fi, annotations={T.WSID: "ri"})
                T.copy(o, fo, annotations={T.WSID: "ro"})
                T.copy(fo, z[lo * 64, 0], annotations={T.WSID: "out"})

    return nested


def nest_schedule(depths: tuple[int, int], producer: Body, consumer: Body) -> WSSchedule:
    return WSSchedule(
        8,
        [P, Q],
        [WSPipeline("o", ["o"], depths[0]), WSPipeline("i", ["i"], depths[1])],
        [
            WSScope("li", {"P": [A("i"), "ci", C("i")], "C": [W("i"), "ri", R("i")]}),
            WSScope("lo", {"P": producer, "C": consumer}),
            WSScope(WSScope.ROOT, {"P": ["lo"], "C": ["lo"]}),
        ],
    )


PRODUCERS: list[Body] = [[A("o"), "co", C("o"), "li"], ["li", A("o"), "co", C("o")]]
CONSUMERS: list[Body] = [[W("o"), "ro", R("o"), "li", "out"], ["li", W("o"), "ro", R("o"), "out"]]


@pytest.mark.parametrize("producer", PRODUCERS, ids=["outer_first", "inner_first"])
@pytest.mark.parametrize("consumer", CONSUMERS, ids=["outer_first", "inner_first"])
def test_two_level_nests(producer: Body, consumer: Body) -> None:
    """Nests up to 8 x 8, depths 1 and 2; crossing orders hang once a loop is long enough."""
    for outer, inner in itertools.product(range(9), (0, 1, 2, 3, 8)):
        for depths in ((1, 1), (2, 2)):
            kernel, ws = nest(outer, inner), nest_schedule(depths, producer, consumer)
            verdict = simulated(kernel, ws)
            assert isinstance(verdict, Finished if legal(kernel, ws) else Hang), (outer, inner)


def shuffled(rng: random.Random) -> tuple[Kernel, WSSchedule]:
    """Three rings between three roles in one loop; the spans of each role in any order."""
    depths = [rng.randint(1, 3) for _ in range(3)]
    stages = [rng.randint(0, 3) for _ in range(3)]
    spans: dict[str, list[Body]] = {"X": [], "Y": [], "Z": []}
    for number, ring in enumerate("abc"):
        make, take = rng.sample(sorted(spans), 2)
        spans[make].append([A(ring, stages[number]), C(ring, stages[number])])
        spans[take].append([W(ring), R(ring)])
    for bodies in spans.values():
        rng.shuffle(bodies)
    bodies = {role: [*itertools.chain(*found)] for role, found in spans.items() if found}
    holder = next(iter(bodies))
    bodies[holder] = ["nothing", *bodies[holder]]
    roles = [
        WSRole(role, warps_lo=4 * k, warps_hi=4 * k + 4) for k, role in enumerate(sorted(bodies))
    ]
    ws = WSSchedule(
        4 * len(roles),
        roles,
        [WSPipeline(ring, [], depth) for ring, depth in zip("abc", depths, strict=True)],
        [WSScope("l", bodies), WSScope(WSScope.ROOT, {role.name: ["l"] for role in roles})],
    )
    return token_loop(rng.choice((0, 1, 2, 5, 12))), ws


def token_loop(extent: int) -> Kernel:
    @T.prim_func
    def tokens(z: T.Tensor((64, 64), T.float32)):
        with T.Kernel(1, threads=384) as bx:
            f = T.alloc_fragment((64, 64), T.float32)
            for l in T.Pipelined(extent, num_stages=8, annotations={T.WSID: "l"}):
                T.clear(f, annotations={T.WSID: "nothing"})

    return tokens


@pytest.mark.parametrize("seed", range(150))
def test_random_orders_of_spans(seed: int) -> None:
    kernel, ws = shuffled(random.Random(seed))
    verdict = simulated(kernel, ws, seed)
    assert isinstance(verdict, Finished if legal(kernel, ws) else Hang), ws
