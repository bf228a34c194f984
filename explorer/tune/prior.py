"""Candidates that are tried first: what experience says about each skeleton.

The first one is the control of the run: a plain choice that should work wherever anything does.

Invariant: targets are a pure function of the space; the sampler makes them legal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from explorer.schedule.extensions import Raster
from explorer.space import SKELETON, Assignment, Choice, Hint, SearchSpace

SKELETONS = 4
QUANTILES = (0.5, 0.75)
# Slots that hide the latency of a copy: by the copy engine from device memory, or by a thread.
DEPTH_ASYNC, DEPTH = 4, 2
# By a choice's name, else its prefix. A gemm in flight hides its own latency; a producer needs few
# registers; a grouped raster keeps a window of tiles in the last cache.
WISHES: Mapping[str, int] = {
    "nreg_producer": 40,
    "stage": 0,
    "lag": 1,
    "raster": tuple(Raster).index(Raster.GROUPED),
    "group": 4,
    "cluster": 1,
    "cluster_axis": 0,
    "split": 1,
    "stream": 0,
}


def prior_targets(space: SearchSpace, hints: Iterable[Hint] = ()) -> tuple[Assignment, ...]:
    """The targets: the workload's hints for this machine, then plain ones of each skeleton."""
    wanted = (hinted_target(space, hint) for hint in hints)
    hinted = tuple(target for target in wanted if target is not None)
    skeletons = space.choice(SKELETON).domain[:SKELETONS]
    plain = [
        _target(space, skeleton, quantile) for quantile in QUANTILES for skeleton in skeletons
    ]
    return (*hinted, *plain)


def hinted_target(space: SearchSpace, hint: Hint) -> Assignment | None:
    """The target of a hint; None where the space lacks its skeleton."""
    titles = [skeleton.title for skeleton in space.skeletons]
    if hint.skeleton not in titles:
        return None
    return _target(space, titles.index(hint.skeleton), QUANTILES[0]) | dict(hint.values)


def specialized_target(space: SearchSpace, wishes: Mapping[str, int]) -> Assignment:
    """The target of the first skeleton that hands buffers over in pipelines, else of the first.

    `wishes` go before experience; by the prefix of a choice's name.
    """
    plans = [skeleton.plan for skeleton in space.skeletons]
    skeleton = next((index for index, plan in enumerate(plans) if plan.pipelines), 0)
    target = _target(space, skeleton, QUANTILES[-1])
    return {name: wishes.get(name.split("_")[0], value) for name, value in target.items()}


def _target(space: SearchSpace, skeleton: int, quantile: float) -> Assignment:
    target = {}
    roles = sum(name.startswith("warps") for name in space.active(skeleton))
    for choice in space.choices:
        if choice.name == SKELETON:
            target[choice.name] = skeleton
        else:
            target[choice.name] = _wish(space, choice, quantile, roles)
    return target


def _wish(space: SearchSpace, choice: Choice, quantile: float, roles: int) -> int:
    kind = choice.name.split("_")[0]
    domain = choice.domain
    if choice.name in space.kernel.params:
        return domain[int(quantile * (len(domain) - 1))]
    if kind == "depth":
        return _nearest(domain, DEPTH_ASYNC if space.machine.async_copy else DEPTH)
    wish = WISHES.get(choice.name, WISHES.get(kind))
    if wish is not None:
        return _nearest(domain, wish)
    if kind == "blocks":
        return _nearest(domain, max(1, space.machine.units // max(1, roles)))
    if kind == "warps":
        return _nearest(domain, space.machine.warps_per_group)
    if kind == "mma" and space.machine.matrix_shapes:
        first = space.machine.matrix_shapes[0]
        return _nearest(domain, first.m if choice.name == "mma_m" else first.n)
    return max(domain)


def _nearest(domain: tuple[int, ...], wish: int) -> int:
    return min(domain, key=lambda value: (abs(value - wish), value))
