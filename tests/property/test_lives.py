"""Lives against execution: buffers that share bytes outside their lives change no output.

Random kernels run twice: every buffer apart, and all buffers in one array of bytes at random
offsets. Where the rule on pools finds no conflict, the outputs are the same.
"""

from __future__ import annotations

from itertools import combinations, count
from random import Random

import numpy as np
from attrs import evolve
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from explorer.expr import TRUE, Cond, Var, const
from explorer.ir.dtypes import dtype
from explorer.ir.interpreter import run, run_body
from explorer.ir.lives import Life, lives
from explorer.ir.nodes import (
    Arith,
    Buffer,
    Copy,
    Element,
    Fill,
    If,
    Kernel,
    Literal,
    Loop,
    Map,
    Region,
    Stmt,
    Store,
    whole,
)
from explorer.machine import Scope

F32 = dtype("float32")
BYTES = 16
X = Buffer("X", (const(8), const(4)), F32, Scope.GLOBAL)
Y = Buffer("Y", (const(8), const(4)), F32, Scope.GLOBAL)
BUFFERS = tuple(Buffer(f"b{k}", (const(4),), F32, Scope.SHARED) for k in range(4))
buffers = st.sampled_from(BUFFERS)


def _row(tensor: Buffer, row: int) -> Region:
    return Region(tensor, (const(row), const(0)), (const(1), const(4)), frozenset({0}))


def _half(buffer: Buffer, start: int) -> Region:
    return Region(buffer, (const(start),), (const(2),))


@st.composite
def ops(draw: st.DrawFn, guarded: bool) -> Stmt:
    """An op; mostly one row of X in, or one row of Y out, some of the former in one turn only."""
    kind = draw(st.integers(0, 9))
    one, other, row = draw(buffers), draw(buffers), draw(st.integers(0, 7))
    load = Copy("", _row(X, row), whole(one))
    if kind < 2:
        return load
    if kind < 4 and guarded:
        return If("", Var("i3") < 1, (load,))
    if kind < 7:
        return Copy("", whole(one), _row(Y, row))
    if kind == 7:
        return Copy("", _half(one, 0), _half(other, draw(st.sampled_from((0, 2)))))
    if kind == 8:
        return Fill("", whole(one), Literal(float(row)))
    guard: Cond = draw(st.sampled_from((TRUE, TRUE, Var("e") < 2)))
    index = (Var("e"),)
    value = Arith("+", Element(other, index), Literal(float(row)))
    return Map("", (("e", const(4)),), (Store(one, index, value),), (guard,))


def bodies(depth: int) -> st.SearchStrategy[list[Stmt]]:
    statement: st.SearchStrategy[Stmt] = ops(depth > 0)
    if depth > 1:
        inner = bodies(depth - 1)
        trips = st.integers(1, 2)
        statement |= st.builds(
            lambda body, trips: Loop(
                "", f"i{depth}", const(0), const(trips), "serial", 0, tuple(body)
            ),
            inner,
            trips,
        )
    return st.lists(statement, min_size=2, max_size=7)


def _named(body: list[Stmt] | tuple[Stmt, ...], numbers: count[int]) -> tuple[Stmt, ...]:
    """The statements with ids of their own."""
    result: list[Stmt] = []
    for statement in body:
        named = evolve(statement, id=f"s{next(numbers)}")
        if isinstance(named, Loop | If):
            named = evolve(named, body=_named(named.body, numbers))
        result.append(named)
    return tuple(result)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    outer = Loop("", "i3", const(0), const(3), "serial", 0, tuple(draw(bodies(2))))
    last = Copy("", whole(draw(buffers)), _row(Y, 0))
    body = [outer, *draw(st.lists(ops(False), max_size=3)), last]
    grid = (("block", const(1)),)
    return Kernel("k", (X, Y), grid, const(1), BUFFERS, _named(body, count()))


def apart(offsets: list[int], found: dict[str, Life]) -> bool:
    """Whether no two buffers that hold values at once share bytes."""
    for (one, a), (other, b) in combinations(zip(BUFFERS, offsets, strict=True), 2):
        lives_meet = (
            one.name in found and other.name in found and found[one.name].meets(found[other.name])
        )
        if lives_meet and abs(a - b) < BYTES:
            return False
    return True


def shared_run(kernel: Kernel, offsets: list[int], inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Y of a run in which buffers lie in one array of bytes."""
    arena = np.full(4 * (len(BUFFERS) + 1), np.nan, np.float32).view(np.uint8)
    memory = {
        buffer.name: arena[offset : offset + BYTES].view(np.float32)
        for buffer, offset in zip(BUFFERS, offsets, strict=True)
    }
    memory |= {"X": inputs["X"], "Y": np.full((8, 4), np.nan, np.float32)}
    run_body(kernel.body, {"block": 0}, memory.__getitem__)
    return memory["Y"]


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), st.randoms(use_true_random=False))
def test_buffers_outside_their_lives_are_not_missed(kernel: Kernel, draw: Random) -> None:
    found = lives(kernel)
    pairs = [
        (one, other)
        for one, other in combinations(BUFFERS, 2)
        if one.name in found
        and other.name in found
        and not found[one.name].meets(found[other.name])
    ]
    assume(pairs)
    pair = draw.choice(pairs)
    offsets = [0 if buffer in pair else BYTES * k for k, buffer in enumerate(BUFFERS, 1)]
    assert apart(offsets, found)
    inputs = {"X": np.arange(32, dtype=np.float32).reshape(8, 4)}
    expected = run(kernel, inputs | {"Y": np.full((8, 4), np.nan, np.float32)})["Y"]
    got = shared_run(kernel, offsets, inputs)
    # What reads a buffer that nobody wrote has no meaning.
    known = ~np.isnan(expected)
    assert (got[known] == expected[known]).all()


def test_overlapping_lives_are_missed() -> None:
    body = (
        Copy("a", _row(X, 1), whole(BUFFERS[0])),
        Copy("b", _row(X, 2), whole(BUFFERS[1])),
        Copy("c", whole(BUFFERS[0]), _row(Y, 0)),
    )
    kernel = Kernel("k", (X, Y), (("block", const(1)),), const(1), BUFFERS, body)
    assert not apart([0, 0, 32, 48], lives(kernel))
    inputs = {"X": np.arange(32, dtype=np.float32).reshape(8, 4)}
    assert (shared_run(kernel, [0, 0, 32, 48], inputs)[0] == inputs["X"][2]).all()
