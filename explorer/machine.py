"""Frozen descriptions of the machines that schedules are made for.

A *role machine* runs warps that play roles and meet at memory barriers (cpu, h200, b200); a *pipe
machine* runs in-order hardware pipes that meet at flags (ascend950). Sources of the figures: CUDA
programming guide and PTX ISA for sm_90a and sm_100a, tilelang 0.1.15 for ascend950.

Invariant: nothing here is read off a device; `runtime` refines a description with what it finds.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import field, frozen

from explorer.errors import InputError


class Scope(StrEnum):
    """Where a buffer lives."""

    GLOBAL = "global"
    SHARED = "shared"
    FRAGMENT = "fragment"
    LOCAL = "local"
    TMEM = "tmem"
    L1 = "shared.l1"
    L0A = "shared.l0a"
    L0B = "shared.l0b"
    L0C = "shared.l0c"

    @property
    def private(self) -> bool:
        """Whether every role has a copy of its own."""
        return self in (Scope.FRAGMENT, Scope.LOCAL)


@frozen
class MemoryScope:
    """An on-chip memory: capacity and smallest alignment of an allocation, in bytes."""

    scope: Scope
    capacity_bytes: int
    alignment_bytes: int


@frozen
class RegisterFile:
    """Registers of one unit, 32 bits each, and the range of a warp group's request."""

    total: int
    request_min: int
    request_max: int
    request_step: int


@frozen
class MatrixShape:
    """One legal tile of the matrix instruction: m rows (per warp group) x n columns x k.

    `k_bytes` is the reduction extent in bytes of the operand type. A gemm of a warp group covers
    its tile with whole instructions. On the cpu it is the register block of the micro-kernel.
    """

    m: int
    n: int
    k_bytes: int


@frozen
class SlotFormat:
    """How slots of shared buffers lie where the kernel's own code moves the data.

    Each row is a multiple of the scope's alignment plus `row_padding_bytes`, so that a column does
    not fall into few cache sets. Floats narrower than `float_bits_min` are widened when they are
    stored. A matrix op reads its B operand as K x N; one that is N x K is stored turned.
    """

    row_padding_bytes: int
    float_bits_min: int


@frozen
class Machine:
    """What a schedule may use.

    `threads_per_warp` x `warps_per_group` threads execute one matrix instruction. `units` is the
    number of multiprocessors (cores on the cpu). `reserved_bytes` of shared memory are taken per
    block. `barrier_bytes` is the size of one barrier. `slots` is None where slots are packed.
    """

    name: str
    arch: str
    family: str
    units: int
    threads_per_warp: int
    warps_per_group: int
    max_warps: int
    memories: tuple[MemoryScope, ...]
    matrix_shapes: tuple[MatrixShape, ...]
    barrier_bytes: int
    registers: RegisterFile | None = None
    reserved_bytes: int = 0
    shared_per_unit_bytes: int = 0
    async_copy: bool = False
    async_matrix: bool = False
    timed: bool = field(default=True)
    slots: SlotFormat | None = None

    def memory(self, scope: Scope) -> MemoryScope | None:
        """The description of an on-chip memory, None where it is unlimited or absent."""
        return next((memory for memory in self.memories if memory.scope == scope), None)

    @property
    def group_threads(self) -> int:
        """Threads of one warp group."""
        return self.threads_per_warp * self.warps_per_group


CPU = Machine(
    name="cpu",
    arch="host",
    family="role",
    units=2,
    threads_per_warp=1,
    warps_per_group=1,
    max_warps=16,
    memories=(MemoryScope(Scope.SHARED, 4 << 20, 64),),
    matrix_shapes=(MatrixShape(8, 16, 4), MatrixShape(6, 16, 4), MatrixShape(4, 16, 4)),
    barrier_bytes=128,
    slots=SlotFormat(row_padding_bytes=64, float_bits_min=32),
)

H200 = Machine(
    name="h200",
    arch="sm_90a",
    family="role",
    units=132,
    threads_per_warp=32,
    warps_per_group=4,
    max_warps=32,
    memories=(MemoryScope(Scope.SHARED, 232448, 1024),),
    matrix_shapes=tuple(MatrixShape(64, n, 32) for n in range(8, 257, 8)),
    barrier_bytes=8,
    registers=RegisterFile(total=65536, request_min=24, request_max=256, request_step=8),
    reserved_bytes=1024,
    shared_per_unit_bytes=233472,
    async_copy=True,
    async_matrix=True,
)

MACHINES: tuple[Machine, ...] = (CPU, H200)


def machine_named(name: str) -> Machine:
    """The machine of that name; InputError lists those known."""
    for machine in MACHINES:
        if machine.name == name:
            return machine
    known = ", ".join(machine.name for machine in MACHINES)
    raise InputError(f"unknown machine {name!r}: known are {known}")
