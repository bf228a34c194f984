"""Every safety rule that the simulator can speak for refuses a schedule that fails there.

The rest are about what the simulator does not hold: bytes, registers, instruction shapes, data
that decides control flow.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from explorer.constraints import RULES
from explorer.expr import Var
from explorer.ir.nodes import Copy, If, Kernel, Loop, whole
from explorer.machine import H200
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixLag,
    Route,
)
from tests.property.test_mutations import WIDE_CPU, chain, in_turn, nested, roles
from tests.support.outcomes import trial
from tests.support.programs import gemm_kernel, relay_kernel
from tests.support.schedules import ROOT, A, C, Draft, R, W

UNSEEN = {
    "smem-capacity": "bytes",
    "tensor-capacity": "columns",
    "register-range": "registers",
    "register-total": "registers",
    "register-pool": "registers",
    "register-entry": "registers",
    "register-copies": "registers",
    "matrix-tile": "instruction shapes",
    "tensor-memory": "which warp issues a tcgen05 gemm",
    "uniform-guard": "data that decides control flow",
    "copy-route": "what the copy engine can carry",
    "matrix-layout": "what the matrix unit can read",
}


def ring(trips: int = 6, depth: int = 2, **bodies: tuple[object, ...]) -> Draft:
    """One relay through one ring; bodies by role replace its own."""
    both = {
        "P": (A("a"), "load_0", C("a")),
        "Q": (W("a"), "use_0", R("a")),
    } | bodies
    return Draft(
        relay_kernel((trips,)),
        WIDE_CPU,
        (),
        roles("P", "Q"),
        (("a", ("S_0",), depth),),
        (
            ((ROOT, "P"), ("loop_0",)),
            ((ROOT, "Q"), ("loop_0",)),
            *((("loop_0", role), body) for role, body in both.items()),
        ),
        Extensions(launch=Launch(1)),
    )


def loop_body(draft: Draft, change: Callable[[Loop], tuple[object, ...]]) -> Draft:
    (loop,) = draft.kernel.body
    assert isinstance(loop, Loop)
    return evolve(draft, kernel=evolve(draft.kernel, body=(evolve(loop, body=change(loop)),)))


def guarded(draft: Draft) -> Draft:
    """The load is skipped in the last iterations, in which the kernel sees the value before."""
    return loop_body(draft, lambda s: (If("g", Var(s.var) < 3, s.body[:1]), *s.body[1:]))


def reader_first(draft: Draft) -> Draft:
    return loop_body(draft, lambda loop: (loop.body[1], loop.body[0]))


def accumulating(draft: Draft) -> Draft:
    """The producer reads what it left in the ring an iteration ago."""

    def change(loop: Loop) -> tuple[object, ...]:
        load, use = loop.body
        assert isinstance(load, Copy) and isinstance(use, Copy)
        shared = load.dst.buffer
        twice = evolve(load, id="keep", src=whole(shared), dst=use.dst)
        return (twice, load, use)

    return loop_body(draft, change)


def lagged(depth: int) -> Draft:
    kernel: Kernel = gemm_kernel(4, 4, 16)
    return Draft(
        kernel,
        H200,
        (("block_M", 4), ("block_N", 4), ("block_K", 2)),
        tuple(
            evolve(r, warps_lo=4 * n, warps_hi=4 * n + 4) for n, r in enumerate(roles("P", "Q"))
        ),
        (("ab", ("A_shared", "B_shared"), depth),),
        (
            ((ROOT, "P"), ("loop_k",)),
            ((ROOT, "Q"), ("clear", "loop_k", "store")),
            (("loop_k", "P"), (A("ab"), "copy_A", "copy_B", C("ab"))),
            (("loop_k", "Q"), (W("ab"), "mma", R("ab"))),
        ),
        Extensions(lags=(MatrixLag("mma", 1),)),
    )


def in_flight() -> Draft:
    """The accumulator is cleared in the loop, while the gemm of before may still be in flight."""
    draft = lagged(3)
    clear, loop, store = draft.kernel.body
    kernel = evolve(draft.kernel, body=(evolve(loop, body=(clear, *loop.body)), store))
    draft = evolve(draft, kernel=kernel).with_body(ROOT, "Q", ("loop_k", "store"))
    return draft.with_body("loop_k", "Q", ("clear", W("ab"), "mma", R("ab")))


def shared_op() -> Draft:
    return ring(P=(A("a"), "load_0", C("a"), "use_0"))


def without_use(draft: Draft) -> Draft:
    return draft.with_body("loop_0", "Q1", (W("a"), R("a")))


def bulk(draft: Draft) -> Draft:
    draft = draft.with_body("loop_0", "P", ("load_0", A("a"), C("a")))
    wide = evolve(draft, machine=H200)
    warps = tuple(evolve(r, warps_lo=4 * n, warps_hi=4 * n + 4) for n, r in enumerate(wide.roles))
    return evolve(wide, roles=warps).extended(routes=(Route("load_0", CopyRoute.BULK),))


def carried_turn() -> Draft:
    """A private copy made in the first iteration would be needed by the others."""
    draft = in_turn()
    kernel = draft.kernel
    (loop,) = kernel.body
    load, use = loop.body
    fragment = evolve(load.dst.buffer, name="F", scope=type(load.dst.buffer.scope).FRAGMENT)
    take = evolve(use, id="take", dst=whole(fragment))
    give = evolve(use, src=whole(fragment))
    first = If("first", Var(loop.var) < 1, (take,))
    kernel = evolve(
        kernel,
        buffers=(*kernel.buffers, fragment),
        body=(evolve(loop, body=(load, first, give)),),
    )
    draft = evolve(draft, kernel=kernel)
    for role in ("Q0", "Q1"):
        draft = draft.with_body("loop_0", role, (W("a"), "take", R("a"), "use_0"))
    return draft


WITNESSES: dict[str, Callable[[], Draft]] = {
    "span-pairing": lambda: ring(Q=(W("a"), "use_0")),
    "cycle-balance": lambda: ring(P=(A("a"), "load_0", C("a"), A("a"), C("a"))),
    "dependence-coverage": lambda: ring(Q=(W("a"), R("a"), "use_0")),
    "ring-order": lambda: reader_first(ring(depth=1)),
    "loop-carried": lambda: accumulating(ring(P=(A("a"), "keep", "load_0", C("a")))),
    "guarded-write": lambda: guarded(ring(depth=2)),
    "shared-op": shared_op,
    "equal-shares": lambda: without_use(in_turn()),
    "turn-phase": lambda: in_turn().with_depth("a", 1),
    "turn-private": carried_turn,
    "deadlock": lambda: chain(8).with_body(
        "loop_0", "P", (A("a"), "load_0", C("a"), A("c", 3), "load_1", C("c", 3))
    ),
    "ring-distance": lambda: lagged(1),
    "matrix-in-flight": in_flight,
    "async-side": lambda: bulk(ring()),
    "program-order": lambda: ring(P=(A("a"), C("a")), Q=(W("a"), "use_0", "load_0", R("a"))),
}


def test_every_safety_rule_has_a_witness_or_a_reason() -> None:
    safety = {rule.id for rule in RULES if rule.kind == "safety"}
    assert safety <= set(WITNESSES) | set(UNSEEN), safety - set(WITNESSES) - set(UNSEEN)
    assert set(WITNESSES) <= safety


@pytest.mark.parametrize("rule", WITNESSES)
def test_a_refusal_goes_wrong(rule: str) -> None:
    draft = WITNESSES[rule]()
    runs = trial(draft.kernel, draft.machine, dict(draft.sizes))
    found = {violation.rule for violation in runs.check(draft.schedule).violations}
    assert rule in found, found
    assert runs.fault(draft.schedule, seeds=40) != ""


def test_the_unchanged_schedules_are_legal_and_right() -> None:
    for draft in (ring(), chain(8), nested(), in_turn()):
        runs = trial(draft.kernel, draft.machine, dict(draft.sizes))
        assert runs.check(draft.schedule).ok
        assert runs.fault(draft.schedule, seeds=12) == ""
