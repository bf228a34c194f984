"""Base schedules of the conformance kernels, random changes of them, and both sides' verdicts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import tilelang.language as tilelang_lang
from attrs import evolve, frozen

import explorer.lang as own_lang
from explorer.constraints import check_parts
from explorer.ir.nodes import Kernel, Loop, Stmt
from explorer.machine import H200
from explorer.passes import materialize as materialize_program
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import Extensions
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope, WSSync
from tests.interop_tilelang import kernels
from tests.interop_tilelang.materialize import Counts, Materialized, Refused, materialize
from tests.support.mutations import MUTATIONS

A, C, W, R = (
    WSSync.producer_acquire,
    WSSync.producer_commit,
    WSSync.consumer_wait,
    WSSync.consumer_release,
)
ROOT = WSScope.ROOT
P = WSRole("P", warps_lo=0, warps_hi=1, max_nreg=40)
Q = WSRole("C", warps_lo=4, warps_hi=8, max_nreg=224)
P4 = WSRole("P", warps_lo=0, warps_hi=4, max_nreg=40)
M4 = WSRole("M", warps_lo=4, warps_hi=8, max_nreg=160)
C4 = WSRole("C", warps_lo=8, warps_hi=12, max_nreg=160)


@frozen
class Base:
    """A kernel of both surfaces with a schedule that both accept."""

    factory: Callable[..., Any]
    ws: WSSchedule
    sizes: tuple[tuple[str, int], ...] = ()

    def own(self) -> Kernel:
        """The kernel here; its loops allow any stage, as TileLang's do."""
        kernel: Kernel = self.factory(own_lang, lambda buffers: None, **dict(self.sizes))
        return evolve(kernel, body=_deep(kernel.body))

    def theirs(self, ws: WSSchedule) -> Any:
        def attach(buffers: dict[str, Any]) -> None:
            tilelang_lang.annotate_ws_schedule(as_tilelang(ws, buffers))

        return self.factory(tilelang_lang, attach, **dict(self.sizes))


def _deep(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(
        evolve(s, body=_deep(s.body), num_stages=64) if isinstance(s, Loop) else s for s in body
    )


def as_tilelang(ws: WSSchedule, buffers: dict[str, Any]) -> Any:
    """The schedule in TileLang's classes."""
    T = tilelang_lang
    syncs = {
        "acquire": T.WSSync.producer_acquire,
        "commit": T.WSSync.producer_commit,
        "wait": T.WSSync.consumer_wait,
        "release": T.WSSync.consumer_release,
    }

    def entry(instr: Any) -> Any:
        if isinstance(instr, WSSync):
            return syncs[instr.kind.value](instr.pipeline, instr.stage)
        return instr.id

    return T.WSSchedule(
        num_warps=ws.num_warps,
        roles=[
            T.WSRole(r.name, warps_lo=r.warps_lo, warps_hi=r.warps_hi, max_nreg=r.max_nreg)
            for r in ws.roles
        ],
        pipelines=[
            T.WSPipeline(p.name, [buffers[b] for b in p.buffers], depth=p.depth)
            for p in ws.pipelines
        ],
        scopes=[
            T.WSScope(
                T.WSScope.ROOT if s.id == ROOT else s.id,
                {role: [entry(e) for e in body] for role, body in s.bodies},
            )
            for s in ws.scopes
        ],
    )


def _ws(roles: Any, pipelines: Any, scopes: Any) -> WSSchedule:
    return WSSchedule(
        -(-max(role.warps_hi for role in roles) // 4) * 4,
        roles,
        [WSPipeline(*each) for each in pipelines],
        [WSScope(name, bodies) for name, bodies in scopes.items()],
    )


LOADS = [A("a"), "ca", C("a"), A("c"), "cc", C("c")]
USES = [W("a"), "ra", R("a"), "outa", W("c"), "rc", R("c"), "outc"]
BASES: dict[str, Base] = {
    "copy_ring": Base(
        kernels.copy_ring,
        _ws(
            (P, Q),
            [("buf", ["As"], 2)],
            {
                "lk": {"P": [A("buf"), "cin", C("buf")], "C": [W("buf"), "cfr", R("buf"), "cout"]},
                ROOT: {"P": ["lk"], "C": ["lk"]},
            },
        ),
    ),
    "two_rings": Base(
        kernels.two_rings,
        _ws(
            (P, Q),
            [("a", ["a"], 2), ("c", ["c"], 3)],
            {"lk": {"P": LOADS, "C": USES}, ROOT: {"P": ["lk"], "C": ["lk"]}},
        ),
    ),
    "relay": Base(
        kernels.relay,
        _ws(
            (P4, M4, C4),
            [("a", ["a"], 2), ("b", ["b"], 2)],
            {
                "lk": {
                    "P": [A("a"), "load", C("a")],
                    "M": [W("a"), "take", R("a"), A("b"), "give", C("b")],
                    "C": [W("b"), "read", R("b"), "out"],
                },
                ROOT: {"P": ["lk"], "M": ["lk"], "C": ["lk"]},
            },
        ),
    ),
    "gemm": Base(
        kernels.gemm,
        _ws(
            (P, Q),
            [("ab", ["As", "Bs"], 3)],
            {
                "lk": {
                    "P": [A("ab"), "copy_A", "copy_B", C("ab")],
                    "C": [W("ab"), "mma", R("ab")],
                },
                ROOT: {"P": ["lk"], "C": ["clear", "lk", "store"]},
            },
        ),
    ),
    "gemm of two rings": Base(
        kernels.gemm,
        _ws(
            (P, Q),
            [("a", ["As"], 2), ("b", ["Bs"], 2)],
            {
                "lk": {
                    "P": [A("a"), "copy_A", C("a"), A("b"), "copy_B", C("b")],
                    "C": [W("a"), W("b"), "mma", R("a"), R("b")],
                },
                ROOT: {"P": ["lk"], "C": ["clear", "lk", "store"]},
            },
        ),
    ),
    "nested": Base(
        kernels.nested,
        _ws(
            (P, Q),
            [("o", ["S"], 2), ("i", ["S"], 3)],
            {
                "lk": {
                    "P": [A("i"), "load", C("i")],
                    "C": [W("i"), "read", R("i"), "keep"],
                },
                "lw": {"P": [A("o"), "lk", C("o")], "C": ["lk", W("o"), "rl", R("o"), "out"]},
                ROOT: {"P": ["lw"], "C": ["lw"]},
            },
        ),
    ),
    "two_loops": Base(
        kernels.two_loops,
        _ws(
            (P, Q),
            [("a", ["a"], 2), ("c", ["c"], 2)],
            {
                "l1": {"P": LOADS[:3], "C": USES[:4]},
                "l2": {"P": LOADS[3:], "C": USES[4:]},
                ROOT: {"P": ["l1", "l2"], "C": ["l1", "l2"]},
            },
        ),
    ),
    "guarded": Base(
        kernels.guarded,
        _ws(
            (P, Q),
            [("buf", ["As"], 1)],
            {
                "lk": {"P": [A("buf"), "cin", C("buf")], "C": [W("buf"), "cfr", R("buf"), "cout"]},
                ROOT: {"P": ["lk"], "C": ["lk"]},
            },
        ),
    ),
    "carried": Base(
        kernels.carried,
        _ws(
            (P4, M4, C4),
            [("buf", ["As"], 2), ("t", ["total"], 1)],
            {
                "lk": {
                    "P": [A("buf"), "cin", C("buf")],
                    "M": [W("buf"), A("t"), "add", C("t"), R("buf")],
                    "C": [W("t"), "cfr", R("t"), "cout"],
                },
                ROOT: {"P": ["lk"], "M": ["lk"], "C": ["lk"]},
            },
        ),
    ),
}

# What TileLang's classes can say: no sides, splits, lags, or stages of ops.
_NAMES = tuple(
    name
    for name in MUTATIONS
    if name not in ("stage of an op", "lag of a gemm", "change a side", "drop the split")
)


def _roles(ws: WSSchedule, rng: random.Random) -> WSSchedule:
    at = rng.randrange(len(ws.roles))
    role = ws.roles[at]
    field, value = rng.choice(
        [
            ("max_nreg", rng.choice((0, 16, 24, 40, 41, 160, 240, 248, 264))),
            ("warps_lo", max(0, role.warps_lo + rng.choice((-1, 1, 4)))),
            ("warps_hi", role.warps_hi + rng.choice((-1, 1, 4))),
        ]
    )
    changed = evolve(role, **{field: value})
    roles = tuple(changed if n == at else other for n, other in enumerate(ws.roles))
    warps = rng.choice((ws.num_warps, ws.num_warps, ws.num_warps + 4, 6, 64))
    return evolve(ws, roles=roles, num_warps=warps)


def variants(ws: WSSchedule, rng: random.Random) -> Iterator[tuple[str, WSSchedule]]:
    """Endless random variants: one or two changes of a base."""
    binding = Schedule(bind(kernels_of_nothing(), "h200", {}), ws)
    while True:
        schedule, names = binding, []
        for _ in range(rng.choice((1, 1, 1, 2))):
            name = rng.choice((*_NAMES, "roles"))
            if name == "roles":
                schedule = evolve(schedule, ws=_roles(schedule.ws, rng))
            else:
                schedule = MUTATIONS[name](schedule, rng) or schedule
            names.append(name)
        yield " and ".join(names), schedule.ws


def kernels_of_nothing() -> Kernel:
    return Kernel("nothing", (), (), own_lang.Param("threads"), (), ())


@frozen
class Verdicts:
    """What both sides say: the rules broken here, and TileLang's refusal or result."""

    rules: dict[str, str]
    refusal: str
    result: Materialized | None

    @property
    def agree(self) -> bool:
        return bool(self.rules) == bool(self.refusal)


def verdicts(base: Base, own: Kernel, ws: WSSchedule) -> Verdicts:
    found = check_parts(own, ws, Extensions(), H200).violations
    rules = {violation.rule: violation.message for violation in found}
    try:
        return Verdicts(rules, "", materialize(base.theirs(ws)))
    except Refused as refused:
        return Verdicts(rules, str(refused), None)
    except Exception as problem:
        return Verdicts(rules, f"{type(problem).__name__}: {problem}", None)


def own_counts(own: Kernel, ws: WSSchedule) -> dict[str, Counts]:
    program = materialize_program(own, Schedule(bind(own, "h200", {}), ws), H200)
    return {
        each.pipeline: Counts((each.full_count,) * each.depth, (each.empty_count,) * each.depth)
        for each in program.barriers
    }
