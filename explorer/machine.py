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


class Pipe(StrEnum):
    """An in-order hardware pipe of a pipe machine.

    MTE2 loads from global memory, MTE1 moves L1 to L0, MTE3 stores from the unified buffer,
    FIXPIPE drains L0C; CUBE multiplies matrices, VECTOR and SCALAR compute.
    """

    MTE1 = "mte1"
    MTE2 = "mte2"
    MTE3 = "mte3"
    CUBE = "cube"
    VECTOR = "vector"
    FIXPIPE = "fixpipe"
    SCALAR = "scalar"


@frozen
class MemoryScope:
    """An on-chip memory: capacity and smallest alignment of an allocation, in bytes."""

    scope: Scope
    capacity_bytes: int
    alignment_bytes: int


@frozen
class TensorMemory:
    """Tensor memory of one unit: `lanes` rows of `columns` cells of `cell_bits`.

    A block allocates whole columns, a power of two and at least `columns_min` of them.
    """

    columns: int
    lanes: int
    cell_bits: int
    columns_min: int

    @property
    def capacity_bytes(self) -> int:
        """Its size in bytes."""
        return self.columns * self.column_bytes

    @property
    def column_bytes(self) -> int:
        """Bytes of one column, all lanes."""
        return self.lanes * self.cell_bits // 8


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
    not fall into few cache sets. Floats narrower than `float_bits_min` are widened when stored. A
    matrix op reads its B operand as K x N; one that is N x K is stored turned.
    """

    row_padding_bytes: int
    float_bits_min: int


@frozen
class Machine:
    """What a schedule may use.

    `threads_per_warp` x `warps_per_group` threads execute one matrix instruction. `units` is the
    number of multiprocessors (cores on the cpu), each with `shared_per_unit_bytes` and
    `threads_per_unit` for all its blocks. `reserved_bytes` of shared memory are taken per block.
    `barrier_bytes` is the size of one barrier. `slots` is None where slots are packed. Up to
    `cluster_max` blocks form a cluster, whose members reach each other's shared memory.

    A matrix op reads operands whose rows follow the reduction; those whose elements have
    `turned_bits` may also lie across it.

    On a pipe machine, `simt_reserved_bytes` of shared memory are taken where a kernel has a region
    of threads, and every ordered pair of pipes has `flag_ids` flags.
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
    threads_per_unit: int = 0
    async_copy: bool = False
    async_matrix: bool = False
    timed: bool = field(default=True)
    slots: SlotFormat | None = None
    tensor_memory: TensorMemory | None = None
    pipes: tuple[Pipe, ...] = ()
    simt_reserved_bytes: int = 0
    flag_ids: int = 0
    cluster_max: int = 1
    turned_bits: tuple[int, ...] = ()

    @property
    def cluster_sizes(self) -> tuple[int, ...]:
        """The numbers of blocks that a cluster may have."""
        return tuple(1 << power for power in range(self.cluster_max.bit_length()))

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
    threads_per_unit=2048,
    async_copy=True,
    async_matrix=True,
    cluster_max=2,
    turned_bits=(16,),
)

_TMEM = TensorMemory(columns=512, lanes=128, cell_bits=32, columns_min=32)

B200 = Machine(
    name="b200",
    arch="sm_100a",
    family="role",
    units=148,
    threads_per_warp=32,
    warps_per_group=4,
    max_warps=32,
    memories=(
        MemoryScope(Scope.SHARED, 232448, 1024),
        MemoryScope(Scope.TMEM, _TMEM.capacity_bytes, _TMEM.column_bytes),
    ),
    matrix_shapes=(
        *(MatrixShape(128, n, 32) for n in range(16, 257, 16)),
        *(MatrixShape(64, n, 32) for n in range(8, 257, 8)),
    ),
    barrier_bytes=8,
    registers=RegisterFile(total=65536, request_min=24, request_max=256, request_step=8),
    reserved_bytes=1024,
    shared_per_unit_bytes=233472,
    threads_per_unit=2048,
    async_copy=True,
    async_matrix=True,
    timed=False,
    turned_bits=(8, 16, 32),
    tensor_memory=_TMEM,
)

ASCEND950 = Machine(
    name="ascend950",
    arch="dav-3510",
    family="pipe",
    units=32,
    threads_per_warp=1,
    warps_per_group=1,
    max_warps=1,
    memories=(
        MemoryScope(Scope.SHARED, 253952, 32),
        MemoryScope(Scope.L1, 524288, 32),
        MemoryScope(Scope.L0C, 262144, 32),
        MemoryScope(Scope.L0A, 65536, 32),
        MemoryScope(Scope.L0B, 65536, 32),
    ),
    matrix_shapes=(MatrixShape(16, 16, 32),),
    barrier_bytes=0,
    async_copy=True,
    async_matrix=True,
    timed=False,
    pipes=tuple(Pipe),
    simt_reserved_bytes=32768,
    flag_ids=8,
)

MACHINES: tuple[Machine, ...] = (CPU, H200, B200, ASCEND950)


def machine_named(name: str) -> Machine:
    """The machine of that name; InputError lists those known."""
    for machine in MACHINES:
        if machine.name == name:
            return machine
    known = ", ".join(machine.name for machine in MACHINES)
    raise InputError(f"unknown machine {name!r}: known are {known}")
