"""Mutations of legal schedules: refused with a rule, or harmless in every interleaving tried.

Bases are sampled from derived spaces and written by hand: chains of rings with stages, nested
rings, shared sides with order tokens, turns over tiles and over iterations.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest
from attrs import evolve

from explorer.constraints import FeasibleModel, rule_named
from explorer.ir.nodes import Kernel
from explorer.machine import CPU, H200, Machine
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import Extensions, Launch, OpStage, Side, SideMode
from explorer.schedule.ws import WSRole
from explorer.space import SKELETON, build_space
from tests.kernels.attention import attention
from tests.kernels.dequant import dequant_gemm
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.gemm import gemm
from tests.support.mutations import mutants
from tests.support.nested import carried_kernel
from tests.support.outcomes import Trial, trial
from tests.support.programs import relay_kernel
from tests.support.schedules import (
    ROOT,
    A,
    C,
    Draft,
    R,
    W,
    flash_attention_3,
    ping_pong_gemm,
)

WIDE_CPU = evolve(CPU, units=8)
TILES = {"block_M": (64, 128), "block_N": (16, 64), "block_K": (16, 32)}
KERNELS: dict[str, Kernel] = {
    "gemm_nn": gemm(100, 80, 72, "float16"),
    "gemm_nt": gemm(100, 80, 72, "float16", transpose_b=True),
    "gemm_tn": gemm(100, 80, 72, "float16", transpose_a=True),
    "attention": attention(1, 2, 1, 40, 56, 32, causal=True),
    "dequant": dequant_gemm(70, 64, 64),
    "epilogue": gemm_epilogue(72, 56, 40),
}


def roles(*names: str) -> tuple[WSRole, ...]:
    return tuple(WSRole(name, warps_lo=n, warps_hi=n + 1) for n, name in enumerate(names))


def chain(trips: int) -> Draft:
    """Two rings, the second loaded an iteration later."""
    loads = (A("a"), "load_0", C("a"), A("c", 1), "load_1", C("c", 1))
    uses = (W("a"), "use_0", R("a"), W("c"), "use_1", R("c"))
    kernel = relay_kernel((trips,), ops=2)
    (loop,) = kernel.body
    return Draft(
        evolve(kernel, body=(evolve(loop, num_stages=4),)),
        WIDE_CPU,
        (),
        roles("P", "Q"),
        (("a", ("S_0",), 2), ("c", ("S_1",), 3)),
        (
            ((ROOT, "P"), ("loop_0",)),
            ((ROOT, "Q"), ("loop_0",)),
            (("loop_0", "P"), loads),
            (("loop_0", "Q"), uses),
        ),
        Extensions(launch=Launch(1)),
    )


def nested() -> Draft:
    """A ring inside the ring of an outer loop, one buffer in both."""
    return Draft(
        carried_kernel(3, 4),
        WIDE_CPU,
        (),
        roles("P", "Q"),
        (("o", ("S",), 2), ("i", ("S",), 3)),
        (
            ((ROOT, "P"), ("loop_w",)),
            ((ROOT, "Q"), ("loop_w",)),
            (("loop_w", "P"), (A("o"), "loop_k", C("o"))),
            (("loop_w", "Q"), ("loop_k", W("o"), "read_last", R("o"))),
            (("loop_k", "P"), (A("i"), "load", C("i"))),
            (("loop_k", "Q"), (W("i"), "read", R("i"))),
        ),
        Extensions(launch=Launch(1)),
    )


def in_turn() -> Draft:
    """Two consumers on alternating iterations of one loop."""
    use = (W("a"), "use_0", R("a"))
    return Draft(
        relay_kernel((7,)),
        WIDE_CPU,
        (),
        roles("P", "Q0", "Q1"),
        (("a", ("S_0",), 3),),
        (
            ((ROOT, "P"), ("loop_0",)),
            ((ROOT, "Q0"), ("loop_0",)),
            ((ROOT, "Q1"), ("loop_0",)),
            (("loop_0", "P"), (A("a"), "load_0", C("a"))),
            (("loop_0", "Q0"), use),
            (("loop_0", "Q1"), use),
        ),
        Extensions(
            sides=(Side("a", False, SideMode.ALTERNATING, ("Q0", "Q1")),), launch=Launch(1)
        ),
    )


def fast_attention(machine: Machine) -> Draft:
    kernel = attention(1, 2, 1, 128, 112, 32)
    return flash_attention_3(kernel, machine, 128, 16).extended(launch=Launch(1))


DRAFTS = {
    "chain": lambda: chain(6),
    "short chain": lambda: chain(1),
    "nested": nested,
    "in turn": in_turn,
    "attention": lambda: fast_attention(WIDE_CPU),
    "attention on h200": lambda: fast_attention(H200),
    "ping pong": lambda: ping_pong_gemm(gemm(320, 64, 64, "float16"), WIDE_CPU, (64, 64, 16)),
    "ping pong on h200": lambda: ping_pong_gemm(gemm(320, 64, 64, "float16"), H200, (64, 64, 16)),
}

# A run of one of these takes as long as four of another.
LONG = ("attention", "attention on h200")


@cache
def drafted(name: str) -> tuple[Trial, Schedule]:
    draft = DRAFTS[name]()
    return trial(draft.kernel, draft.machine, dict(draft.sizes)), draft.schedule


@cache
def sampled(name: str, machine: Machine, seed: int) -> tuple[Trial, Schedule]:
    kernel = KERNELS[name]
    tiles = {tile: values for tile, values in TILES.items() if tile in kernel.params}
    space = build_space(kernel, machine, tiles)
    rng = random.Random(seed)
    wish = {choice.name: rng.choice(choice.domain) for choice in space.choices}
    wish[SKELETON] = rng.randrange(1, len(space.skeletons))
    schedule = space.candidate(dict(FeasibleModel(space).project(wish).assignment))
    return trial(kernel, machine, schedule.params), schedule


def assert_mutants_are_caught(runs: Trial, base: Schedule, rng: random.Random, count: int) -> None:
    assert runs.check(base).ok
    tally: Counter[str] = Counter()
    for name, mutant in mutants(base, rng, count):
        found = runs.check(mutant).violations
        if found:
            tally["refused"] += 1
            assert all(rule_named(violation.rule) for violation in found)
            continue
        tally["accepted"] += 1
        fault = runs.fault(mutant, seeds=6)
        assert fault == "", (name, fault, mutant.ws, mutant.extensions)
    assert tally["refused"] > tally["accepted"] // 4


@pytest.mark.parametrize("name", DRAFTS)
def test_mutants_of_written_schedules(name: str) -> None:
    assert_mutants_are_caught(*drafted(name), random.Random(11), 30)


@pytest.mark.parametrize("machine", [CPU, H200], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", KERNELS)
def test_mutants_of_sampled_schedules(name: str, machine: Machine) -> None:
    assert_mutants_are_caught(*sampled(name, machine, 1), random.Random(5), 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", DRAFTS)
def test_many_mutants_of_written_schedules(name: str, seed: int) -> None:
    count = 80 if name in LONG else 200
    assert_mutants_are_caught(*drafted(name), random.Random(100 + seed), count)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
@pytest.mark.parametrize("machine", [CPU, H200], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", KERNELS)
def test_many_mutants_of_sampled_schedules(name: str, machine: Machine, seed: int) -> None:
    assert_mutants_are_caught(*sampled(name, machine, seed), random.Random(seed), 60)


def test_two_faults_at_once_are_no_less_caught() -> None:
    runs, base = drafted("chain")
    rng = random.Random(2)
    for _, first in mutants(base, rng, 60):
        for name, second in mutants(first, rng, 1):
            if runs.check(second).ok:
                assert runs.fault(second, seeds=6) == "", (name, second.ws, second.extensions)


def test_a_stage_given_to_an_op_alone_is_kept_apart(recwarn: object) -> None:
    runs, base = drafted("chain")
    staged = evolve(base, extensions=evolve(base.extensions, stages=(OpStage("Q", "use_0", 1),)))
    assert {v.rule for v in runs.check(staged).violations} == {"span-stages"}
