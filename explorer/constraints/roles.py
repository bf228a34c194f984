"""Rules of roles and warps (R-A), and of the matrix instruction's tiles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from explorer.constraints.registers import private_buffers
from explorer.constraints.rule import Requirement, Rule, broken, require
from explorer.expr import Expr, Var, all_of, any_of, const, divides, equal, maximum, symbols
from explorer.ir.nodes import Gemm
from explorer.machine import Machine, Scope
from explorer.program.launch import TABLE_TILES_MAX
from explorer.schedule.extensions import Raster
from explorer.schedule.plan import Plan, PlanRole


def warp_count(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-A1: whole warp groups, within the block's limit."""
    size = machine.warps_per_group
    yield require(
        all_of(plan.num_warps >= 1, divides(size, plan.num_warps)),
        f"num_warps {{n}} is not a positive multiple of {size}",
        n=plan.num_warps,
    )
    yield require(
        plan.num_warps <= machine.max_warps,
        f"num_warps {{n}} > {machine.max_warps} warps a block",
        n=plan.num_warps,
    )


def warp_ranges(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-A2, R-A3, R-A4: named, non-empty, disjoint ranges inside the block."""
    names = [role.name for role in plan.roles]
    for name in {name for name in names if names.count(name) > 1}:
        yield broken(f"two roles are named {name}")
    for role in plan.roles:
        yield require(
            all_of(role.lo >= 0, role.warps >= 1, role.lo + role.warps <= plan.num_warps),
            f"role {role.name} covers warps [{{lo}}, {{hi}}) of {{n}}",
            lo=role.lo,
            hi=role.lo + role.warps,
            n=plan.num_warps,
        )
    for one, other in combinations(plan.roles, 2):
        yield require(
            any_of(one.lo + one.warps <= other.lo, other.lo + other.warps <= one.lo),
            f"roles {one.name} [{{a}}, {{b}}) and {other.name} [{{c}}, {{d}}) overlap",
            a=one.lo,
            b=one.lo + one.warps,
            c=other.lo,
            d=other.lo + other.warps,
        )


def group_registers(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """R-A5: roles in one warp group ask for the same registers."""
    size = machine.warps_per_group
    if machine.registers is None:
        return
    for one, other in combinations(plan.roles, 2):
        apart = any_of(
            (one.lo + one.warps - 1) // size < other.lo // size,
            (other.lo + other.warps - 1) // size < one.lo // size,
        )
        yield require(
            any_of(apart, equal(one.nreg, other.nreg)),
            f"roles {one.name} ({{m}} registers) and {other.name} ({{n}}) share a warp group",
            m=one.nreg,
            n=other.nreg,
        )


def gemms_of(plan: Plan, role: str) -> tuple[Gemm, ...]:
    """The gemms that a role runs."""
    return tuple(op for op in plan.ops[role] if isinstance(op, Gemm))


def gemm_extents(gemm: Gemm) -> tuple[Expr, Expr, Expr]:
    """(m, n, k) of a gemm, in elements."""
    m, n = gemm.c.shape[-2:]
    k = gemm.a.shape[-2] if gemm.transpose_a else gemm.a.shape[-1]
    return m, n, k


def row_groups(plan: Plan, role: PlanRole, machine: Machine) -> Expr:
    """Warp groups among which the rows of a role's ops are divided, split roles included."""
    split = next((s for s in plan.splits if role.name in s.roles), None)
    groups = maximum(role.warps // machine.warps_per_group, 1)
    return groups * (len(split.roles) if split else 1)


def matrix_tile(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """The tile of every gemm is covered by whole instructions, rows divided among warp groups."""
    shapes: dict[int, list[int]] = {}
    for shape in machine.matrix_shapes:
        shapes.setdefault(shape.m, []).append(shape.n)
    tiles = {op: (m, n) for op, m, n in plan.matrix}
    for role in plan.roles:
        for gemm in gemms_of(plan, role.name):
            tensor = gemm.c.buffer.scope == Scope.TMEM  # one warp issues it (R-B7)
            yield require(
                any_of(
                    tensor,
                    all_of(
                        divides(machine.warps_per_group, role.warps),
                        divides(machine.warps_per_group, role.lo),
                    ),
                ),
                f"role {role.name} runs {gemm.id} on warps [{{lo}}, {{hi}}): not whole "
                f"warp groups of {machine.warps_per_group}",
                lo=role.lo,
                hi=role.lo + role.warps,
            )
            if gemm.id not in tiles:
                continue
            m, n, k = gemm_extents(gemm)
            tile_m, tile_n = tiles[gemm.id]
            yield require(
                any_of(
                    *(
                        all_of(equal(tile_m, rows), any_of(*(equal(tile_n, n) for n in columns)))
                        for rows, columns in shapes.items()
                    )
                ),
                f"{gemm.id}: {machine.name} has no matrix instruction of {{m}} x {{n}}",
                m=tile_m,
                n=tile_n,
            )
            groups = const(1) if tensor else row_groups(plan, role, machine)
            yield require(
                divides(tile_m * groups, m),
                f"{gemm.id}: {{rows}} rows are not {{groups}} warp groups x whole tiles of {{m}}",
                rows=m,
                groups=groups,
                m=tile_m,
            )
            yield require(
                divides(tile_n, n),
                f"{gemm.id}: {{columns}} columns are not whole tiles of {{n}}",
                columns=n,
                n=tile_n,
            )
            yield from _reduction_step(gemm, k, machine)


def _reduction_step(gemm: Gemm, k: Expr, machine: Machine) -> Iterator[Requirement]:
    k_bytes = machine.matrix_shapes[0].k_bytes
    if not machine.async_matrix:
        return
    yield require(
        divides(k_bytes * 8, k * gemm.b.buffer.dtype.bits),
        f"{gemm.id}: a reduction of {{k}} {gemm.b.buffer.dtype} is not whole steps of {k_bytes} B",
        k=k,
    )


def row_split(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Roles that split rows, and warps of one role, get equal shares of every fragment."""
    split_roles = {name for split in plan.splits for name in split.roles}
    for role in plan.roles:
        groups = row_groups(plan, role, machine)
        by_rows = role.name in split_roles or gemms_of(plan, role.name)
        # Without a matrix layout, the threads of a GPU's role share a fragment in any way.
        if not by_rows and machine.threads_per_warp > 1:
            continue
        heights = {b.shape[0]: b.name for b in reversed(private_buffers(plan, role.name))}
        for rows, name in heights.items():
            yield require(
                divides(groups, rows),
                f"role {role.name}: {{rows}} rows of {name} are not divisible among "
                "{groups} warp groups",
                rows=rows,
                groups=groups,
            )
    for split in plan.splits:
        warps = [plan.role(name).warps for name in split.roles]
        yield require(
            all_of(*(equal(warps[0], other) for other in warps[1:])),
            f"roles {', '.join(split.roles)} split rows but have different warp counts",
        )


def launch(plan: Plan, machine: Machine) -> Iterator[Requirement]:
    """Resident blocks fit the machine; a raster group is given only to a grouped raster, and a
    Hilbert raster to a grid whose order a table holds."""
    grouped = tuple(Raster).index(Raster.GROUPED)
    yield require(plan.blocks >= 0, "blocks {blocks} < 0", blocks=plan.blocks)
    yield require(
        any_of(equal(plan.raster, grouped), equal(plan.group, 1)),
        "a raster group of {group} without a grouped raster",
        group=plan.group,
    )
    yield require(
        any_of(plan.group > 1, ~equal(plan.raster, grouped)),
        "a grouped raster with groups of {group}",
        group=plan.group,
    )
    hilbert = equal(plan.raster, tuple(Raster).index(Raster.HILBERT))
    plane = [extent for _, extent in plan.kernel.grid[:2]]
    if any(isinstance(symbol, Var) for extent in plane for symbol in symbols(extent)):
        yield require(~hilbert, "a hilbert raster of a grid that is known at run time only")
    elif len(plane) > 1:
        yield require(
            any_of(~hilbert, plane[0] * plane[1] <= TABLE_TILES_MAX),
            "a hilbert raster of {first} x {second} tiles > {limit}",
            first=plane[0],
            second=plane[1],
            limit=const(TABLE_TILES_MAX),
        )
    if machine.registers is None:
        limit = const(2 * machine.units)
        yield require(
            any_of(plan.num_warps * plan.blocks <= limit, plan.blocks <= 1),
            "{blocks} blocks x {warps} warps > {limit} threads, two a core",
            blocks=plan.blocks,
            warps=plan.num_warps,
            limit=limit,
        )


STRUCTURE = (
    Rule(
        "warp-count",
        "form",
        "the block has whole warp groups and at most the machine's warps",
        "R-A1; CUDA programming guide: 1024 threads a block",
        "round the warps up to whole groups",
        warp_count,
    ),
    Rule(
        "warp-ranges",
        "form",
        "roles have unique names and disjoint, non-empty warp ranges inside the block",
        "R-A2, R-A3, R-A4",
        "give every role warps of its own",
        warp_ranges,
    ),
)

RULES = (
    Rule(
        "group-registers",
        "form",
        "roles in one warp group ask for the same registers",
        "R-A5; PTX ISA: setmaxnreg acts on a warp group",
        "put the roles into different warp groups",
        group_registers,
    ),
    Rule(
        "matrix-tile",
        "safety",
        "every gemm tile is covered by whole matrix instructions, without overlap",
        "PTX ISA, wgmma shapes; the micro-kernel's register block on the cpu",
        "choose tile sizes that are multiples of the instruction's",
        matrix_tile,
    ),
    Rule(
        "row-split",
        "form",
        "warp groups that divide rows get equal shares",
        "Extensions.splits",
        "choose a tile height divisible by the number of warp groups",
        row_split,
    ),
    Rule(
        "launch",
        "form",
        "resident blocks fit the machine, and raster groups belong to a grouped raster",
        "Launch",
        "fewer blocks or warps; group 1, or raster grouped",
        launch,
    ),
)
