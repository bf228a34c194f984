"""Static distributions, and values moved onto their domains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, IntDistribution

from explorer.search.domains import complete, distribution, snap
from explorer.search.targets import neighbour, spread
from explorer.space import Choice
from tests.support.fakes import CHOICES

DOMAINS = st.lists(st.integers(0, 4096), min_size=1, max_size=8, unique=True)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice("skeleton", (0, 1, 2, 3)), CategoricalDistribution((0, 1, 2, 3))),
        (Choice("blocks", (1, 2)), CategoricalDistribution((1, 2))),
        (Choice("depth", (1, 2, 3, 4)), IntDistribution(1, 4)),
        (Choice("block_M", (16, 64, 256)), IntDistribution(16, 256, log=True)),
        (Choice("blocks", (0, 66, 132)), IntDistribution(0, 132)),
    ],
)
def test_distributions(choice: Choice, expected: object) -> None:
    assert distribution(choice) == expected


@given(domain=DOMAINS, value=st.integers(0, 4096))
def test_a_snapped_value_is_of_the_domain_and_stays(domain: list[int], value: int) -> None:
    choice = Choice("block_M", tuple(domain))
    member = snap(choice, value)
    assert member in domain
    assert snap(choice, member) == member


def test_wide_domains_are_snapped_by_ratio() -> None:
    assert snap(Choice("block_M", (16, 256)), 100) == 256
    assert snap(Choice("depth", (1, 4)), 2) == 1


@given(seed=st.integers(0, 2**31), index=st.integers(0, 500))
def test_the_spread_is_of_the_domains(seed: int, index: int) -> None:
    point = spread(CHOICES, seed, index)
    assert complete(CHOICES, point) == point
    assert point == spread(CHOICES, seed, index)


def test_the_spread_takes_every_value_of_every_choice() -> None:
    points = [spread(CHOICES, 1, index) for index in range(40)]
    for choice in CHOICES:
        assert {point[choice.name] for point in points} == set(choice.domain)


@given(seed=st.integers(0, 2**31))
def test_a_neighbour_differs_in_one_choice(seed: int) -> None:
    here = spread(CHOICES, 1, seed % 50)
    there = neighbour(CHOICES, here, seed)
    assert len([name for name in here if here[name] != there[name]]) == 1
    assert complete(CHOICES, there) == there
