"""Tensor-memory columns: one arena, a power of two."""

import pytest

from explorer.errors import MemoryPlanError
from explorer.expr import Param, evaluate, holds
from explorer.machine import B200, Scope, machine_named
from explorer.memory.packing import (
    allocated_columns,
    arena_fits,
    legal_allocation,
    pack,
    separate_columns,
)

assert B200.tensor_memory is not None
TMEM = B200.tensor_memory


@pytest.mark.parametrize(
    ("sizes", "used", "allocated"),
    [
        ([384, 4, 4, 4], 396, 512),
        ([384, 4, 8], 396, 512),
        ([20], 20, 32),
        ([33], 33, 64),
        ([], 0, 32),
        ([256, 256], 512, 512),
    ],
)
def test_arena(sizes: list[int], used: int, allocated: int) -> None:
    arena = pack(sizes, TMEM)
    assert (arena.used, arena.allocated) == (used, allocated)
    assert list(arena.starts) == [sum(sizes[:k]) for k in range(len(sizes))]


def test_separate_allocations_are_rounded_each() -> None:
    sizes = [384, 4, 4, 4]
    assert evaluate(separate_columns(sizes, TMEM)) == 608
    assert not holds(separate_columns(sizes, TMEM) <= TMEM.columns)
    assert holds(arena_fits(sizes, TMEM))


def test_too_many_columns() -> None:
    assert not holds(arena_fits([256, 256, 4], TMEM))
    with pytest.raises(
        MemoryPlanError, match=r"tmem-capacity: 256 \+ 256 \+ 4 = 516 columns > 512; .* 4 columns"
    ):
        pack([256, 256, 4], TMEM)


@pytest.mark.parametrize("needed", [0, 1, 31, 32, 33, 64, 65, 255, 257, 396, 512, 513, 4000])
def test_one_formula_for_known_and_symbolic_columns(needed: int) -> None:
    formula = allocated_columns(Param("n"), TMEM)
    expected = next((c for c in (32, 64, 128, 256, 512) if needed <= c), 1024)
    assert evaluate(formula, {"n": needed}) == expected
    assert evaluate(allocated_columns(needed, TMEM)) == expected


def test_what_the_hardware_allocates() -> None:
    legal = [columns for columns in range(1025) if legal_allocation(columns, TMEM)]
    assert legal == [32, 64, 128, 256, 512]


def test_the_machine() -> None:
    b200 = machine_named("b200")
    shared, tensor = b200.memory(Scope.SHARED), b200.memory(Scope.TMEM)
    assert shared is not None and tensor is not None
    assert (b200.arch, b200.units, shared.capacity_bytes) == ("sm_100a", 148, 232448)
    assert tensor.capacity_bytes == TMEM.capacity_bytes == 512 * 128 * 4
    assert not b200.timed
