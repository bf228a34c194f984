"""What one op costs: the time of the role that runs it, and what it takes of a unit's engines.

Invariant: each op has one formula, here.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import astuple, frozen

from explorer.cost.figures import Figures
from explorer.expr import evaluate, product
from explorer.ir.access import access
from explorer.ir.nodes import Copy, Gemm, Region
from explorer.machine import Machine, Scope
from explorer.memory.bulk import bulk_box, bulk_refusal, pitch_bytes
from explorer.memory.tiles import tile_layout
from explorer.program.nodes import Exec
from explorer.schedule.extensions import CopyRoute

SECTOR_BYTES = 32
# The width of the operands that the figure of the matrix cores is for.
FIGURE_BITS = 16


@frozen
class Cost:
    """What steps take of a role and of its unit.

    `own_us`: the role's threads are busy. `waited_us`: they wait for matrix ops that complete in
    place. `matrix_us`, `copy_us`, `shared_us`: the matrix unit, the copy engine and the port of
    shared memory are busy.
    """

    own_us: float = 0.0
    waited_us: float = 0.0
    matrix_us: float = 0.0
    copy_us: float = 0.0
    shared_us: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.own_us + other.own_us,
            self.waited_us + other.waited_us,
            self.matrix_us + other.matrix_us,
            self.copy_us + other.copy_us,
            self.shared_us + other.shared_us,
        )

    def times(self, count: int) -> Cost:
        """The cost of that many executions."""
        return Cost(*(count * part for part in astuple(self)))

    @property
    def serial_us(self) -> float:
        """The time that the steps take where nothing else is in their way."""
        return max(self.own_us + self.waited_us, self.engine_us)

    @property
    def engine_us(self) -> float:
        """The time of the busiest engine."""
        return max(self.matrix_us, self.copy_us, self.shared_us)


def op_cost(
    step: Exec, threads: int, machine: Machine, figures: Figures, env: Mapping[str, int]
) -> Cost:
    """The cost of one execution by a role of so many threads."""
    match step.op:
        case Gemm():
            matrix_us = matrix_time_us(step.op, machine, figures, env)
            shared_us = operand_bytes(step.op, machine, env) / figures.shared_bytes_per_us
            # Each warp group waits for its own share; the others' ops run meanwhile.
            groups = max(1, threads // machine.group_threads)
            waited_us = 0.0 if step.asynchronous else matrix_us / groups + figures.drain_us
            return Cost(waited_us=waited_us, matrix_us=matrix_us, shared_us=shared_us)
        case Copy(_, _, dst) if step.route == CopyRoute.BULK:
            # The other blocks of a cluster deliver their shares too; they copy them.
            shared_us = step.multicast * region_bytes(dst, env) / figures.shared_bytes_per_us
            copy_us = copy_time_us(step.op, figures)
            return Cost(own_us=figures.step_us, copy_us=copy_us, shared_us=shared_us)
        case Copy(_, src, _) if src.buffer.scope == Scope.GLOBAL:
            return Cost(own_us=_elements(src, env) / threads * figures.element_us)
        case Copy(_, src, dst) if dst.buffer.scope == Scope.GLOBAL:
            if src.buffer.scope == Scope.SHARED and not bulk_refusal(step.op):
                # The copy engine reads shared memory while the role goes on.
                return Cost(own_us=figures.step_us)
            return Cost(own_us=region_bytes(dst, env) / figures.store_bytes_per_us)
    written = max((_elements(region, env) for region in access(step.op).writes), default=0)
    return Cost(own_us=written / threads * figures.value_us)


def workspace_cost(step: Exec, figures: Figures, env: Mapping[str, int]) -> Cost:
    """The cost of handing sums over: what it reads and writes outside the role's registers."""
    found = access(step.op)
    outside = (r for r in (*found.reads, *found.writes) if not r.buffer.scope.private)
    moved = sum(region_bytes(region, env) for region in outside)
    return Cost(own_us=moved / figures.workspace_bytes_per_us)


def matrix_time_us(
    gemm: Gemm, machine: Machine, figures: Figures, env: Mapping[str, int]
) -> float:
    """2 m n k operations at the rate of one unit's matrix cores, which count operand bytes."""
    rows, columns = gemm.c.extent[-2:]
    depth = gemm.a.extent[-2 if gemm.transpose_a else -1]
    flop = 2 * evaluate(product([rows, columns, depth]), env)
    width = gemm.a.buffer.dtype.bits / FIGURE_BITS
    return flop * width / (figures.matrix_flop_per_us / machine.units)


def operand_bytes(gemm: Gemm, machine: Machine, env: Mapping[str, int]) -> float:
    """What a gemm reads of shared memory: each warp group reads all of B for its rows of A."""
    rows = evaluate(gemm.c.extent[-2], env)
    groups = max(1, rows // max(shape.m for shape in machine.matrix_shapes))
    a_bytes = region_bytes(gemm.a, env) if gemm.a.buffer.scope == Scope.SHARED else 0.0
    return a_bytes + groups * region_bytes(gemm.b, env)


def copy_time_us(copy: Copy, figures: Figures) -> float:
    """Rows of the copy's boxes: the engine takes as long for a short row as for one of 128 B, and
    longer where it has to cut memory's sectors."""
    tile = copy.dst.buffer
    rows, columns = evaluate(product(tile.shape[:-1])), evaluate(tile.shape[-1])
    box = bulk_box(copy.src, tile_layout(rows, columns, tile.dtype))
    whole = evaluate(pitch_bytes(copy.src.buffer)) % SECTOR_BYTES == 0
    rate = figures.copy_rows_per_us / (1.0 if whole else figures.off_sector)
    return box.rows * box.row_steps * box.column_steps / rate


def region_bytes(region: Region, env: Mapping[str, int]) -> float:
    """Bytes of a region."""
    return _elements(region, env) * region.buffer.dtype.bits / 8


def _elements(region: Region, env: Mapping[str, int]) -> int:
    return evaluate(product(region.extent), env)
