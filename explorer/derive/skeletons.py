"""From a plain kernel to skeletons: everything about a schedule except its numbers.

A skeleton is a role partition x a grouping of the handed-over buffers into pipelines x the route
of the epilogue. Its Plan holds Params wherever a number is free.

Invariant: skeletons are listed simplest first, each once; their numbers are Params named
`warps_<role>`, `nreg_<role>`, `depth_<pipeline>`, `stage_<pipeline>`, `lag_<gemm>`, `mma_m`,
`mma_n`, `blocks`, `raster` and `group`, so that skeletons share the choices that they have in
common.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from explorer.data import digest
from explorer.derive.bodies import Ring, scope_of, scopes
from explorer.derive.partition import MOVERS, Partition, handed_over, partitions
from explorer.expr import Expr, Param, const, minimum
from explorer.ir.access import access
from explorer.ir.nodes import Copy, Gemm, Kernel, ops
from explorer.ir.printer import kernel_digest
from explorer.machine import Machine, Scope
from explorer.schedule.extensions import Extensions, Side, SideMode, Split, StagedStore
from explorer.schedule.plan import Plan, PlanPipeline, scheduled_kernel, sequential_warps


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
    if any(len(group) > 1 for group in together):
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
    rings = _rings(kernel, partition, groups)
    numbers = {role: "consumer" if role in partition.split else role for role in partition.roles}
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
    plan = Plan(
        kernel=kernel,
        num_warps=num_warps,
        roles=warps,
        pipelines=tuple(PlanPipeline(r.name, r.buffers, Param(f"depth_{r.name}")) for r in rings),
        scopes=scopes(kernel, partition, rings),
        sides=tuple(
            Side(ring.name, producer, SideMode.SHARED, roles)
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
    )
    grouping = " ".join("+".join(group) for group in groups) or "none"
    return Skeleton(
        f"roles {'+'.join(partition.roles)}; rings {grouping}; {epilogue} epilogue", plan
    )


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
        rings.append(Ring(name, group, scope_id, producers, consumers, stage))
    return tuple(rings)


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
