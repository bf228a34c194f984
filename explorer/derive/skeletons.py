"""From a plain kernel to skeletons: everything about a schedule except its numbers.

A skeleton is a role partition x a grouping of the handed-over buffers into pipelines x the route
of the epilogue. Its Plan holds Params wherever a number is free. Problems of few rows also have
skeletons whose gemms are computed transposed.

Two roles that compute whole tiles in turn (ping-pong) pass a token around the main loop, so that
one multiplies while the other stores; what both stage their results in is handed on likewise.

Invariant: skeletons are listed simplest first, each once; their numbers are Params named
`warps_<role>`, `nreg_<role>`, `depth_<pipeline>`, `stage_<pipeline>`, `lag_<gemm>`, `mma_m`,
`mma_n`, `blocks`, `raster`, `group`, `cluster`, `cluster_axis`, `split` and `stream`, so that
skeletons share the choices that they have in common.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from explorer.data import digest
from explorer.derive.bodies import Ring, scope_of, scopes
from explorer.derive.partition import MOVERS, Partition, handed_over, main_loop, partitions
from explorer.errors import ScheduleError
from explorer.expr import Const, Expr, Param, const, minimum, select
from explorer.ir.access import access
from explorer.ir.nodes import Copy, Gemm, Kernel, ops
from explorer.ir.printer import kernel_digest
from explorer.ir.uniform import uniform_copies
from explorer.machine import Machine, Scope
from explorer.memory.bulk import bulk_refusal
from explorer.schedule.extensions import Extensions, Side, SideMode, Split, StagedStore, Swapped
from explorer.schedule.plan import Plan, PlanPipeline, scheduled_kernel, sequential_warps
from explorer.schedule.reduction import alike_tiles, reduction_of
from explorer.schedule.ws import WSScope

LOADER_AND_CONSUMER = ("producer", "consumer")
MATRIX_RANK = 2
# Two or three pieces make room for one more slot of every tile that two or three groups compute.
STAGING_PIECES = (2, 3)
# Epilogues that go with every grouping of buffers into rings.
PLAIN = ("direct", "staged")


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
    epilogues = (
        *_epilogues(kernel),
        *_epilogues_in_pieces(kernel, machine),
        *_swapped_epilogues(kernel, machine),
    )
    for epilogue, extensions in epilogues:
        rewritten = scheduled_kernel(kernel, extensions)
        for partition in partitions(rewritten, machine):
            if not _worthwhile(extensions, partition):
                continue
            groupings = tuple(_groupings(rewritten, partition))
            for groups in groupings if epilogue in PLAIN else groupings[:1]:
                skeleton = _skeleton(rewritten, machine, partition, groups, extensions, epilogue)
                found.setdefault(skeleton.digest, skeleton)
    return tuple(found.values())


def _worthwhile(extensions: Extensions, partition: Partition) -> bool:
    """Whether roles are a new way to win with such an epilogue.

    Problems that are swapped have few tiles: one consumer of more warps does what two would.
    Pieces leave room to rings; who stores them beside the consumers wants a ring for them too.
    """
    if extensions.swapped:
        return partition.roles == LOADER_AND_CONSUMER
    in_pieces = any(store.pieces > 1 for store in extensions.staged)
    return not in_pieces or ("producer" in partition.roles and "storer" not in partition.roles)


def _epilogues(kernel: Kernel) -> Iterator[tuple[str, Extensions]]:
    yield "direct", Extensions()
    direct = [
        op
        for op in ops(kernel.body)
        if isinstance(op, Copy)
        and op.src.buffer.scope == Scope.FRAGMENT
        and op.dst.buffer.scope == Scope.GLOBAL
    ]
    if direct:
        staged = tuple(StagedStore(op.id, f"{op.dst.buffer.name}_staging") for op in direct)
        yield "staged", Extensions(staged=staged)


def _epilogues_in_pieces(kernel: Kernel, machine: Machine) -> Iterator[tuple[str, Extensions]]:
    """Staged epilogues whose buffer holds a part of the tile, where asynchronous rings gain by
    the rest."""
    for _, extensions in _epilogues(kernel):
        if extensions.staged and machine.async_matrix:
            for pieces in STAGING_PIECES:
                staged = tuple(evolve(store, pieces=pieces) for store in extensions.staged)
                yield f"staged in {pieces}", Extensions(staged=staged)


def _swapped_epilogues(kernel: Kernel, machine: Machine) -> Iterator[tuple[str, Extensions]]:
    """The epilogues of the kernel with its gemms computed transposed, where that can pay.

    It can where every accumulator has fewer rows to fill than two matrix instructions have.
    """
    gemms = [op for op in ops(kernel.body) if isinstance(op, Gemm)]
    if not (
        machine.async_matrix and gemms and all(_few_rows(kernel, op, machine) for op in gemms)
    ):
        return
    swapped = tuple(Swapped(op.id) for op in gemms)
    for epilogue, extensions in _epilogues(kernel):
        wanted = evolve(extensions, swapped=swapped)
        try:
            scheduled_kernel(kernel, wanted)
        except ScheduleError:
            return
        yield f"swapped {epilogue}", wanted


def _few_rows(kernel: Kernel, gemm: Gemm, machine: Machine) -> bool:
    """Whether the tensor that A's rows come from has a known number of them, and a small one."""
    copies = (op for op in ops(kernel.body) if isinstance(op, Copy))
    source = next((op.src for op in copies if op.dst.buffer.name == gemm.a.buffer.name), None)
    if source is None or source.buffer.scope != Scope.GLOBAL or len(source.shape) != MATRIX_RANK:
        return False
    kept = [axis for axis in range(len(source.extent)) if axis not in source.squeezed]
    rows = source.buffer.shape[kept[1 if gemm.transpose_a else 0]]
    least = min(shape.m for shape in machine.matrix_shapes)
    return isinstance(rows, Const) and rows.value < 2 * least


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
    extensions: Extensions,
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
    split, stream = _sharing(kernel, machine, partition)
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
        staged=extensions.staged,
        swapped=extensions.swapped,
        blocks=Param("blocks"),
        raster=Param("raster"),
        group=Param("group"),
        cluster=cluster,
        cluster_axis=cluster_axis,
        split=split,
        stream=stream,
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


def _sharing(kernel: Kernel, machine: Machine, partition: Partition) -> tuple[Expr, Expr]:
    """The parts of the reduction, and whether the last tiles are streamed: open where the roles
    that add to sums also store them."""
    try:
        found = reduction_of(kernel)
    except ScheduleError:
        return const(1), const(0)
    gemms = {partition.roles_of(op.id) for op in ops((found.loop,)) if isinstance(op, Gemm)}
    behind = {
        partition.roles_of(op.id)
        for statement in kernel.body
        if statement.id in found.behind
        for op in ops((statement,))
    }
    possible = machine.registers is not None and not partition.turns
    if not possible or len(gemms) > 1 or not behind <= gemms:
        return const(1), const(0)
    return Param("split"), Param("stream") if alike_tiles(kernel, found.loop) else const(0)


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
