"""Rules of memory and registers: what fits."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.rule import Requirement, Rule, require
from explorer.expr import (
    Expr,
    all_of,
    any_of,
    ceildiv,
    const,
    divides,
    equal,
    maximum,
    minimum,
    total,
)
from explorer.ir.access import access
from explorer.ir.nodes import Buffer, ops
from explorer.machine import Machine, Scope
from explorer.memory.footprint import barriers_bytes, slot_bytes, turned_operands
from explorer.schedule.plan import Plan, PlanOp, PlanRole

# Registers of a thread besides its fragments: addresses, loop counters, descriptors, epilogue.
OVERHEAD_REGISTERS = 40
ENTRY_REGISTERS_MAX = 255


def versions(plan: Plan, buffer: str) -> Expr:
    """Copies of a shared buffer: the product of the depths of the pipelines that bind it."""
    result: Expr = const(1)
    for pipeline in plan.pipelines:
        if buffer in pipeline.buffers:
            result = result * pipeline.depth
    return result


def smem_capacity(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Rings, staging buffers and barriers fit the block's shared memory."""
    memory = machine.memory(Scope.SHARED)
    if memory is None:
        return
    shared = [buffer for buffer in plan.kernel.buffers if buffer.scope == Scope.SHARED]
    turned = turned_operands(ops(plan.kernel.body), machine)
    parts: list[str] = []
    values: dict[str, Expr] = {}
    for index, buffer in enumerate(shared):
        values[f"v{index}"] = versions(plan, buffer.name)
        values[f"b{index}"] = slot_bytes(buffer, machine, turned)
        parts.append(f"{buffer.name} {{v{index}}} x {{b{index}}} B")
    values["barriers"] = barriers_bytes([p.depth for p in plan.pipelines], machine)
    values["limit"] = const(memory.capacity_bytes)
    values["total"] = total(
        [values[f"v{i}"] * values[f"b{i}"] for i in range(len(shared))] + [values["barriers"]]
    )
    message = " + ".join([*parts, "barriers {barriers} B"]) + " = {total} B > {limit} B"
    yield require(values["total"] <= memory.capacity_bytes, message, **values)


def register_range(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A register request is 0 or a multiple of the step within the hardware's range."""
    file = machine.registers
    for role in plan.roles:
        if file is None:
            yield require(
                equal(role.nreg, 0),
                f"role {role.name} asks for {{nreg}} registers, but {machine.name} has no "
                "register requests",
                nreg=role.nreg,
            )
            continue
        legal = all_of(
            file.request_min <= role.nreg,
            role.nreg <= file.request_max,
            divides(file.request_step, role.nreg),
        )
        yield require(
            any_of(equal(role.nreg, 0), legal),
            f"role {role.name} asks for {{nreg}} registers: not a multiple of {file.request_step} "
            f"in {file.request_min}..{file.request_max}",
            nreg=role.nreg,
        )


def register_total(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The requests of all warp groups fit the register file, so that each can be granted."""
    file = machine.registers
    if file is None:
        return
    size = machine.warps_per_group
    threads = machine.group_threads
    parts = [(role, ceildiv(role.warps, size)) for role in plan.roles]
    values: dict[str, Expr] = {}
    for index, (role, groups) in enumerate(parts):
        values[f"n{index}"], values[f"g{index}"] = role.nreg, groups
    values["total"] = total([role.nreg * groups * threads for role, groups in parts])
    values["limit"] = const(file.total)
    terms = " + ".join(f"{{g{i}}} x {{n{i}}}" for i in range(len(parts)))
    yield require(
        values["total"] <= file.total,
        f"({terms}) x {threads} = {{total}} registers > {{limit}}",
        **values,
    )


def fragment_registers(plan: Plan, role: PlanRole, machine: Machine) -> Expr:
    """Registers per thread that the fragments of a role take."""
    split = next((s for s in plan.splits if role.name in s.roles), None)
    share = len(split.roles) if split else 1
    bits = total([buffer.bits for buffer in private_buffers(plan, role.name)])
    return ceildiv(bits, maximum(role.warps, 1) * (share * machine.threads_per_warp * 32))


def private_buffers(plan: Plan, role: str) -> tuple[Buffer, ...]:
    """The fragments and locals that a role touches, in order of allocation."""
    placed = {
        entry.id
        for scope in plan.scopes
        for entry in scope.body(role)
        if isinstance(entry, PlanOp)
    }
    touched = {
        region.buffer.name
        for op in ops(plan.kernel.body)
        if op.id in placed
        for region in (*access(op).reads, *access(op).writes)
    }
    return tuple(b for b in plan.kernel.buffers if b.scope.private and b.name in touched)


def register_fragments(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A role's fragments and its bookkeeping fit the registers of its threads."""
    file = machine.registers
    if file is None:
        return
    threads = plan.num_warps * machine.threads_per_warp
    entry = minimum(const(file.total) // threads // 8 * 8, ENTRY_REGISTERS_MAX)
    for role in plan.roles:
        if not private_buffers(plan, role.name):
            continue
        need = fragment_registers(plan, role, machine) + OVERHEAD_REGISTERS
        yield require(
            any_of(
                all_of(equal(role.nreg, 0), need <= entry),
                all_of(~equal(role.nreg, 0), need <= minimum(role.nreg, ENTRY_REGISTERS_MAX)),
            ),
            f"role {role.name} needs {{need}} registers a thread "
            f"({OVERHEAD_REGISTERS} besides its fragments), it has {{nreg}} (0: {{entry}})",
            need=need,
            nreg=role.nreg,
            entry=entry,
        )


RULES = (
    Rule(
        "smem-capacity",
        "safety",
        "all versions of the shared buffers, padded, and the barriers fit the block's memory",
        "CUDA programming guide, compute capability 9.0: 232448 B a block",
        "fewer slots, smaller tiles, or a direct epilogue",
        smem_capacity,
    ),
    Rule(
        "register-range",
        "safety",
        "a register request is a multiple of 8 in 24..256, or 0 for none",
        "PTX ISA, setmaxnreg",
        "ask for a multiple of 8 in range",
        register_range,
    ),
    Rule(
        "register-total",
        "safety",
        "the register requests of all warp groups fit the register file",
        "PTX ISA, setmaxnreg: an increase blocks until registers are free",
        "fewer consumer groups or a smaller request",
        register_total,
    ),
    Rule(
        "register-fragments",
        "form",
        "a role's fragments fit the registers of its threads",
        "PTX ISA: 255 registers a thread",
        "more consumer warps, a smaller tile, or a larger request",
        register_fragments,
    ),
)
