"""Rules of clusters: their size, what their blocks share, and tiles outside the grid."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.rule import Requirement, Rule, require
from explorer.expr import Cond, Const, any_of, const, divides, equal, negate
from explorer.ir.access import access
from explorer.ir.nodes import Copy, Region, free_vars, ops
from explorer.ir.uniform import copied_rows, uniform_copies
from explorer.machine import Machine, Scope
from explorer.memory.bulk import bulk_refusal
from explorer.schedule.extensions import CopyRoute
from explorer.schedule.plan import Plan

# Rows after which every swizzle repeats: a share of a tile starts at a multiple of them.
SHARE_ROWS = 8


def cluster(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A size that the machine has, whole clusters of blocks, and an axis of the grid."""
    size, axis, axes = plan.cluster, plan.cluster_axis, len(plan.kernel.grid)
    legal = machine.cluster_sizes
    yield require(
        any_of(*(equal(size, each) for each in legal)),
        f"clusters of {{size}} blocks: {machine.name} has {' and '.join(map(str, legal))}",
        size=size,
    )
    if size == const(1) and axis == const(0):
        return
    yield require(
        divides(size, plan.blocks),
        "{blocks} resident blocks are not whole clusters of {size}",
        blocks=plan.blocks,
        size=size,
    )
    yield require(
        any_of(equal(axis, 0), size > 1),
        "cluster axis {axis} without clusters",
        axis=axis,
    )
    known = any_of(*(equal(axis, each) for each in range(axes)))
    yield require(
        any_of(equal(size, 1), known), f"cluster axis {{axis}}: the grid has {axes}", axis=axis
    )


def _elsewhere(plan: Plan, axis: int) -> Cond:
    """Whether the plan has no clusters along a grid axis."""
    return any_of(equal(plan.cluster, 1), negate(equal(plan.cluster_axis, axis)))


def cluster_shares(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Copies that a cluster fetches once divide into shares of whole swizzle patterns."""
    if plan.cluster == const(1):
        return
    by_threads = {route.op for route in plan.routes if route.route != CopyRoute.BULK}
    bound = {name for pipeline in plan.pipelines for name in pipeline.buffers}
    for axis, (name, _) in enumerate(plan.kernel.grid):
        for copy in uniform_copies(plan.kernel, name).values():
            if copy.id in by_threads or copy.dst.buffer.name not in bound or bulk_refusal(copy):
                continue
            rows = copied_rows(copy)
            yield require(
                any_of(_elsewhere(plan, axis), divides(SHARE_ROWS * plan.cluster, rows)),
                f"{copy.id} has {{rows}} rows, not {{size}} equal shares of whole "
                f"{SHARE_ROWS} rows",
                rows=rows,
                size=plan.cluster,
            )


def cluster_edge(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A tile outside the grid lies outside the tensors in a dimension that is bounds-checked."""
    if plan.cluster == const(1):
        return
    for axis, (name, extent) in enumerate(plan.kernel.grid):
        for op in ops(plan.kernel.body):
            if not isinstance(op, Copy):
                continue
            found = access(op)
            for region in (*found.reads, *found.writes):
                if _selects(region, name):
                    yield require(
                        any_of(_elsewhere(plan, axis), divides(plan.cluster, extent)),
                        f"{op.id} selects a part of {region.buffer.name} by {name}, and "
                        "{extent} of them are not whole clusters of {size}",
                        extent=extent,
                        size=plan.cluster,
                    )
                    break


def _selects(region: Region, name: str) -> bool:
    """Whether a grid variable picks one index of a tensor, which no copy checks."""
    return region.buffer.scope == Scope.GLOBAL and any(
        extent == Const(1) and name in free_vars(start)
        for start, extent in zip(region.start[:-1], region.extent[:-1], strict=True)
    )


RULES = (
    Rule(
        "cluster",
        "form",
        "a launch has whole clusters, of a size that the machine has, along an axis of the grid",
        "Launch; CUDA programming guide, thread block clusters",
        "use clusters of 1, or resident blocks that are a multiple of the cluster",
        cluster,
    ),
    Rule(
        "cluster-shares",
        "safety",
        "what a cluster fetches once divides into equal shares of whole swizzle patterns",
        "PTX ISA, cp.async.bulk.tensor, multicast; CUDA driver API, CU_TENSOR_MAP_SWIZZLE_*",
        "choose a larger tile, or clusters of 1",
        cluster_shares,
    ),
    Rule(
        "cluster-edge",
        "safety",
        "a tile that completes a cluster beyond the grid touches no element of a tensor",
        "Launch",
        "put the clusters along another axis, or use clusters of 1",
        cluster_edge,
    ),
)
