"""GEMM schedules for h200 that the solver found legal, near a wish."""

from __future__ import annotations

from functools import cache

from explorer.constraints import FeasibleModel, Status
from explorer.ir.nodes import Kernel
from explorer.machine import H200
from explorer.schedule.bound import Schedule
from explorer.space import SKELETON, SearchSpace, build_space
from tests.kernels.gemm import gemm

TILES = {"block_M": (64, 128, 256), "block_N": (64, 128, 256), "block_K": (32, 64, 128)}
LAYOUTS = {
    "NN": (False, False),
    "NT": (False, True),
    "TN": (True, False),
    "TT": (True, True),
}
_WISH = {
    "block_M": 128,
    "block_N": 128,
    "block_K": 64,
    "lag_gemm_C_local": 0,
    "nreg_consumer": 232,
    "nreg_producer": 40,
    "warps_producer": 1,
}


@cache
def kernel_of(layout: str) -> Kernel:
    """The GEMM kernel with op(A) op(B) stored as named: N plain, T transposed."""
    transpose_a, transpose_b = LAYOUTS[layout]
    return gemm(512, 1024, 512, "bfloat16", "float32", transpose_a, transpose_b)


@cache
def model_of(layout: str) -> FeasibleModel:
    """The solver's model of that kernel's space."""
    return FeasibleModel(build_space(kernel_of(layout), H200, TILES))


def solved(layout: str, title: str, **wish: int) -> Schedule:
    """The legal schedule nearest to the wish, of the skeleton with that title.

    Fails where a wished number is not part of any legal schedule.
    """
    model = model_of(layout)
    assignment = {choice.name: choice.domain[0] for choice in model.space.choices}
    assignment |= _known(model.space, {**_WISH, **wish})
    titles = [skeleton.title for skeleton in model.space.skeletons]
    assignment[SKELETON] = titles.index(title)
    found = model.project(assignment)
    assert found.status == Status.FOUND
    numbers = dict(found.assignment)
    changed = {name: numbers[name] for name in wish if numbers[name] != wish[name]}
    assert not changed, f"no legal schedule has {wish}: nearest has {changed}"
    return model.space.candidate(numbers)


def title_of(
    staged: bool, rings: str = "A_shared+B_shared", roles: str = "producer+consumer"
) -> str:
    """The title of a skeleton with a producer."""
    return f"roles {roles}; rings {rings}; {'staged' if staged else 'direct'} epilogue"


def _known(space: SearchSpace, wish: dict[str, int]) -> dict[str, int]:
    names = {choice.name for choice in space.choices}
    return {name: value for name, value in wish.items() if name in names}
