"""Rules of memory: what fits."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.expr import (
    Expr,
    any_of,
    const,
    product,
    round_up,
    total,
)
from explorer.ir.nodes import ops
from explorer.machine import Machine, Scope
from explorer.memory.footprint import (
    ADDRESS_BYTES,
    barriers_bytes,
    slot_bytes,
    tensor_columns,
    turned_operands,
)
from explorer.memory.packing import arena_fits
from explorer.memory.places import POOL_BYTES
from explorer.program.launch import shared_by
from explorer.schedule.plan import Plan


def versions(plan: Plan, buffer: str) -> Expr:
    """Copies of a shared buffer: the product of the depths of the pipelines that bind it."""
    result: Expr = const(1)
    for pipeline in plan.pipelines:
        if buffer in pipeline.buffers:
            result = result * pipeline.depth
    return result


def _shared_parts(plan: Plan, machine: Machine) -> tuple[list[str], dict[str, Expr]]:
    """What a block's shared memory holds: a text a part, and the numbers in them with `total`."""
    pools = [pool for pool in plan.kernel.pools if pool.scope == Scope.SHARED]
    if machine.slots is not None:
        pools = []  # padded slots lie apart, wherever a pool placed them
    held = {name for pool in pools for name in (pool.base, *(p.buffer for p in pool.places))}
    shared = [
        buffer
        for buffer in plan.kernel.buffers
        if buffer.scope == Scope.SHARED and buffer.name not in held
    ]
    turned = turned_operands(ops(plan.kernel.body), machine)
    parts = [f"pool {pool.name} {{p{index}}} B" for index, pool in enumerate(pools)]
    values = {f"p{index}": round_up(pool.size, POOL_BYTES) for index, pool in enumerate(pools)}
    pooled = total(values.values())
    for index, buffer in enumerate(shared):
        values[f"v{index}"] = versions(plan, buffer.name)
        values[f"b{index}"] = slot_bytes(buffer, machine, turned)
        parts.append(f"{buffer.name} {{v{index}}} x {{b{index}}} B")
    parts.append("barriers {barriers} B")
    values["barriers"] = barriers_bytes([p.depth for p in plan.pipelines], machine)
    if _own_tensor_memory(plan):
        parts.append("tensor memory address {address} B")
        values["address"] = const(ADDRESS_BYTES)
        pooled = pooled + ADDRESS_BYTES
    values["total"] = pooled + total(
        [values[f"v{i}"] * values[f"b{i}"] for i in range(len(shared))] + [values["barriers"]]
    )
    return parts, values


def smem_capacity(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Rings, staging buffers and barriers fit the block's shared memory."""
    memory = machine.memory(Scope.SHARED)
    if memory is None:
        return
    parts, values = _shared_parts(plan, machine)
    message = " + ".join(parts) + " = {total} B > {limit} B"
    limit = const(memory.capacity_bytes)
    yield require(values["total"] <= limit, message, **values, limit=limit)


def _own_tensor_memory(plan: Plan) -> bool:
    """Whether a block allocates tensor memory by itself; a pool's address lies in the pool."""
    pooled = {place.buffer for pool in plan.kernel.pools for place in pool.places}
    return any(b.scope == Scope.TMEM and b.name not in pooled for b in plan.kernel.buffers)


def unit_residency(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """All blocks of a persistent launch are resident: those that share a unit fit it together.

    Their registers are what `entry_registers` divides.
    """
    memory = machine.memory(Scope.SHARED)
    if machine.registers is None or memory is None:
        return
    blocks = shared_by(plan.blocks, machine)
    taken = _shared_parts(plan, machine)[1]["total"] + machine.reserved_bytes
    yield require(
        any_of(blocks <= 1, blocks * taken <= machine.shared_per_unit_bytes),
        "{blocks} blocks x {taken} B > {limit} B of a unit's shared memory",
        blocks=blocks,
        taken=taken,
        limit=const(machine.shared_per_unit_bytes),
    )
    threads = plan.num_warps * machine.threads_per_warp
    yield require(
        any_of(blocks <= 1, blocks * threads <= machine.threads_per_unit),
        "{blocks} blocks x {threads} threads > {limit} threads of a unit",
        blocks=blocks,
        threads=threads,
        limit=const(machine.threads_per_unit),
    )


def tensor_capacity(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """All versions of tensor-memory buffers fit the columns of the unit, of which a block
    allocates a power of two."""
    memory = machine.tensor_memory
    held = [buffer for buffer in plan.kernel.buffers if buffer.scope == Scope.TMEM]
    if not held:
        return
    if memory is None:
        yield broken(f"{held[0].name} is in tensor memory, which {machine.name} has not")
        return
    pools = [pool for pool in plan.kernel.pools if pool.scope == Scope.TMEM]
    pooled = {place.buffer for pool in pools for place in pool.places}
    held = [buffer for buffer in held if buffer.name not in pooled]
    values = {f"p{index}": pool.size for index, pool in enumerate(pools)}
    names = [f"pool {pool.name} {{p{index}}}" for index, pool in enumerate(pools)]
    for index, buffer in enumerate(held):
        rows = product(buffer.shape[:-1])
        yield require(
            rows <= memory.lanes,
            f"{buffer.name} has {{rows}} rows, tensor memory has {memory.lanes} lanes",
            rows=rows,
        )
        values[f"v{index}"] = versions(plan, buffer.name)
        values[f"c{index}"] = tensor_columns(buffer, memory)
    sizes = [pool.size for pool in pools]
    sizes += [values[f"v{i}"] * values[f"c{i}"] for i in range(len(held))]
    values["total"] = total(sizes)
    parts = " + ".join(names + [f"{b.name} {{v{i}}} x {{c{i}}}" for i, b in enumerate(held)])
    yield require(
        arena_fits(sizes, memory),
        f"{parts} = {{total}} columns of tensor memory > {memory.columns}",
        **values,
    )


RULES = (
    Rule(
        "smem-capacity",
        "safety",
        "all versions of the shared buffers, padded, and the barriers fit the block's memory",
        "W9.2; CUDA programming guide, compute capability 9.0: 232448 B a block",
        "fewer slots, smaller tiles, or a direct epilogue",
        smem_capacity,
    ),
    Rule(
        "unit-residency",
        "form",
        "the resident blocks that share a unit fit its shared memory and its threads",
        "CUDA programming guide, compute capability 9.0: 233472 B and 2048 threads a unit",
        "one block a unit, fewer slots, or smaller tiles",
        unit_residency,
    ),
    Rule(
        "tensor-capacity",
        "safety",
        "all versions of tensor-memory buffers fit its columns",
        "C23; PTX ISA, tcgen05.alloc: a power of two of columns, at least 32",
        "fewer slots or a narrower accumulator",
        tensor_capacity,
    ),
)
