"""Why some values of choices are legal or not."""

from __future__ import annotations

import pytest

from explorer.constraints import check
from explorer.errors import InputError
from explorer.machine import H200
from explorer.tune import explain
from tests.support.cuda_candidates import ONE_CONSUMER, gemm_space


def test_a_legal_completion_is_legal_and_has_the_values() -> None:
    space = gemm_space("gemm", (1024, 1024, 1024))
    found = explain(space, {"depth_A_B": 5, "block_K": 32})
    assert found.legal is not None
    assert (found.legal["depth_A_B"], found.legal["block_K"]) == (5, 32)
    assert check(space.kernel, space.candidate(found.legal), H200).ok


def test_a_no_has_rules_numbers_and_a_way_out() -> None:
    space = gemm_space("gemm", (1024, 1024, 1024))
    titles = [skeleton.title for skeleton in space.skeletons]
    given = {"skeleton": titles.index(ONE_CONSUMER), "depth_A_B": 8}
    given |= {"block_M": 256, "block_N": 256, "block_K": 128}
    found = explain(space, given)
    assert found.legal is None
    assert found.title == ONE_CONSUMER
    assert {each.rule for each in found.violations} == {"smem-capacity"}
    assert "8 x 65536 B" in str(found.violations[0])
    moved = {name: value for name, _, value in found.changes}
    assert moved["depth_A_B"] < 8
    legal = space.canonical({**found.tried, **moved})
    assert check(space.kernel, space.candidate(legal), H200).ok


def test_a_rule_that_no_number_mends_is_named() -> None:
    found = explain(gemm_space("gemm", (512, 512, 512), "float8_e4m3"), {})
    assert found.legal is None
    assert [each.rule for each in found.violations] == ["operand-order"]
    assert "transpose_B" in str(found.violations[0])
    assert found.changes == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"colour": 1}, "the space has no choice 'colour': it has skeleton, block_M"),
        ({"block_M": 48}, "the space has no block_M of 48: it has 64, 128"),
        ({"skeleton": 0, "depth_A_B": 2}, "skeleton 0 does not use depth_A_B: it uses"),
        ({"depth_A_B": 2, "depth_A": 2}, "no skeleton uses depth_A, depth_A_B together"),
    ],
)
def test_names_that_the_space_lacks_are_refused(given: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        explain(gemm_space("gemm", (512, 512, 512)), given)
