"""Each rule accepts and rejects; the pairs are the rulebook's."""

from __future__ import annotations

import pytest
from attrs import evolve

import explorer
from explorer.errors import InputError, ScheduleError
from explorer.schedule.extensions import Extensions, MatrixLag
from explorer.schedule.ws import WSPipeline, WSRole, WSScope
from tests.kernels.gemm import gemm
from tests.unit.constraints.kernels import (
    CONSUMER,
    PRODUCER,
    ROLES,
    A,
    C,
    R,
    W,
    base_schedule,
    copy_pipeline,
    gemm_loop,
    report,
    rules,
)


def role(name: str, lo: int, hi: int, nreg: int = 0) -> WSRole:
    return WSRole(name, warps_lo=lo, warps_hi=hi, max_nreg=nreg)


def test_base_is_legal() -> None:
    assert report(base_schedule()).violations == ()


P, CONSUMERS = ROLES
REJECTED = [
    ("warp-count", {"num_warps": 6, "roles": (role("P", 0, 1), role("C", 4, 6))}),
    ("warp-count", {"num_warps": 64}),
    ("warp-ranges", {"roles": (role("P", 0, 0), CONSUMERS)}),
    ("warp-ranges", {"roles": (P, role("C", 4, 9, 224))}),
    ("warp-ranges", {"roles": (role("P", -1, 1, 40), CONSUMERS)}),
    ("warp-ranges", {"roles": (role("P", 0, 5), role("C", 4, 8))}),
    ("warp-ranges", {"roles": (role("P", 0, 1), role("P", 4, 8))}),
    ("group-registers", {"roles": (role("P", 0, 1, 40), role("C", 1, 4, 224))}),
    ("register-range", {"roles": (role("P", 0, 1, 16), CONSUMERS)}),
    ("register-range", {"roles": (role("P", 0, 1, 41), CONSUMERS)}),
    ("register-total", {"num_warps": 16, "roles": (role("P", 0, 8, 240), role("C", 8, 16, 240))}),
    ("pipeline-form", {"pipelines": (WSPipeline("buf", ["As"], 0),)}),
    ("pipeline-form", {"pipelines": (WSPipeline("buf", ["As"], 1), WSPipeline("buf", ["As"], 1))}),
    ("pipeline-form", {"pipelines": (WSPipeline("buf", ["frag"], 2),)}),
    ("pipeline-form", {"pipelines": (WSPipeline("buf", ["nothing"], 2),)}),
    ("pipeline-scope", {"pipelines": (WSPipeline("buf", ["As"], 2), WSPipeline("x", ["As"], 2))}),
    ("pipeline-scope", {"producer": [A("y"), "cin", C("y")]}),
    ("pipeline-sides", {"producer": [A("buf"), "cin"]}),
    ("op-placement", {"producer": [A("buf"), "cin", "ghost", C("buf")]}),
    ("op-placement", {"consumer": [W("buf"), "cfr", R("buf")]}),
    ("op-placement", {"producer": [A("buf"), "cin", "cin", C("buf")]}),
    ("op-placement", {"root": {"P": ["lk", "cin"], "C": ["lk"]}}),
    ("scope-entry", {"root": {"P": ["lk"]}}),
    ("shared-op", {"producer": [*PRODUCER, "cout"]}),
    ("span-pairing", {"producer": [A("buf"), A("buf"), "cin", C("buf"), C("buf")]}),
    ("span-pairing", {"producer": ["cin", C("buf")]}),
    ("span-pairing", {"producer": [A("buf"), "cin", C("buf"), A("buf")]}),
    ("span-pairing", {"producer": [A("buf", 0), "cin", C("buf", 1)]}),
    ("cycle-balance", {"producer": [*PRODUCER, A("buf"), C("buf")]}),
    ("dependence-coverage", {"consumer": [W("buf"), R("buf"), "cfr", "cout"]}),
    ("dependence-coverage", {"producer": ["cin", A("buf"), C("buf")]}),
    ("stage-form", {"producer": [A("buf", -1), "cin", C("buf", -1)]}),
    ("smem-capacity", {"pipelines": (WSPipeline("buf", ["As"], 10**9),)}),
]


@pytest.mark.parametrize(("rule", "change"), REJECTED)
def test_rejected(rule: str, change: dict[str, object]) -> None:
    found = report(base_schedule(**change))  # type: ignore[arg-type]
    assert rule in rules(found), found
    for violation in found.violations:
        assert "\n" not in str(violation) and violation.message and violation.remedy


ACCEPTED = [
    {"num_warps": 16},
    {"roles": (role("P", 0, 1), role("C", 4, 8))},
    {"pipelines": (WSPipeline("buf", ["As"], 1),)},
    {"producer": [A("buf", 3), "cin", C("buf", 3)]},
    {
        "producer": [*PRODUCER, A("buf"), C("buf")],
        "consumer": [*CONSUMER, W("buf"), R("buf")],
    },
]


@pytest.mark.parametrize("change", ACCEPTED)
def test_accepted(change: dict[str, object]) -> None:
    assert report(base_schedule(**change)).violations == ()  # type: ignore[arg-type]


def test_uncovered_shared_buffer_is_a_race() -> None:
    """W9.1 and C13: shared data touched by two roles and in no pipeline."""
    found = report(base_schedule(pipelines=(), producer=["cin"], consumer=["cfr", "cout"]))
    assert rules(found) == {"dependence-coverage"}
    assert "roles C, P touch As, which is in no pipeline" in found.violations[0].message


def test_capacity_message_has_numbers_and_the_smallest_change() -> None:
    found = report(base_schedule(pipelines=(WSPipeline("buf", ["As"], 30),)))
    (violation,) = found.violations
    assert str(violation) == (
        "smem-capacity: As 30 x 8192 B + barriers 480 B = 246240 B > 232448 B; "
        "depth of buf 28 fits"
    )


def test_register_total_names_the_sum() -> None:
    """24 + 3 x 240 and 4 x 160 are refused before launch (C27)."""
    roles = (role("P", 0, 4, 24), role("C", 4, 16, 240))
    found = report(base_schedule(num_warps=16, roles=roles))
    assert "(1 x 24 + 3 x 240) x 128 = 95232 registers > 65536" in str(found.violations[0])


def test_two_consumers_of_one_ring_need_a_shared_side() -> None:
    """R-B5 and C13: refused on a plain pipeline; the remedy names the extension."""
    roles = (role("P", 0, 1), role("C", 4, 8), role("D", 8, 12))
    scopes = [
        WSScope("lk", {"P": PRODUCER, "C": CONSUMER, "D": CONSUMER}),
        WSScope(WSScope.ROOT, {"P": ["lk"], "C": ["lk"], "D": ["lk"]}),
    ]
    found = report(base_schedule(num_warps=12, roles=roles, scopes=scopes))
    assert "pipeline-sides" in rules(found)
    assert "declare a Side" in str(found)


@pytest.mark.parametrize(("lag", "depth", "legal"), [(0, 1, True), (1, 1, False), (1, 2, True)])
def test_lag_must_be_below_the_depth(lag: int, depth: int, legal: bool) -> None:
    """W12: a release q iterations late needs more than q slots, or the producer never gets one."""
    schedule = base_schedule(
        pipelines=(WSPipeline("buf", ["As", "Bs"], depth),),
        producer=[A("buf"), "copy_A", "copy_B", C("buf")],
        consumer=[W("buf"), "mma", R("buf")],
        root={"P": ["lk"], "C": ["clear", "lk", "store"]},
    )
    found = report(schedule, gemm_loop(), Extensions(lags=(MatrixLag("mma", lag),)))
    assert rules(found) == (set() if legal else {"ring-distance", "deadlock"})


def test_what_is_given_twice_is_refused() -> None:
    schedule = base_schedule()
    lags = Extensions(lags=(MatrixLag("cfr", 0), MatrixLag("cfr", 7)))
    found = report(schedule, extensions=lags)
    assert any("lag of cfr is given twice" in each.message for each in found.violations), found
    loop = schedule.scopes[-1]
    doubled = evolve(loop, bodies=(*loop.bodies, ("P", ())))
    found = report(evolve(schedule, scopes=(*schedule.scopes[:-1], doubled)))
    assert any("two bodies for role P" in each.message for each in found.violations), found


def test_stage_needs_iterations_in_flight() -> None:
    """C05: a largest stage m needs m + 1 iterations; compared with num_stages, never a depth."""
    pipelines = (WSPipeline("buf", ["As"], 2), WSPipeline("tok", [], 4))
    change = {
        "pipelines": pipelines,
        "producer": [A("buf"), "cin", C("buf"), A("tok", 1), C("tok", 1)],
        "consumer": [W("buf"), "cfr", R("buf"), "cout", W("tok"), R("tok")],
    }
    schedule = base_schedule(**change)  # type: ignore[arg-type]
    found = report(schedule, copy_pipeline(num_stages=1))
    assert rules(found) == {"stage-form"}
    assert "stage 1 needs more iterations in flight than the loop's num_stages 1" in str(found)
    assert report(schedule, copy_pipeline(num_stages=2)).ok


def test_check_takes_the_schedule_that_the_author_attached() -> None:
    """The public check: attached, given, and missing schedules; open Params; unknown machines."""
    kernel = evolve(copy_pipeline(), schedule=base_schedule())
    assert explorer.check(kernel).ok
    assert explorer.check(kernel, base_schedule(num_warps=16), "h200").ok
    assert not explorer.check(kernel, base_schedule(num_warps=6)).ok
    with pytest.raises(ScheduleError, match="kernel base carries no schedule; pass one"):
        explorer.check(copy_pipeline())
    with pytest.raises(ScheduleError, match="has open Params block_N, block_M, block_K"):
        explorer.check(gemm(8, 8, 8), base_schedule())
    with pytest.raises(InputError, match="unknown machine 'h2000'"):
        explorer.check(kernel, machine="h2000")
