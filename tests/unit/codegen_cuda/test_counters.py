"""The slot and parity registers follow the law of cycles."""

from __future__ import annotations

import re

import pytest

from explorer.codegen.cuda.counters import Counter, Mode, counters_of
from explorer.expr import Const, Var, compare
from explorer.program.events import parity, slot
from explorer.program.nodes import For, RoleProgram, Signal, Wait, When
from explorer.schedule.ws import WSRole
from tests.support.cuda_candidates import DIRECT, GOOD, candidate, gemm_space, program_of

ROLE = WSRole("r", warps_lo=0, warps_hi=4)
WAIT, SIGNAL = Wait("p", full=True), Signal("p", full=False)


def mode(*body: object) -> Mode:
    return counters_of(RoleProgram(ROLE, body), {"p": 2})["p"].mode  # type: ignore[arg-type]


def run(counter: Counter, statements: list[str]) -> list[tuple[int, int]]:
    """(slot, parity) before each statement; the C of the registers read as Python."""
    state: dict[str, int] = {}
    for name, value in re.findall(r"(\w+) = (\d)u", counter.declaration()):
        state[name] = int(value)
    seen = []
    for text in statements:
        seen.append((state.get(counter.next_slot, 0), state[counter.parity]))
        found = re.match(r"if \(\+\+(\w+) == (\d+)u\) \{ \w+ = 0u; (\w+) \^= 1u; \}", text)
        if found is None:
            state[counter.parity] ^= 1
            continue
        state[found[1]] += 1
        if state[found[1]] == int(found[2]):
            state[found[1]] = 0
            state[found[3]] ^= 1
    return seen


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("full", [True, False])
def test_registers_are_the_law_of_cycles(depth: int, full: bool) -> None:
    """C06, C07: one law for the whole life of a block; a single slot has its own parity."""
    counter = Counter("p", depth, full, Mode.SIMPLE)
    expected = [(slot(n, depth), parity(n, depth, full)) for n in range(12)]
    assert run(counter, [counter.advance()] * 12) == expected


def test_modes() -> None:
    loop = For("i", Const(0), Const(4), (WAIT, SIGNAL))
    assert mode(loop) == Mode.SIMPLE
    assert mode(WAIT, For("i", Const(1), Const(4), (WAIT, SIGNAL)), SIGNAL) == Mode.LAGGED
    guarded = When(compare("<", Var("i"), 2), (WAIT,))
    assert mode(For("i", Const(0), Const(4), (guarded, SIGNAL))) == Mode.LAGGED


def test_the_consumer_of_a_lagging_gemm_is_lagged_and_the_producer_simple() -> None:
    space = gemm_space("gemm", (256, 256, 512))
    program = program_of(space, candidate(space, DIRECT, **(GOOD | {"depth_A_B": 4})))
    depths = {"A_B": 4}
    producer, consumer, _ = program.roles
    assert counters_of(producer, depths)["A_B"].mode == Mode.SIMPLE
    assert counters_of(consumer, depths)["A_B"].mode == Mode.LAGGED


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("cycles", [0, 1, 3, 4, 7, 8, 128])
def test_cycles_of_others_are_passed_over_by_constants(depth: int, cycles: int) -> None:
    """From every cycle: slot, parity and the closing slot stand where the law says."""
    counter = Counter("p", depth, True, Mode.LAGGED)
    for begin in range(2 * depth):
        at = {
            "s_p": slot(begin, depth),
            "r_p": slot(begin, depth),
            "p_p": parity(begin, depth, True),
        }
        for text in counter.skip(cycles):
            condition, _, body = text.removeprefix("if (").partition(") {")
            plain = body.removesuffix("}") if text.startswith("if") else text
            if text.startswith("if") and not eval(condition.replace("u", ""), {}, at):
                continue
            exec(plain.replace("u;", ";").strip().replace("; ", "\n").replace(";", ""), {}, at)
        assert (at["s_p"] if depth > 1 else 0) == slot(begin + cycles, depth)
        assert at["r_p"] == (at["s_p"] if depth > 1 else 0)
        assert at["p_p"] == parity(begin + cycles, depth, True)
