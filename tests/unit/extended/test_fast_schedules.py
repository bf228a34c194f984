"""FlashAttention-3's schedule and a ping-pong GEMM: valid, right, and wrong after one fault.

A fault that breaks a safety rule goes wrong when it is run: some interleaving hangs, races or
gives another result, or the passes find no meaning for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from attrs import evolve

from explorer.constraints import rule_named
from explorer.machine import CPU, H200
from explorer.passes import materialize
from explorer.program.events import role_events
from explorer.schedule.extensions import Launch, OpStage, Side, SideMode
from explorer.schedule.ws import WSSync
from tests.kernels.attention import attention
from tests.kernels.gemm import gemm
from tests.support.outcomes import Trial, trial
from tests.support.schedules import (
    CONSUMERS,
    ROOT,
    SOFTMAX,
    A,
    C,
    Draft,
    R,
    W,
    flash_attention_3,
    ping_pong_gemm,
)

FOUR = evolve(CPU, units=4)
MACHINES = {"cpu": FOUR, "h200": H200}
Fault = Callable[[Draft], Draft]


@cache
def attention_draft(machine: str, causal: bool = False) -> tuple[Draft, Trial]:
    kernel = attention(1, 2, 1, 128, 112, 32, causal)
    draft = flash_attention_3(kernel, MACHINES[machine], 128, 16).extended(launch=Launch(1))
    return draft, trial(kernel, MACHINES[machine], dict(draft.sizes))


@cache
def gemm_draft(machine: str, depth: int = 3) -> tuple[Draft, Trial]:
    kernel = gemm(320, 128, 96, "float16")
    draft = ping_pong_gemm(kernel, MACHINES[machine], (64, 64, 16), depth)
    return draft, trial(kernel, MACHINES[machine], dict(draft.sizes))


# ---------------------------------------------------------------- valid and right


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_3_is_legal_and_right(machine: str, causal: bool) -> None:
    draft, runs = attention_draft(machine, causal)
    assert runs.check(draft.schedule).violations == ()
    assert runs.fault(draft.schedule, seeds=16) == ""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_ping_pong_gemm_is_legal_and_right(machine: str, depth: int) -> None:
    draft, runs = gemm_draft(machine, depth)
    assert runs.check(draft.schedule).violations == ()
    assert runs.fault(draft.schedule, seeds=16) == ""


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 10, 64])
def test_any_number_of_tiles_a_block(blocks: int) -> None:
    draft, runs = gemm_draft("h200")
    launched = draft.extended(launch=Launch(blocks))
    assert runs.check(launched.schedule).violations == ()
    assert runs.fault(launched.schedule, seeds=4) == ""


def test_tiles_alternate_and_cycles_run_on() -> None:
    """2 x 5 tiles on one block, 6 steps each: C0 takes tiles 0, 2, ..., C1 the others."""
    draft, _ = gemm_draft("h200")
    one = draft.extended(launch=Launch(1))
    program = materialize(one.kernel, one.schedule, H200)
    waits = {
        role: [
            e.cycle for e in role_events(program, role) if (e.kind, e.pipeline) == ("wait", "ab")
        ]
        for role in CONSUMERS
    }
    assert waits["C0"] == [6 * tile + k for tile in range(0, 10, 2) for k in range(6)]
    assert waits["C1"] == [6 * tile + k for tile in range(1, 10, 2) for k in range(6)]
    assert [b.empty_count for b in program.barriers] == [128, 128]


# ---------------------------------------------------------------- single faults


def body(scope: str, role: str, *entries: WSSync | str) -> Fault:
    return lambda draft: draft.with_body(scope, role, entries)


def without(scope: str, role: str, *gone: WSSync | str) -> Fault:
    def fault(draft: Draft) -> Draft:
        kept = tuple(each for each in draft.body(scope, role) if each not in gone)
        assert len(kept) == len(draft.body(scope, role)) - len(gone)
        return draft.with_body(scope, role, kept)

    return fault


def moved(scope: str, role: str, entry: WSSync | str, before: WSSync | str) -> Fault:
    def fault(draft: Draft) -> Draft:
        rest = [each for each in draft.body(scope, role) if each != entry]
        rest.insert(rest.index(before), entry)
        return draft.with_body(scope, role, tuple(rest))

    return fault


def staged(*changes: tuple[str, int]) -> Fault:
    def fault(draft: Draft) -> Draft:
        stages = dict.fromkeys(SOFTMAX, 1) | dict(changes)
        return draft.extended(
            stages=tuple(OpStage(r, op, s) for r in CONSUMERS for op, s in stages.items() if s)
        )

    return fault


def shared_except(pipeline: str) -> Fault:
    return lambda draft: draft.extended(
        sides=tuple(side for side in draft.extensions.sides if side.pipeline != pipeline)
    )


def both(one: Fault, other: Fault) -> Fault:
    return lambda draft: other(one(draft))


def early_queries(draft: Draft) -> Draft:
    return both(moved(ROOT, "C0", R("q"), "k"), moved(ROOT, "C1", R("q"), "k"))(draft)


def early_values(draft: Draft) -> Draft:
    for role in CONSUMERS:
        body = tuple(
            evolve(e, stage=0) if isinstance(e, WSSync) and e.pipeline == "v" else e
            for e in draft.body("k", role)
        )
        draft = draft.with_body("k", role, body)
    return draft


def crossed_tokens(draft: Draft) -> Draft:
    """C1 makes PV first, but waits for QK of C0, which waits for PV of C1."""
    other = {A("pv", 1): W("pv", 1), C("pv", 1): R("pv", 1)}
    back = {old: new for new, old in other.items()}
    held = [other.get(e, e) for e in draft.body("k", "C0") if e != C("qk")]
    draft = draft.with_body("k", "C0", (*held, C("qk")))
    return draft.with_body("k", "C1", tuple(back.get(e, e) for e in draft.body("k", "C1")))


ATTENTION_FAULTS: dict[str, tuple[str, Fault]] = {
    "K released before its gemm": ("dependence-coverage", moved("k", "C0", R("k"), "gemm_S")),
    "V released before its gemm": ("dependence-coverage", moved("k", "C1", R("v", 1), "gemm_acc")),
    "Q released before the loop": ("dependence-coverage", early_queries),
    "PV at the stage of QK": ("program-order", early_values),
    "one step of the softmax an iteration early": ("program-order", staged(("map_S_2", 0))),
    "a stage that the loop does not allow": (
        "stage-form",
        staged(*((op, 2) for op in SOFTMAX)),
    ),
    "one consumer forgets to release K": ("span-pairing", without("k", "C1", R("k"))),
    "K is not shared": ("pipeline-sides", shared_except("k")),
    "one consumer runs no PV": ("equal-shares", without("k", "C1", "gemm_acc")),
    "no split of the rows": ("shared-op", lambda draft: draft.extended(splits=())),
    "V is loaded before K, into one slot": (
        "deadlock",
        both(
            body("k", "P", A("v"), "copy_V_shared", C("v"), A("k"), "copy_K_shared", C("k")),
            lambda draft: draft.with_depth("v", 1).with_depth("k", 1),
        ),
    ),
    "PV in the other order, while QK is held": ("deadlock", crossed_tokens),
    "K lands without a barrier": (
        "dependence-coverage",
        moved("k", "P", "copy_K_shared", A("k")),
    ),
}


def alternating(draft: Draft, **change: object) -> Draft:
    (side,) = draft.extensions.sides
    return draft.extended(sides=(evolve(side, **change),))


def untokened(draft: Draft) -> Draft:
    kept = tuple(each for each in draft.pipelines if each[0] != "math")
    draft = evolve(draft, pipelines=kept)
    for role, (opens, closes) in zip(CONSUMERS, ((A, C), (W, R)), strict=True):
        draft = without(ROOT, role, opens("math"), closes("math"))(draft)
    return draft


def swapped(draft: Draft) -> Draft:
    first, second = draft.body(ROOT, "C0"), draft.body(ROOT, "C1")
    return draft.with_body(ROOT, "C0", second).with_body(ROOT, "C1", first)


GEMM_FAULTS: dict[str, tuple[str, Fault]] = {
    "no token": ("turn-phase", untokened),
    "the token is given away before the section": (
        "turn-phase",
        moved(ROOT, "C0", C("math"), "ko"),
    ),
    "the second role goes first": ("deadlock", swapped),
    "turns over the steps of a tile": ("turn-private", lambda d: alternating(d, over="")),
    "every consumer works on every tile": (
        "shared-op",
        lambda d: alternating(d, mode=SideMode.SHARED, over=""),
    ),
    "turns over the tiles of a launch of one each": (
        "turn-form",
        lambda draft: draft.extended(launch=Launch(0)),
    ),
    "one role never multiplies": ("equal-shares", without("ko", "C1", "gemm_C_local")),
    "one role stores nothing": ("equal-shares", without(ROOT, "C0", "copy_C")),
    "slots freed before the gemm": (
        "dependence-coverage",
        moved("ko", "C1", R("ab"), "gemm_C_local"),
    ),
    "the token is kept": ("span-pairing", without(ROOT, "C0", C("math"))),
    "copies before the slot is free": (
        "dependence-coverage",
        moved("ko", "P", "copy_A_shared", A("ab")),
    ),
    "the producer takes turns": (
        "pipeline-sides",
        lambda d: d.extended(
            sides=(*d.extensions.sides, Side("ab", True, SideMode.ALTERNATING, ("P", "C0"), ROOT))
        ),
    ),
}


def assert_refused(draft: Draft, runs: Trial, rule: str, fault: Fault) -> None:
    broken = fault(draft)
    assert broken != draft
    found = {violation.rule for violation in runs.check(broken.schedule).violations}
    assert rule in found, found
    if rule_named(rule).kind == "safety":
        assert runs.fault(broken.schedule, seeds=40) != ""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("fault", ATTENTION_FAULTS)
def test_a_faulty_attention_is_refused_and_goes_wrong(fault: str, machine: str) -> None:
    assert_refused(*attention_draft(machine), *ATTENTION_FAULTS[fault])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("fault", GEMM_FAULTS)
def test_a_faulty_ping_pong_is_refused_and_goes_wrong(fault: str, machine: str) -> None:
    assert_refused(*gemm_draft(machine), *GEMM_FAULTS[fault])
