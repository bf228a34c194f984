"""Roles that take turns over their own loop, an outer loop, or tiles: rules against simulator."""

from __future__ import annotations

import itertools

import pytest
from attrs import evolve

from explorer.constraints import check_parts
from explorer.expr import Var
from explorer.ir.nodes import Kernel, Loop
from explorer.machine import CPU, H200, Machine
from explorer.passes import materialize
from explorer.program.events import role_events
from explorer.program.simulator import trace
from explorer.program.verdict import Finished
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
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.support.programs import relay_kernel
from tests.support.schedules import ROOT, A, C, R, W

WIDE = evolve(CPU, units=16)
SEEDS = range(24)


def turns(
    kernel: Kernel,
    machine: Machine,
    count: int,
    depth: int,
    over: str = "",
    scope: str = "loop_0",
    tokens: bool = False,
    extensions: Extensions = Extensions(launch=Launch(1)),
) -> tuple[WSSchedule, Extensions]:
    """A producer and `count` consumers that take turns over a scope, a ring in `scope`."""
    group = machine.warps_per_group
    names = [f"Q{n}" for n in range(count)]
    roles = [WSRole("P", warps_lo=0, warps_hi=1)]
    roles += [
        WSRole(name, warps_lo=group * (n + 1), warps_hi=group * (n + 2))
        for n, name in enumerate(names)
    ]
    loops = {s.id for s in _loops(kernel)}
    bodies: dict[str, dict[str, list[object]]] = {ROOT: {}, **{name: {} for name in loops}}
    order = [name for name in ("loop_0", "loop_1") if name in loops]
    for role in ("P", *names):
        for outer, inner in zip([ROOT, *order], order, strict=False):
            bodies[outer][role] = [inner]
    bodies[scope]["P"] = [A("a"), "load_0", C("a")]
    for name in names:
        bodies[scope][name] = [W("a"), "use_0", R("a")]
    pipelines = [WSPipeline("a", ["S_0"], depth)]
    if tokens:
        pipelines.append(WSPipeline("t", [], 1))
        (level,) = [
            outer for outer, inner in zip([ROOT, *order], order, strict=False) if outer == over
        ]
        for name, (opens, closes) in zip(names, ((A, C), (W, R)), strict=True):
            bodies[level][name] = [opens("t"), *bodies[level][name], closes("t")]
    ws = WSSchedule(
        group * (count + 1),
        roles,
        pipelines,
        [WSScope(name, body) for name, body in bodies.items()],
    )
    side = Side("a", False, SideMode.ALTERNATING, tuple(names), over)
    return ws, evolve(extensions, sides=(side,))


def _loops(kernel: Kernel) -> list[Loop]:
    found, body = [], kernel.body
    while body and isinstance(body[0], Loop):
        found.append(body[0])
        body = body[0].body
    return found


def verdict(kernel: Kernel, machine: Machine, parts: tuple[WSSchedule, Extensions]) -> set[str]:
    found = check_parts(kernel, *parts, machine)
    return {violation.rule for violation in found.violations}


def right(kernel: Kernel, machine: Machine, parts: tuple[WSSchedule, Extensions]) -> bool:
    program = materialize(kernel, Schedule(bind(kernel, machine.name, {}), *parts), machine)
    return all(isinstance(trace(program, seed), Finished) for seed in SEEDS)


@pytest.mark.parametrize("count", [2, 3])
def test_a_ring_of_fewer_slots_than_roles_is_refused_and_goes_wrong(count: int) -> None:
    """The roles' own loop, copies by threads: depth >= the number of roles."""
    for depth, extent in itertools.product(range(1, 7), (0, 1, 2, 5, 12)):
        kernel = relay_kernel((extent,))
        parts = turns(kernel, WIDE, count, depth)
        legal = verdict(kernel, WIDE, parts) == set()
        assert legal == (depth >= count)
        assert right(kernel, WIDE, parts) or not legal
        if not legal and extent == 12:
            assert not right(kernel, WIDE, parts)


def test_bulk_copies_need_a_whole_number_of_rounds() -> None:
    """They land in any order: with 3 slots and 2 roles an older phase can mimic the awaited."""
    kernel = relay_kernel((12,))
    bulk = Extensions(launch=Launch(1), routes=(Route("load_0", CopyRoute.BULK),))
    for depth in range(1, 7):
        parts = turns(kernel, H200, 2, depth, extensions=bulk)
        # Tiles this small do not travel by the copy engine, which is a rule of its own.
        found = verdict(kernel, H200, parts) - {"copy-route"}
        assert found == (set() if depth % 2 == 0 else {"turn-phase"})
        assert right(kernel, H200, parts) == (depth % 2 == 0)


@pytest.mark.parametrize(("outer", "inner"), [(0, 3), (1, 3), (4, 3), (5, 1), (3, 0), (7, 2)])
@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_turns_over_an_outer_loop_ordered_by_a_token(outer: int, inner: int, depth: int) -> None:
    kernel = relay_kernel((outer, inner))
    parts = turns(kernel, WIDE, 2, depth, "loop_0", "loop_1", tokens=True)
    assert verdict(kernel, WIDE, parts) == set()
    assert right(kernel, WIDE, parts)


def test_turns_over_an_outer_loop_without_a_token() -> None:
    """In order: (n - 1) turns of cycles and one more; without that, some interleaving fails."""
    kernel = relay_kernel((6, 2))
    for depth in range(1, 7):
        parts = turns(kernel, WIDE, 2, depth, "loop_0", "loop_1")
        legal = verdict(kernel, WIDE, parts) == set()
        assert legal == (depth >= 3)
        assert right(kernel, WIDE, parts) == legal


def test_a_triangular_nest_is_passed_over_cycle_by_cycle() -> None:
    kernel = relay_kernel((5, Var("i0") + 1))
    parts = turns(kernel, WIDE, 2, 3, "loop_0", "loop_1", tokens=True)
    assert verdict(kernel, WIDE, parts) == set()
    program = materialize(kernel, Schedule(bind(kernel, "cpu", {}), *parts), WIDE)
    cycles = {
        role: [
            e.cycle for e in role_events(program, role) if (e.kind, e.pipeline) == ("wait", "a")
        ]
        for role in ("Q0", "Q1")
    }
    assert cycles == {"Q0": [0, 3, 4, 5, *range(10, 15)], "Q1": [1, 2, *range(6, 10)]}
    loose = turns(kernel, WIDE, 2, 3, "loop_0", "loop_1")
    assert verdict(kernel, WIDE, loose) == {"turn-phase"}


@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_turns_over_the_tiles_of_a_block(tiles: int) -> None:
    kernel = evolve(relay_kernel((4,)), grid=(("bx", Var("bx") * 0 + tiles),))
    parts = turns(kernel, WIDE, 2, 2, ROOT, "loop_0", tokens=True)
    assert verdict(kernel, WIDE, parts) == set()
    ws, extensions = parts
    once = ws, evolve(extensions, launch=Launch(0))
    assert "turn-form" in verdict(kernel, WIDE, once)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"over": "nothing"}, "extension-names"),
        ({"over": "loop_0"}, "turn-form"),
        ({"roles": ("Q1", "Q0")}, "deadlock"),
        ({"roles": ("Q0",)}, "pipeline-sides"),
    ],
)
def test_malformed_turns(change: dict[str, object], rule: str) -> None:
    kernel = relay_kernel((4,))
    ws, extensions = turns(kernel, WIDE, 2, 2, ROOT, "loop_0", tokens=True)
    if change.get("over") == "loop_0":  # below it, the token is no longer in the turns' scope
        extensions = evolve(extensions, lags=(MatrixLag("load_0", 1),))
    (side,) = extensions.sides
    extensions = evolve(extensions, sides=(evolve(side, **change),))
    assert rule in verdict(kernel, WIDE, (ws, extensions))
