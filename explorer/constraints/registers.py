"""Rules of registers: what a thread may ask for, and what its role needs."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.constraints.accesses import statement_access
from explorer.constraints.order import private_copies
from explorer.constraints.rule import Requirement, Rule, require
from explorer.expr import (
    Const,
    Expr,
    all_of,
    any_of,
    ceildiv,
    const,
    divides,
    equal,
    maximum,
    minimum,
    select,
    total,
)
from explorer.ir.access import is_bulk_load
from explorer.ir.nodes import Buffer, Op
from explorer.machine import Machine
from explorer.memory.bulk import bulk_refusal
from explorer.program.launch import ENTRY_REGISTERS_MAX, entry_limit, shared_by
from explorer.schedule.extensions import CopyRoute
from explorer.schedule.plan import Plan, PlanRole

# Registers of a thread besides its fragments: addresses, loop counters, descriptors, epilogue.
OVERHEAD_REGISTERS = 40
# Besides its accumulators, n / 2 for m64 x n: what ptxas asks for (C7602) for every n.
MATRIX_REGISTERS = 26
# The least request with which copies through threads do not spill.
COPY_REGISTERS = 88


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
    """What all warp groups hold fits the register file, so that each request can be granted.

    R-A6: an idle warp group takes the smallest request. A role without one keeps the registers
    that its threads start with. In a plan with open warp counts every role starts at a warp group
    (`sequential_warps`) and all roles ask or none does, so that neither occurs.
    """
    file = machine.registers
    if file is None:
        return
    threads = machine.group_threads
    open_warps = not isinstance(plan.num_warps, Const)
    values: dict[str, Expr] = {}
    for index, role in enumerate(plan.roles):
        values[f"g{index}"] = _own_groups(plan, role, machine.warps_per_group)
        entry = const(0) if open_warps else entry_registers(plan, machine)
        kept = role.nreg if open_warps else select(equal(role.nreg, 0), entry, role.nreg)
        values[f"n{index}"] = kept
    count = len(plan.roles)
    terms = " + ".join(f"{{g{i}}} x {{n{i}}}" for i in range(count))
    held = total(values[f"g{i}"] * values[f"n{i}"] for i in range(count))
    none = all_of(*(equal(role.nreg, 0) for role in plan.roles))
    values["limit"] = const(file.total)
    values["total"] = held * threads
    fits = any_of(none, values["total"] <= file.total)
    yield require(fits, f"({terms}) x {threads} = {{total}} registers > {{limit}}", **values)
    if open_warps:
        return
    groups = plan.num_warps // machine.warps_per_group
    idle = maximum(groups - total(values[f"g{i}"] for i in range(count)), 0)
    limit = file.request_max
    least = minimum(limit, *(select(equal(r.nreg, 0), limit, r.nreg) for r in plan.roles))
    values |= {"idle": idle, "least": least, "total": (held + idle * least) * threads}
    yield require(
        any_of(none, ~fits, equal(idle, 0), values["total"] <= file.total),
        f"({terms} + {{idle}} x {{least}} idle) x {threads} = {{total}} registers > {{limit}}",
        **values,
    )


def entry_registers(plan: Plan, machine: Machine) -> Expr:
    """Registers that a thread starts with, where all resident blocks are to fit a unit."""
    threads = maximum(plan.num_warps, 1) * machine.threads_per_warp
    return entry_limit(threads * shared_by(plan.blocks, machine), machine)


def _own_groups(plan: Plan, role: PlanRole, size: int) -> Expr:
    """Warp groups of a role that no role of lower warps shares."""
    if not isinstance(role.lo, Const):
        return ceildiv(role.warps, size)
    first, last = role.lo // size, (role.lo + role.warps - 1) // size
    taken = any_of(
        *(
            all_of(other.lo < role.lo, equal((other.lo + other.warps - 1) // size, first))
            for other in plan.roles
            if other is not role
        )
    )
    return last - first + select(taken, 0, 1)


def fragment_registers(plan: Plan, role: PlanRole, machine: Machine) -> Expr:
    """Registers per thread that the fragments of a role take, with all their copies."""
    split = next((s for s in plan.splits if role.name in s.roles), None)
    share = len(split.roles) if split else 1
    copies = private_copies(plan, role.name)
    bits = total(
        buffer.bits * copies.get(buffer.name, 1) for buffer in private_buffers(plan, role.name)
    )
    return ceildiv(bits, maximum(role.warps, 1) * (share * machine.threads_per_warp * 32))


def private_buffers(plan: Plan, role: str) -> tuple[Buffer, ...]:
    """The fragments and locals that a role touches, in order of allocation."""
    touched = {name for op in plan.ops[role] for name in statement_access(op).names}
    return tuple(b for b in plan.kernel.buffers if b.scope.private and b.name in touched)


def register_fragments(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A role's fragments and its bookkeeping fit the registers of its threads."""
    file = machine.registers
    if file is None:
        return
    entry = entry_registers(plan, machine)
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


def register_entry(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The widest matrix instruction fits the registers with which threads enter the kernel.

    That is the largest request, or what the file gives to each thread if that is less.
    """
    file = machine.registers
    if file is None:
        return
    threads = plan.num_warps * machine.threads_per_warp * shared_by(plan.blocks, machine)
    whole = entry_registers(plan, machine)
    largest: Expr = const(0)
    for role in plan.roles:
        largest = maximum(largest, role.nreg)
    for name, m, n in plan.matrix:
        need = m * n // machine.group_threads + MATRIX_REGISTERS
        yield require(
            all_of(need <= whole, any_of(equal(largest, 0), need <= largest)),
            f"{name}: an instruction of {{m}} x {{n}} needs {{need}} registers at entry, "
            f"{{threads}} threads have {{whole}} (largest request {{largest}})",
            m=m,
            n=n,
            need=need,
            threads=threads,
            whole=whole,
            largest=largest,
        )


def register_pool(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The requests fit what the block was launched with, not only the register file.

    A block owns the registers of its threads at entry, and increases are served from that pool
    alone. Where the file does not divide by the threads the pool is smaller than the file: 640
    threads enter with 96, and their pool is 61440.
    """
    if machine.registers is None:
        return
    largest: Expr = const(0)
    for role in plan.roles:
        largest = maximum(largest, role.nreg)
    entry = minimum(entry_registers(plan, machine), largest)
    size = machine.warps_per_group
    groups = [_own_groups(plan, role, size) for role in plan.roles]
    held = total(
        count * select(equal(role.nreg, 0), entry, role.nreg)
        for role, count in zip(plan.roles, groups, strict=True)
    )
    pool = plan.num_warps * machine.threads_per_warp * entry
    held = held * machine.group_threads
    yield require(
        any_of(equal(largest, 0), held <= pool),
        "the requests hold {held} registers, the block enters with {threads} threads x {entry} = "
        "{pool}",
        held=held,
        threads=plan.num_warps * machine.threads_per_warp,
        entry=entry,
        pool=pool,
    )


def register_copies(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """A role that copies through its threads asks for enough registers, or for none."""
    if machine.registers is None or not machine.async_copy:
        return
    for role in plan.roles:
        copies = [op.id for op in plan.ops[role.name] if _through_threads(plan, op)]
        if copies:
            yield require(
                any_of(equal(role.nreg, 0), const(COPY_REGISTERS) <= role.nreg),
                f"role {role.name} copies {', '.join(copies)} through its threads: "
                f"{{nreg}} registers < {COPY_REGISTERS}",
                nreg=role.nreg,
            )


def _through_threads(plan: Plan, op: Op) -> bool:
    if not is_bulk_load(op):
        return False
    stated = next((route.route for route in plan.routes if route.op == op.id), None)
    if stated is not None:
        return stated != CopyRoute.BULK
    return bool(bulk_refusal(op))


RULES = (
    Rule(
        "register-range",
        "safety",
        "a register request is a multiple of 8 in 24..256, or 0 for none",
        "W1, R-A7; PTX ISA, setmaxnreg",
        "ask for a multiple of 8 in range",
        register_range,
    ),
    Rule(
        "register-total",
        "safety",
        "the register requests of all warp groups fit the register file",
        "R-A6, W1, C27; PTX ISA, setmaxnreg: an increase blocks until registers are free",
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
    Rule(
        "register-entry",
        "form",
        "the widest matrix instruction fits the registers at entry",
        "ptxas C7602; cases C26",
        "fewer warps, or a narrower tile",
        register_entry,
    ),
    Rule(
        "register-pool",
        "safety",
        "the register requests of all warp groups fit what the block enters with",
        "PTX ISA, setmaxnreg: increases are served from a pool that each block has",
        "fewer warps, so that the file divides evenly, or smaller requests",
        register_pool,
    ),
    Rule(
        "register-copies",
        "form",
        "a role whose threads copy has the registers for it",
        f"seen in ptxas logs: below {COPY_REGISTERS} the copy loop spills",
        f"ask for at least {COPY_REGISTERS} registers",
        register_copies,
    ),
)
