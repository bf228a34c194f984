"""What a workload refuses when it is made, and how faults of its functions are told."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from explorer.errors import InputError
from tests.support.fakes import small_workload

RNG = np.random.default_rng(0)


def fail(*_: Any) -> Any:
    raise ValueError("two\nlines")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../../evil"}, "the name of a workload '../../evil' is not an identifier"),
        ({"name": ""}, "is not an identifier"),
        ({"sizes": 5}, "toy: sizes must be a mapping, got 5"),
        ({"sizes": {"M": 0}}, "toy: size M=0 must be a positive integer"),
        ({"tiles": 5}, "tiles gives the values of each Param per machine name"),
        ({"tiles": {"cpu": 5}}, "tiles gives the values of each Param per machine name"),
        ({"tiles": {"cpu": {"block_M": ()}}}, "tile size block_M on cpu has the values"),
        ({"tiles": {"cpu": {"block_M": 64}}}, "give different positive integers"),
        ({"tiles": {"cpu": {"block_M": ("a",)}}}, "give different positive integers"),
        ({"tiles": {"cpu": {"block_M": (64, 64)}}}, "give different positive integers"),
        ({"tiles": {"cpu": {"block_M": (True,)}}}, "give different positive integers"),
        ({"kernel": None}, "toy: kernel must be a function, got None"),
        ({"dtypes": ("float12",)}, "unknown dtype 'float12'"),
        ({"dtypes": ()}, "toy: dtypes names no element type"),
        ({"tolerance": {"float32": None}}, "toy: tolerance of float32 must be >= 0, got None"),
        ({"tolerance": 1e-5}, "toy: tolerance must be a mapping"),
        ({"unit": 5}, "toy: unit must be a name, got 5"),
        ({"peers": [1]}, "toy: peers must be a tuple"),
    ],
)
def test_a_workload_that_cannot_be_meant(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small_workload(**changes)


def test_tile_values_may_be_any_sequence() -> None:
    assert small_workload(tiles={"cpu": {"m": range(8, 25, 8)}}).tiles["cpu"]["m"] == (8, 16, 24)


def test_tile_values_may_follow_the_problem() -> None:
    toy = small_workload(tiles={"cpu": lambda problem: {"block_M": range(1, problem["M"], 32)}})
    assert toy.tiles_of("cpu", toy.problem({"M": 65}))["block_M"] == (1, 33)
    with pytest.raises(InputError, match="toy has no tile sizes for h200: it has them for cpu"):
        toy.tiles_of("h200", toy.problem())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fail, r"toy\.tiles raised ValueError: two lines"),
        (lambda _: (64,), r"per machine name, on cpu \(64,\)"),
        (lambda _: {"block_M": (0,)}, "tile size block_M on cpu has the values"),
    ],
)
def test_a_function_of_tile_values_is_checked(function: Any, message: str) -> None:
    toy = small_workload(tiles={"cpu": function})
    with pytest.raises(InputError, match=message):
        toy.tiles_of("cpu", toy.problem())


def test_a_dtype_without_tolerance_or_name() -> None:
    toy = small_workload(tolerance={"bfloat16": 1e-2})
    with pytest.raises(InputError, match=r"toy has no tolerance for float32: it has.* bfloat16"):
        toy.problem()
    for kind in ("", []):
        with pytest.raises(InputError, match="unknown dtype"):
            toy.problem(None, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "returned", "words"),
    [
        ("kernel", None, "None, not a kernel"),
        ("work", None, "None, not a positive number"),
        ("work", 0, "0, not a positive number"),
        ("work", -1.0, "-1.0, not a positive number"),
        ("work", float("inf"), "inf, not a positive number"),
        ("work", 10**400, "1000"),
        ("inputs", None, "None, not arrays by name"),
        ("inputs", {"A": 1}, "{'A': 1}, not arrays by name"),
        ("reference", (), r"\(\), not arrays by name"),
    ],
)
def test_a_function_at_fault_is_named(function: str, returned: Any, words: str) -> None:
    def call(toy: Any) -> Any:
        problem = toy.problem()
        calls = {
            "kernel": lambda: toy.trace(problem),
            "work": lambda: toy.operations(problem),
            "inputs": lambda: toy.draw(problem, RNG),
            "reference": lambda: toy.expected(problem, {}),
        }
        return calls[function]()

    with pytest.raises(InputError, match=f"toy.{function} returned {words}"):
        call(small_workload(**{function: lambda *_: returned}))
    with pytest.raises(InputError, match=f"toy.{function} raised ValueError: two lines"):
        call(small_workload(**{function: fail}))
    with pytest.raises(InputError, match=f"toy.{function} raised SystemExit: 0"):
        call(small_workload(**{function: lambda *_: sys.exit(0)}))
    with pytest.raises(InputError, match=f"toy.{function} raised TypeError"):
        call(small_workload(**{function: lambda: None}))
