"""The turns of a role, read off its steps."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.expr import Const, Expr, Var, equal, negate
from explorer.program.launch import TILE
from explorer.program.nodes import RoleSync, Skip, Step, When
from explorer.program.turns import turns_of

BLOCKS = 132


def steps(
    index: int, count: int, cycles: Expr = Const(5), blocks: int = BLOCKS
) -> tuple[Step, ...]:
    owner = equal(TILE // blocks % count, index)
    return When(owner, (RoleSync(),)), When(negate(owner), (Skip("p", True, cycles),))


@pytest.mark.parametrize("count", [2, 3])
def test_a_role_and_what_it_passes_over(count: int) -> None:
    for index in range(count):
        found = turns_of(steps(index, count), BLOCKS)
        assert found is not None
        assert (found.index, found.count, found.body) == (index, count, (RoleSync(),))
        assert found.skips(0) == ()
        assert found.skips(2) == (Skip("p", True, Const(10)),)


def test_one_block_walks_all_tiles() -> None:
    found = turns_of(steps(1, 2, blocks=1), 1)
    assert found is not None and found.index == 1


def test_other_steps_are_no_turns() -> None:
    owned, passed = steps(0, 2)
    assert isinstance(passed, When)
    assert turns_of((owned, passed), 0) is None
    assert turns_of((owned, passed), BLOCKS + 1) is None
    assert turns_of((RoleSync(),), BLOCKS) is None
    assert turns_of((owned, RoleSync()), BLOCKS) is None
    assert turns_of((owned, evolve(passed, cond=equal(TILE, 0))), BLOCKS) is None
    # The cycles of a tile that depend on the tile are passed over tile by tile.
    assert turns_of(steps(0, 2, Var("bx")), BLOCKS) is None
