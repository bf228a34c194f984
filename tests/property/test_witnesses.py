"""Every safety rule that the simulator can speak for refuses a schedule that fails there.

Most are refused by the rules alone; where the passes refuse them too, the program is built that
they would have made. The rest are about what the simulator does not hold: bytes, registers,
instruction shapes, data that decides control flow.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve, frozen

from explorer.constraints import RULES
from explorer.errors import ExplorerError
from explorer.expr import Var, const
from explorer.ir.nodes import (
    Copy,
    Define,
    Fill,
    If,
    Index,
    Kernel,
    Literal,
    Loop,
    While,
    whole,
)
from explorer.ir.pools import FixedPlace, Pool
from explorer.ir.uniform import row_share
from explorer.machine import H200, Scope
from explorer.passes import materialize
from explorer.passes.share_bytes import share_bytes
from explorer.program.launch import rank
from explorer.program.nodes import Exec, Program, Signal, Step
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixLag,
    Route,
    Side,
    SideMode,
)
from tests.property.test_mutations import WIDE_CPU, chain, in_turn, nested, roles
from tests.support.outcomes import trial
from tests.support.placed import moved
from tests.support.programs import edit_role, gemm_kernel, gemm_schedule, relay_kernel
from tests.support.schedules import ROOT, A, C, Draft, R, W

UNSEEN = {
    "smem-capacity": "bytes",
    "tensor-capacity": "columns",
    "register-range": "registers",
    "register-total": "registers",
    "register-pool": "registers",
    "matrix-tile": "instruction shapes",
    "tensor-memory": "which warp issues a tcgen05 gemm",
    "uniform-guard": "data that decides control flow",
    "copy-route": "what the copy engine can carry",
    "cluster-edge": "copies that do not check a dimension; simulated ones check all of them",
    "pool-conditions": "alignment of bytes, and where a memory ends",
    "pool-columns": "columns and lanes of tensor memory",
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


def two_sums(parts: int) -> Draft:
    """Two roles with a sum each draw the tickets of one tile, which count parts, not roles."""
    draft = lagged(2)
    clear, loop, store = draft.kernel.body
    assert isinstance(clear, Fill) and isinstance(loop, Loop) and isinstance(store, Copy)
    local, tensor = evolve(clear.dst.buffer, name="D_local"), evolve(store.dst.buffer, name="D")
    mma = evolve(loop.body[-1], id="mma_D", c=whole(local))
    out = evolve(store, id="store_D", src=whole(local), dst=evolve(store.dst, buffer=tensor))
    cleared = evolve(clear, id="clear_D", dst=whole(local))
    kernel = evolve(
        draft.kernel,
        tensors=(*draft.kernel.tensors, tensor),
        buffers=(*draft.kernel.buffers, local),
        body=(clear, cleared, evolve(loop, body=(*loop.body, mma)), store, out),
    )
    (third,) = (evolve(role, warps_lo=8, warps_hi=12) for role in roles("R"))
    side = Side("ab", False, SideMode.SHARED, ("Q", "R"))
    draft = evolve(
        draft,
        kernel=kernel,
        roles=(*draft.roles, third),
        extensions=Extensions(sides=(side,), launch=Launch(split=parts)),
    )
    draft = draft.with_body(ROOT, "R", ("clear_D", "loop_k", "store_D"))
    return draft.with_body("loop_k", "R", (W("ab"), "mma_D", R("ab")))


def stepping(*consumer: str) -> Draft:
    """A ring in a while loop, whose consumer ends an iteration with these ops."""
    draft = ring()
    (loop,) = draft.kernel.body
    assert isinstance(loop, Loop)
    step = Define("step", loop.var, Index(Var(loop.var) + 1))
    start = Define("start", loop.var, Literal(0))
    body = (start, While(loop.id, Var(loop.var) < loop.extent, (*loop.body, step)))
    draft = evolve(draft, kernel=evolve(draft.kernel, body=body))
    for role in ("P", "Q"):
        draft = draft.with_body(ROOT, role, ("start", loop.id))
        steps = ("step",) if role == "P" else consumer
        draft = draft.with_body(loop.id, role, (*draft.body(loop.id, role), *steps))
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
    "scalar-definition": stepping,
    "split-reduction": lambda: two_sums(2),
}


# ---------------------------------------------------------------- what the passes refuse as well


@frozen
class Built:
    """A refused schedule, and the program that it would have been."""

    kernel: Kernel
    schedule: Schedule
    program: Program


def in_one_place() -> Built:
    """Two values that are held at once in the same bytes of a pool."""
    kernel = relay_kernel((3,), ops=2, width=32)
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    order = ("load_0", "load_1", "use_0", "use_1")
    body = tuple(sorted(loop.body, key=lambda op: order.index(op.id)))
    kernel = evolve(kernel, body=(evolve(loop, body=body),))
    root = (((ROOT, "all"), ("loop_0",)), (("loop_0", "all"), order))
    group = tuple(evolve(role, warps_hi=4) for role in roles("all"))
    draft = Draft(kernel, H200, (), group, (), root, Extensions())
    program = materialize(kernel, draft.schedule, H200)
    assert program.placement is not None
    at = moved(program.placement, "S_1", "S_0")
    places = tuple(FixedPlace(name, const(0), const(128)) for name in ("S_0", "S_1"))
    pooled = evolve(kernel, pools=(Pool("pool", Scope.SHARED, const(256), places),))
    draft = evolve(draft, kernel=pooled)
    return Built(pooled, draft.schedule, share_bytes(program, H200, at))


def in_shares(rows: int) -> Built:
    """Two blocks fetch half of the rows of a tile each; of three rows, one is left over.

    What the rule asks beyond equal shares, whole swizzle patterns, is a matter of bytes.
    """
    kernel = gemm_kernel(2 * rows, 8, 8)
    alone = gemm_schedule(kernel, H200, tile=(rows, 4, 4), consumer_warps=4)
    launch = Launch(cluster=2)

    def share(step: Step) -> list[Step]:
        if isinstance(step, Signal) and not step.full:
            return [evolve(step, blocks=2)]
        if isinstance(step, Exec) and step.op.id == "copy_A":
            return [evolve(step, op=row_share(step.op, rank(launch), 2), multicast=2)]
        return [step]

    program = materialize(kernel, alone, H200)
    for role in ("P", "C"):
        program = edit_role(program, role, share)
    (counts,) = program.barriers
    both = evolve(counts, empty_count=2 * counts.empty_count)
    clustered = evolve(alone, extensions=evolve(alone.extensions, launch=launch))
    return Built(kernel, clustered, evolve(program, launch=launch, barriers=(both,)))


def carried_sum() -> Built:
    """Sums that start at one: every part adds a one of its own."""
    kernel = gemm_kernel(8, 8, 16)
    extensions = Extensions(launch=Launch(3, split=2))
    schedule = gemm_schedule(kernel, H200, consumer_warps=4, extensions=extensions)
    clear, *rest = kernel.body
    assert isinstance(clear, Fill)
    one = Literal(1.0)

    def begin(step: Step) -> list[Step]:
        cleared = isinstance(step, Exec) and isinstance(step.op, Fill)
        return [evolve(step, op=evolve(step.op, value=one))] if cleared else [step]

    program = edit_role(materialize(kernel, schedule, H200), "C", begin)
    kernel = evolve(kernel, body=(evolve(clear, value=one), *rest))
    binding = bind(kernel, H200.name, schedule.params)
    return Built(kernel, evolve(schedule, binding=binding), program)


BUILT: tuple[tuple[str, Callable[[], Built]], ...] = (
    ("pool-overlap", in_one_place),
    ("cluster-shares", lambda: in_shares(3)),
    ("split-reduction", carried_sum),
)


def test_every_safety_rule_has_a_witness_or_a_reason() -> None:
    safety = {rule.id for rule in RULES if rule.kind == "safety"}
    shown = set(WITNESSES) | {rule for rule, _ in BUILT}
    assert safety <= shown | set(UNSEEN), safety - shown - set(UNSEEN)
    assert shown | set(UNSEEN) <= safety
    assert not shown & set(UNSEEN)


@pytest.mark.parametrize("rule", WITNESSES)
def test_a_refusal_goes_wrong(rule: str) -> None:
    draft = WITNESSES[rule]()
    runs = trial(draft.kernel, draft.machine, dict(draft.sizes))
    found = {violation.rule for violation in runs.check(draft.schedule).violations}
    assert rule in found, found
    assert runs.fault(draft.schedule, seeds=40) != ""


@pytest.mark.parametrize(("rule", "build"), BUILT, ids=[rule for rule, _ in BUILT])
def test_what_the_passes_refuse_would_go_wrong(rule: str, build: Callable[[], Built]) -> None:
    built = build()
    runs = trial(built.kernel, H200, dict(built.schedule.params))
    assert rule in {violation.rule for violation in runs.check(built.schedule).violations}
    with pytest.raises(ExplorerError):
        materialize(built.kernel, built.schedule, H200)
    assert runs.program_fault(built.program, seeds=12) != ""


def test_equal_shares_are_what_the_passes_make() -> None:
    built = in_shares(4)
    assert built.program == materialize(built.kernel, built.schedule, H200)


def test_the_unchanged_schedules_are_legal_and_right() -> None:
    for draft in (ring(), chain(8), nested(), in_turn(), stepping("step")):
        runs = trial(draft.kernel, draft.machine, dict(draft.sizes))
        assert runs.check(draft.schedule).ok
        assert runs.fault(draft.schedule, seeds=12) == ""


def test_two_sums_without_parts_are_right() -> None:
    draft = two_sums(1)
    runs = trial(draft.kernel, draft.machine, dict(draft.sizes))
    found = {violation.rule for violation in runs.check(draft.schedule).violations}
    assert "split-reduction" not in found
    assert runs.fault(draft.schedule, seeds=12) == ""
