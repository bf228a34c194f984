"""Random schedules through TileLang's own pass: verdicts and arrive counts agree.

They differ only where the rulebook says that TileLang 0.1.15 does not check, or is wrong; each
such class is listed here with the rules that speak for it, and is met.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest
from attrs import evolve

from explorer.constraints import rule_named
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.interop_tilelang.pairs import (
    BASES,
    ROOT,
    A,
    Base,
    C,
    R,
    Verdicts,
    W,
    own_counts,
    variants,
    verdicts,
)

pytestmark = pytest.mark.interop
DRAWN = 260

# What TileLang accepts and this package refuses: the class, its rules, and where it is stated.
UNCHECKED: dict[str, tuple[frozenset[str], str]] = {
    "registers": (
        frozenset(
            (
                "register-range",
                "register-total",
                "register-fragments",
                "register-pool",
                "register-entry",
                "register-copies",
            )
        ),
        "W1: range, step and total are not checked",
    ),
    "threads": (frozenset(("warp-count",)), "W1: num_warps 64 = 2048 threads accepted"),
    "matrix rows": (frozenset(("matrix-tile", "row-split")), "C29: tiles against the instruction"),
    "capacity": (frozenset(("smem-capacity",)), "W9.2"),
    "coverage": (frozenset(("dependence-coverage",)), "W9.1: shared data in no pipeline"),
    "versioned accumulator": (frozenset(("loop-carried",)), "W9.3"),
    "guarded write": (frozenset(("guarded-write",)), "W9.4"),
    "program order": (
        frozenset(("program-order", "ring-order")),
        "W12: an op reads what another iteration left, or what a later op writes",
    ),
    "deadlock": (frozenset(("deadlock",)), "W7: the hole of stages above the depth"),
}
# What TileLang refuses and this package accepts.
TOO_STRICT = {"short loops": "schedule deadlocks"}


def class_of(rule: str) -> str | None:
    return next((name for name, (rules, _) in UNCHECKED.items() if rule in rules), None)


def difference(found: Verdicts) -> tuple[str, ...]:
    """The classes that explain a disagreement; AssertionError where none does."""
    if found.agree:
        return ()
    if not found.rules:
        assert TOO_STRICT["short loops"] in found.refusal, found.refusal
        return ("short loops",)
    classes = tuple(class_of(rule) or f"unexplained: {rule}" for rule in found.rules)
    assert not any(name.startswith("unexplained") for name in classes), found.rules
    if "dependence-coverage" in found.rules:
        assert "which is in no pipeline" in found.rules["dependence-coverage"]
    return classes


@cache
def drawn(name: str) -> Counter[str]:
    base, rng = BASES[name], random.Random(name)
    own = base.own()
    tally: Counter[str] = Counter()
    for (_, ws), _ in zip(variants(base.ws, rng), range(DRAWN), strict=False):
        found = verdicts(base, own, ws)
        tally.update(difference(found) or ("agree",))
        tally["schedules"] += 1
        if found.result is not None and not found.rules:
            assert found.result.counts == own_counts(own, ws), ws
            tally["counts"] += 1
    return tally


@pytest.mark.parametrize("name", BASES)
def test_the_base_is_legal_to_both(name: str) -> None:
    base = BASES[name]
    own = base.own()
    found = verdicts(base, own, base.ws)
    assert not found.rules and not found.refusal
    assert found.result is not None and found.result.counts == own_counts(own, base.ws)


@pytest.mark.parametrize("name", BASES)
def test_random_schedules_agree(name: str) -> None:
    tally = drawn(name)
    assert tally["schedules"] == DRAWN
    assert tally["agree"] >= DRAWN // 2 and tally["counts"] >= DRAWN // 10


def test_two_thousand_schedules_were_compared_and_each_side_differs_as_listed() -> None:
    whole: Counter[str] = Counter()
    for name in BASES:
        whole += drawn(name)
    assert whole["schedules"] >= 2000 and len(BASES) >= 6
    met = {name for name in (*UNCHECKED, *TOO_STRICT) if whole[name]}
    rest = {"capacity", "deadlock", "matrix rows"}  # met by the schedules below, if not here
    assert met | rest == {*UNCHECKED, *TOO_STRICT}


def staged(depth: int, stage: int) -> WSSchedule:
    base = BASES["two_rings"].ws
    producer = [A("a"), "ca", C("a"), A("c", stage), "cc", C("c", stage)]
    scopes = [
        WSScope("lk", {"P": producer, "C": base.scopes[0].body("C")}),
        base.scopes[1],
    ]
    rings = [WSPipeline("a", ["a"], depth), WSPipeline("c", ["c"], depth)]
    return evolve(base, pipelines=rings, scopes=scopes)


@pytest.mark.parametrize(
    ("depth", "stage", "extent"),
    [(1, 2, 3), (1, 3, 8), (2, 3, 4), (2, 5, 16), (3, 4, 5), (4, 5, 16)],
)
def test_w7_the_hole_is_accepted_there_and_a_hang_here(
    depth: int, stage: int, extent: int
) -> None:
    base = evolve(BASES["two_rings"], sizes=(("trips", extent),))
    found = verdicts(base, base.own(), staged(depth, stage))
    assert set(found.rules) == {"deadlock"} and not found.refusal
    short = evolve(base, sizes=(("trips", depth + 1),))
    assert verdicts(short, short.own(), staged(depth, stage)).rules == {}


@pytest.mark.parametrize(("extent", "legal"), [(1, True), (2, True), (3, False)])
def test_w7_reversed_loops(extent: int, legal: bool) -> None:
    base = evolve(BASES["two_loops"], sizes=(("trips", extent),))
    order = {"P": ["l1", "l2"], "C": ["l2", "l1"]}
    ws = evolve(base.ws, scopes=(*base.ws.scopes[:2], WSScope(ROOT, order)))
    found = verdicts(base, base.own(), ws)
    assert TOO_STRICT["short loops"] in found.refusal
    assert set(found.rules) == (set() if legal else {"deadlock"})


def changed(name: str, **parts: object) -> tuple[Base, WSSchedule]:
    return BASES[name], evolve(BASES[name].ws, **parts)


FOUR_GROUPS = (
    WSRole("P", warps_lo=0, warps_hi=4, max_nreg=24),
    WSRole("C", warps_lo=4, warps_hi=16, max_nreg=240),
)
CASES = {
    "capacity": (
        "smem-capacity",
        changed("copy_ring", pipelines=(WSPipeline("buf", ["As"], 128),)),
    ),
    "register total": ("register-total", changed("copy_ring", num_warps=16, roles=FOUR_GROUPS)),
    "versioned accumulator": (
        "loop-carried",
        changed(
            "carried", pipelines=(WSPipeline("buf", ["As"], 2), WSPipeline("t", ["total"], 2))
        ),
    ),
    "guarded write": (
        "guarded-write",
        changed("guarded", pipelines=(WSPipeline("buf", ["As"], 2),)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_w9_what_the_reference_does_not_see(case: str) -> None:
    rule, (base, ws) = CASES[case]
    found = verdicts(base, base.own(), ws)
    assert rule in found.rules and not found.refusal
    assert class_of(rule) and rule_named(rule)


def test_rb5_two_consumers_of_one_pipeline_are_refused_by_both() -> None:
    roles = (
        WSRole("P", warps_lo=0, warps_hi=1, max_nreg=40),
        WSRole("C", warps_lo=4, warps_hi=8, max_nreg=160),
        WSRole("D", warps_lo=8, warps_hi=12, max_nreg=160),
    )
    use = [W("buf"), "cfr", R("buf"), "cout"]
    scopes = (
        WSScope("lk", {"P": [A("buf"), "cin", C("buf")], "C": use, "D": use}),
        WSScope(ROOT, {"P": ["lk"], "C": ["lk"], "D": ["lk"]}),
    )
    base, ws = changed("copy_ring", num_warps=12, roles=roles, scopes=scopes)
    found = verdicts(base, base.own(), ws)
    assert {"pipeline-sides", "shared-op"} <= set(found.rules) and found.refusal
