"""Kernel + schedule -> program, one pass a file, in the order of `PASSES`.

Invariant: `materialize` returns a program that `program.verify` accepts, or raises an error that
names the rule; it decides nothing that the schedule, the kernel or the machine does not say.
"""

from __future__ import annotations

from explorer.ir.nodes import Kernel
from explorer.machine import Machine
from explorer.passes.alternate_sides import alternate_sides
from explorer.passes.assign_stages import assign_stages
from explorer.passes.bind_params import bind_params
from explorer.passes.bind_rings import bind_rings
from explorer.passes.choose_routes import choose_routes
from explorer.passes.count_arrivals import count_arrivals
from explorer.passes.dump import dump_plan, dump_program
from explorer.passes.expand_stages import expand_stages
from explorer.passes.lag_matrix import lag_matrix
from explorer.passes.place_ops import place_ops
from explorer.passes.plan import Pass, Plan
from explorer.passes.rewrite_kernel import rewrite_kernel
from explorer.passes.share_bytes import share_bytes
from explorer.passes.share_copies import share_copies
from explorer.passes.split_reduction import split_reduction
from explorer.passes.split_rows import split_rows
from explorer.passes.sync_warps import sync_warps
from explorer.passes.version_private import version_private
from explorer.program.nodes import Program, RoleProgram
from explorer.program.verify import verify_program
from explorer.schedule.bound import Schedule

PASSES: tuple[Pass, ...] = (
    bind_params,  # every size fixed
    rewrite_kernel,  # staged stores through their buffers, swapped gemms transposed
    place_ops,  # scope bodies -> a tree of entries per role
    split_reduction,  # parts of the reduction as tiles, their sums handed over
    split_rows,  # each role its share of the rows
    bind_rings,  # versions, and the cycle of every slot that an op touches
    choose_routes,  # how copies travel, who arrives
    share_copies,  # what a cluster fetches once
    assign_stages,  # iteration offsets
    version_private,  # copies of private buffers that outlive an iteration
    alternate_sides,  # whose iteration it is
    lag_matrix,  # asynchronous matrix ops and their late releases
    count_arrivals,  # barriers and their arrive counts
    expand_stages,  # prologue, steady loop, epilogue: plain steps
    sync_warps,  # barriers among the threads of one role
)


def materialize(kernel: Kernel, schedule: Schedule, machine: Machine) -> Program:
    """The program of a kernel (its Params still open) under a schedule made for it.

    ScheduleError names what the passes cannot give a meaning to; IllegalSchedule is raised for a
    program that breaks its own invariants, and prints it.
    """
    plan = Plan(kernel, schedule, machine)
    for number, step in enumerate(PASSES):
        plan = step(plan)
        dump_plan(plan, number, step.__name__)
    program = share_bytes(assemble(plan), machine)
    dump_program(program, plan, len(PASSES))
    verify_program(program)
    return program


def assemble(plan: Plan) -> Program:
    """The program of a plan that went through all passes."""
    extensions = plan.schedule.extensions
    return Program(
        name=plan.kernel.name,
        machine=plan.machine.name,
        tensors=plan.kernel.tensors,
        grid=plan.kernel.grid,
        launch=extensions.launch,
        num_warps=plan.schedule.ws.num_warps,
        rings=plan.rings,
        barriers=plan.barriers,
        roles=tuple(
            RoleProgram(role.role, role.steps, role.private, role.share) for role in plan.roles
        ),
        matrix=tuple((tile.op, tile.m, tile.n) for tile in extensions.matrix),
        threads_per_warp=plan.machine.threads_per_warp,
        scalars=plan.kernel.scalars,
        workspace=plan.workspace,
        pools=plan.kernel.pools,
        streamed=plan.streamed,
    )


__all__ = ["PASSES", "assemble", "materialize"]
