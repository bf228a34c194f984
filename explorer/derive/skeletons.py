"""From a plain kernel to skeletons: everything about a schedule except its numbers.

A skeleton is a role partition x a grouping of the handed-over buffers into pipelines x the route
of the epilogue. Its Plan holds Params wherever a number is free.

Two roles that compute whole tiles in turn (ping-pong) pass a token around the main loop, so that
one multiplies while the other stores; what both stage their results in is handed on likewise.

Invariant: skeletons are listed simplest first, each once; their numbers are Params named
`warps_<role>`, `nreg_<role>`, `depth_<pipeline>`, `stage_<pipeline>`, `lag_<gemm>`, `mma_m`,
`mma_n`, `blocks`, `raster`, `group`, `cluster`, `cluster_axis` and `split`, so that skeletons
share the choices that they have in common.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.data import digest
from explorer.derive.bodies import Ring, scope_of, scopes
from explorer.derive.partition import MOVERS, Partition, handed_over, main_loop, partitions
from explorer.errors import ScheduleError
from explorer.expr import Expr, Param, const, minimum, select
from explorer.ir.access import access
from explorer.ir.nodes import Copy, Gemm, Kernel, ops
from explorer.ir.printer import kernel_digest
from explorer.ir.uniform import uniform_copies
from explorer.machine import Machine, Scope
from explorer.memory.bulk import bulk_refusal
from explorer.schedule.extensions import Extensions, Side, SideMode, Split, StagedStore
from explorer.schedule.plan import Plan, PlanPipeline, scheduled_kernel, sequential_warps
from explorer.schedule.reduction import reduction_of
from explorer.schedule.ws import WSScope


@frozen
class Skeleton:
    """A titled Plan with open numbers. Split consumers share the Params of one role."""

    title: str
    plan: Plan

    @property
    def digest(self) -> str:
        """Twelve hex digits that identify the skeleton by content."""
        return digest(kernel_digest(self.plan.kernel), self.plan.text)


def derive_skeletons(kernel: Kernel, machine: Machine) -> tuple[Skeleton, ...]:
    """All skeletons of a kernel on a machine."""
    found: dict[str, Skeleton] = {}
    for epilogue, staged in _epilogues(kernel):
        rewritten = scheduled_kernel(kernel, Extensions(staged=staged))
        for partition in partitions(rewritten, machine):
            for groups in _groupings(rewritten, partition):
                skeleton = _skeleton(rewritten, machine, partition, groups, staged, epilogue)
                found.setdefault(skeleton.digest, skeleton)
    return tuple(found.values())


def _epilogues(kernel: Kernel) -> Iterator[tuple[str, tuple[StagedStore, ...]]]:
    yield "direct", ()
    direct = [
        op
        for op in ops(kernel.body)
        if isinstance(op, Copy)
        and op.src.buffer.scope == Scope.FRAGMENT
        and op.dst.buffer.scope == Scope.GLOBAL
    ]
    if direct:
        yield (
            "staged",
            tuple(StagedStore(op.id, f"{op.dst.buffer.name}_staging") for op in direct),
        )


def _groupings(kernel: Kernel, partition: Partition) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Buffers of one scope and the same sides in one pipeline, then each in one of its own."""
    names = handed_over(kernel, partition)
    alike: dict[object, list[str]] = {}
    for name in names:
        key = scope_of(kernel, (name,)), _sides(kernel, partition, (name,))
        alike.setdefault(key, []).append(name)
    together = tuple(tuple(group) for group in alike.values())
    yield together
    if not partition.turns and any(len(group) > 1 for group in together):
        yield tuple((name,) for name in names)


def pipeline_name(buffers: tuple[str, ...]) -> str:
    """`A_B` for the buffers A_shared and B_shared."""
    return "_".join(name.removesuffix("_shared") for name in buffers)


def _skeleton(
    kernel: Kernel,
    machine: Machine,
    partition: Partition,
    groups: tuple[tuple[str, ...], ...],
    staged: tuple[StagedStore, ...],
    epilogue: str,
) -> Skeleton:
    rings = (*_rings(kernel, partition, groups), *_handed_on(kernel, partition))
    alike = (*partition.split, *partition.turns)
    numbers = {role: "consumer" if role in alike else role for role in partition.roles}
    # Roles that only move data need few registers, all the same, and can share a warp group.
    requests = {role: "producer" if role in MOVERS else name for role, name in numbers.items()}
    registers = machine.registers is not None and len(partition.roles) > 1
    warps, num_warps = sequential_warps(
        partition.roles,
        {role: Param(f"warps_{numbers[role]}") for role in partition.roles},
        {
            role: Param(f"nreg_{requests[role]}") if registers else const(0)
            for role in partition.roles
        },
        machine.warps_per_group,
    )
    gemms = [op for op in ops(kernel.body) if isinstance(op, Gemm)]
    lagging = machine.async_matrix and bool(rings)
    cluster, cluster_axis = _clusters(kernel, machine, rings)
    plan = Plan(
        kernel=kernel,
        num_warps=num_warps,
        roles=warps,
        pipelines=tuple(PlanPipeline(r.name, r.buffers, r.depth) for r in rings),
        scopes=scopes(kernel, partition, rings),
        sides=tuple(
            _side(partition, ring.name, producer, roles)
            for ring in rings
            for producer, roles in ((True, ring.producers), (False, ring.consumers))
            if len(roles) > 1
        ),
        splits=(Split(partition.split),) if partition.split else (),
        lags=tuple((op.id, Param(f"lag_{op.id}")) for op in gemms) if lagging else (),
        matrix=tuple((op.id, *_matrix_tile(op, machine)) for op in gemms),
        staged=staged,
        blocks=Param("blocks"),
        raster=Param("raster"),
        group=Param("group"),
        cluster=cluster,
        cluster_axis=cluster_axis,
        split=_split(kernel, machine, partition),
    )
    grouping = " ".join("+".join(group) for group in groups) or "none"
    return Skeleton(f"roles {partition.title}; rings {grouping}; {epilogue} epilogue", plan)


def _side(partition: Partition, pipeline: str, producer: bool, roles: tuple[str, ...]) -> Side:
    if roles == partition.turns:
        return Side(pipeline, producer, SideMode.ALTERNATING, roles, WSScope.ROOT)
    return Side(pipeline, producer, SideMode.SHARED, roles)


def _clusters(kernel: Kernel, machine: Machine, rings: tuple[Ring, ...]) -> tuple[Expr, Expr]:
    """The size of clusters and their axis: open where the neighbours along it share a copy."""
    bound = {name for ring in rings for name in ring.buffers}
    shared = [
        axis
        for axis, (name, _) in enumerate(kernel.grid[:2])
        if any(
            copy.dst.buffer.name in bound and not bulk_refusal(copy)
            for copy in uniform_copies(kernel, name).values()
        )
    ]
    if machine.cluster_max == 1 or len(kernel.grid) < 2 or not shared:
        return const(1), const(0)
    size = Param("cluster")
    return size, Param("cluster_axis") if len(shared) > 1 else select(size > 1, shared[0], 0)


def _split(kernel: Kernel, machine: Machine, partition: Partition) -> Expr:
    """The parts of the reduction: open where the roles that add to sums also store them."""
    try:
        found = reduction_of(kernel)
    except ScheduleError:
        return const(1)
    gemms = {partition.roles_of(op.id) for op in ops((found.loop,)) if isinstance(op, Gemm)}
    behind = {
        partition.roles_of(op.id)
        for statement in kernel.body
        if statement.id in found.behind
        for op in ops((statement,))
    }
    possible = machine.registers is not None and not partition.turns
    return Param("split") if possible and len(gemms) == 1 and behind <= gemms else const(1)


def _matrix_tile(gemm: Gemm, machine: Machine) -> tuple[Expr, Expr]:
    """A choice among register blocks; the widest instruction where a warp group issues one."""
    if not machine.async_matrix:
        return Param("mma_m"), Param("mma_n")
    widest = max(shape.n for shape in machine.matrix_shapes)
    return const(machine.matrix_shapes[0].m), minimum(gemm.c.shape[-1], widest)


def _rings(
    kernel: Kernel, partition: Partition, groups: tuple[tuple[str, ...], ...]
) -> tuple[Ring, ...]:
    scope_ids = [scope_of(kernel, group) for group in groups]
    rings: list[Ring] = []
    for group, scope_id in zip(groups, scope_ids, strict=True):
        producers, consumers = _sides(kernel, partition, group)
        name = pipeline_name(group)
        # Equal stages cancel, so the first ring of a scope stands at 0.
        first = scope_id not in (ring.scope for ring in rings)
        stage: Expr = const(0) if first else Param(f"stage_{name}")
        depth = Param(f"depth_{name}")
        rings.append(Ring(name, group, scope_id, producers, consumers, stage, depth))
    return tuple(rings)


def _handed_on(kernel: Kernel, partition: Partition) -> tuple[Ring, ...]:
    """What roles that take turns pass to each other: the main loop, and shared buffers behind it.

    One slot each: the first role of a round hands it to the second, which hands it back.
    """
    loop = main_loop(kernel, partition) if partition.turns else None
    if loop is None:
        return ()
    first, second = ((role,) for role in partition.turns)
    token = Ring(f"order_{loop.id}", (), WSScope.ROOT, first, second, section=loop.id)
    handed = handed_over(kernel, partition)
    touched = {name for op in ops(kernel.body) for name in access(op).names}
    kept = tuple(
        buffer.name
        for buffer in kernel.buffers
        if buffer.scope == Scope.SHARED and buffer.name in touched and buffer.name not in handed
    )
    name = pipeline_name(kept)
    staging = (Ring(name, kept, WSScope.ROOT, first, second),) if kept else ()
    return (token, *staging)


def _sides(
    kernel: Kernel, partition: Partition, buffers: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    writers: set[str] = set()
    users: set[str] = set()
    for op in ops(kernel.body):
        found = access(op)
        roles = partition.roles_of(op.id)
        if any(region.buffer.name in buffers for region in found.writes):
            writers.update(roles)
        if any(region.buffer.name in buffers for region in found.reads):
            users.update(roles)
    producers = tuple(role for role in partition.roles if role in writers)
    return producers, tuple(role for role in partition.roles if role in users - writers)
