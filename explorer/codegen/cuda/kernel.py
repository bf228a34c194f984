"""The whole kernel: parameters, barriers, the branch that hands warps to roles, register requests.

Roles are told apart by one branch over warp groups, in which every warp of a group executes the
group's setmaxnreg first. ptxas lets a kernel enter with the largest request, or with what the
register file gives to each of its threads if that is less. A request below that count must
decrease: an increase to fewer registers is an illegal instruction, which ptxas does not report.

Invariant: source and plan depend on the program, the machine and the bound alone.
"""

from __future__ import annotations

from attrs import frozen

from explorer.codegen.cuda.context import Block, block_of
from explorer.codegen.cuda.elements import stored_type
from explorer.codegen.cuda.parts import ticket_shares, workspace_tiles
from explorer.codegen.cuda.plan import (
    REPORT_WORDS,
    CudaKernel,
    LaunchPlan,
    Parameter,
    Prediction,
    TensorSpec,
)
from explorer.codegen.cuda.prelude import BASE, used_functions
from explorer.codegen.cuda.roles import RoleEmitter, barrier_counts
from explorer.codegen.cuda.scalars import c_name, fixed
from explorer.codegen.text import Writer
from explorer.errors import ScheduleError
from explorer.expr import evaluate
from explorer.ir.access import access
from explorer.ir.nodes import Buffer
from explorer.machine import H200, Machine
from explorer.program.launch import block_count, entry_limit, shared_by
from explorer.program.nodes import Program, RoleProgram, RoleSync, Ticket
from explorer.program.steps import every_step, executed


@frozen
class Part:
    """Warp groups [low, high) with the roles on them and their register request (0: none)."""

    low: int
    high: int
    roles: tuple[RoleProgram, ...]
    registers: int


def generate(program: Program, machine: Machine = H200, bound_ns: int | None = None) -> CudaKernel:
    """CUDA C++ for a program, and how to launch it.

    With `bound_ns` every wait gives up after that time: it writes who waits for what to the hang
    report and traps. ScheduleError for what the backend cannot express.
    """
    block = block_of(program, machine, bound_ns is not None)
    parts = warp_groups(program, machine)
    body = Writer("  ", depth=1)
    entry, requested = entry_registers(parts, unit_threads(program, machine), machine)
    _verify_pool(parts, entry, requested, machine)
    for index, part in enumerate(parts):
        head = f"if (warp_group < {part.high}u)" if index < len(parts) - 1 else ""
        with body.block(f"{'else ' if index else ''}{head}".strip()):
            if requested and part.registers:
                body.line(_request(part, entry))
            for role in part.roles:
                _role(block, role, part, body)
    if program.launch.cluster > 1:
        # No block leaves while another may still write to its shared memory.
        body.line("cluster_sync();")
    parameters = _parameters(block)
    # Behind the roles, which say what tensor maps there are.
    start = Writer("  ", depth=1)
    _initialise(block, start)
    source = _source(block, start.source() + body.source(), parameters, bound_ns)
    return CudaKernel(source, _plan(block, parts, parameters))


# ---------------------------------------------------------------- warps


def warp_groups(program: Program, machine: Machine) -> tuple[Part, ...]:
    """The warp groups in order, those that share a role together."""
    size = machine.warps_per_group
    parts: list[Part] = []
    for group in range(program.num_warps // size):
        low, high = group * size, group * size + size
        here = tuple(
            role
            for role in program.roles
            if role.role.warps_lo < high and role.role.warps_hi > low
        )
        last = parts[-1] if parts else None
        if last and here and last.roles == here and len(here) == 1:
            parts[-1] = Part(last.low, group + 1, here, last.registers)
        else:
            requests = {role.role.max_nreg for role in here}
            if len(requests) > 1:
                raise ScheduleError(f"R-A5: warp group {group} asks for registers {requests}")
            parts.append(Part(group, group + 1, here, max(requests, default=0)))
    return _idle_requests(parts)


def _idle_requests(parts: list[Part]) -> tuple[Part, ...]:
    """Idle warp groups ask for the smallest request (R-A6)."""
    least = min((part.registers for part in parts if part.registers), default=0)
    return tuple(part if part.roles else Part(part.low, part.high, (), least) for part in parts)


def _request(part: Part, entry: int) -> str:
    kind = "inc" if part.registers >= entry else "dec"
    return f'asm volatile("setmaxnreg.{kind}.sync.aligned.u32 {part.registers};");'


def unit_threads(program: Program, machine: Machine) -> int:
    """Threads that share the registers of a unit: those of all blocks that are to be resident."""
    threads = program.num_warps * program.threads_per_warp
    return threads * evaluate(shared_by(program.launch.blocks, machine))


def entry_registers(parts: tuple[Part, ...], threads: int, machine: Machine) -> tuple[int, bool]:
    """Registers a thread at entry where so many share a unit, and whether that is exact: requests
    fix it, without any it is the most that the compiler may take."""
    most = evaluate(entry_limit(threads, machine))
    requests = [part.registers for part in parts if part.registers]
    return (min(most, max(requests)), True) if requests else (most, False)


def _verify_pool(parts: tuple[Part, ...], entry: int, requested: bool, machine: Machine) -> None:
    """Increases are served from what the block enters with; more than that hangs."""
    size = machine.group_threads
    held = sum((p.high - p.low) * size * (p.registers or entry) for p in parts)
    pool = parts[-1].high * size * entry
    if requested and held > pool:
        raise ScheduleError(
            f"register-pool: the requests hold {held} registers, the block enters with {pool}; "
            "use fewer warps or smaller requests"
        )


# ---------------------------------------------------------------- text


def _initialise(block: Block, out: Writer) -> None:
    out.line("const u32 base = (u32)__cvta_generic_to_shared(smem);")
    out.line("const u32 warp_index = __shfl_sync(0xffffffffu, threadIdx.x / 32u, 0);")
    out.line("const u32 warp_group = __shfl_sync(0xffffffffu, threadIdx.x / 128u, 0);")
    out.line("const u32 lane = threadIdx.x % 32u;")
    out.line('if (base & 1023u) asm volatile("trap;");')
    counts = barrier_counts(block.program, block.machine)
    with out.block("if (threadIdx.x == 0u)"):
        for barriers in block.program.barriers:
            offsets = [block.barrier_offset(barriers.pipeline, full) for full in (True, False)]
            with out.block(f"for (u32 i = 0u; i < {barriers.depth}u; ++i)"):
                for full, offset in zip((True, False), offsets, strict=True):
                    count = counts[(barriers.pipeline, full)]
                    out.line(f"barrier_init(base + {offset}u + 8u * i, {count}u);")
        out.line('asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
    # By another warp meanwhile: the first copy in, and the only one out, wait for no map.
    if block.maps:
        with out.block(f"if (threadIdx.x == {block.machine.threads_per_warp}u)"):
            for number in range(len(block.maps)):
                out.line(f"prefetch_map(&map_{number});")
    # Others' copies and arrivals come in as soon as they run: every barrier is ready before.
    out.line("cluster_sync();" if block.program.launch.cluster > 1 else "__syncthreads();")


def _role(block: Block, role: RoleProgram, part: Part, out: Writer) -> None:
    """One role; only some warps of a group run it where the group has others."""
    low, high = role.role.warps_lo, role.role.warps_hi
    size = block.machine.warps_per_group
    alone = low <= part.low * size and high >= part.high * size
    conditions = [] if alone else [f"warp_index >= {low}u"] if low > part.low * size else []
    if not alone and high < part.high * size:
        conditions.append(f"warp_index < {high}u")
    head = f"if ({' && '.join(conditions)})" if conditions else ""
    with out.block(f"{head}"):
        out.line(f"// role {role.role.name}: warps {low} to {high - 1}")
        out.line(f"const u32 warp = warp_index - {low}u, thread = warp * 32u + lane;")
        if block.bounded:
            place = f"(blockIdx.x * {len(block.program.roles)}u + {_number(block, role)}u)"
            out.line(f"u32* const record = report + {place} * {REPORT_WORDS}u;")
        RoleEmitter(block, role, out).emit()


def _number(block: Block, role: RoleProgram) -> int:
    return [each.role.name for each in block.program.roles].index(role.role.name)


def _parameters(block: Block) -> tuple[Parameter, ...]:
    maps = tuple(Parameter("map", str(i)) for i in range(len(block.maps)))
    tensors = tuple(Parameter("tensor", tensor.name) for tensor in block.program.tensors)
    scalars = tuple(Parameter("scalar", name) for name in block.program.scalars)
    handed_over = tuple(Parameter("workspace", b.name) for b in block.program.workspace)
    if handed_over:
        handed_over = (*handed_over, Parameter("tickets", "tickets"))
    report = (Parameter("report", "report"),) if block.bounded else ()
    return (*maps, *tensors, *scalars, *handed_over, *report)


def _source(
    block: Block, body: str, parameters: tuple[Parameter, ...], bound_ns: int | None
) -> str:
    program = block.program
    written = _written(program)
    types = {tensor.name: stored_type(tensor.dtype) for tensor in program.tensors}

    def declared(parameter: Parameter) -> str:
        match parameter.kind:
            case "map":
                return f"const __grid_constant__ TensorMap map_{parameter.name}"
            case "tensor":
                const = "" if parameter.name in written else "const "
                name = c_name("t", parameter.name)
                return f"{const}{types[parameter.name]}* __restrict__ {name}"
            case "scalar":
                return f"const int {c_name('v', parameter.name)}"
            case "workspace":
                return f"float* {c_name('t', parameter.name)}"
            case "tickets":
                return "u32* tickets"
        return "u32* report"

    threads = program.num_warps * program.threads_per_warp
    head = ",\n    ".join(map(declared, parameters))
    cluster = program.launch.cluster
    shape = f" __cluster_dims__({cluster}, 1, 1)" if cluster > 1 else ""
    resident = unit_threads(program, block.machine) // threads
    kernel = (
        f'extern "C" __global__ void{shape} __launch_bounds__({threads}, {resident})\n'
        f"{c_name('k', program.name)}(\n    {head}) {{\n"
        "  extern __shared__ __align__(1024) unsigned char smem[];\n"
        f"{body}}}\n"
    )
    generated = "".join(block.functions.values())
    bound = f"#define BOUND_NS {bound_ns}ull\n" if bound_ns is not None else ""
    return BASE + bound + used_functions(generated + kernel) + generated + kernel


def _written(program: Program) -> frozenset[str]:
    return frozenset(
        region.buffer.name
        for role in program.roles
        for step in executed(role.body)
        for region in access(step.op).writes
    )


def _plan(block: Block, parts: tuple[Part, ...], parameters: tuple[Parameter, ...]) -> LaunchPlan:
    program = block.program
    threads = program.num_warps * program.threads_per_warp
    registers, exact = entry_registers(parts, unit_threads(program, block.machine), block.machine)
    blocks, roles = block_count(program), tuple(role.role.name for role in program.roles)
    written = _written(program)
    return LaunchPlan(
        entry=c_name("k", program.name),
        arch=block.machine.arch,
        grid_blocks=blocks,
        cluster=program.launch.cluster,
        block_threads=threads,
        shared_bytes=block.shared.total_bytes,
        tensors=tuple(map(_tensor, program.tensors)),
        outputs=tuple(t.name for t in program.tensors if t.name in written),
        maps=tuple(block.maps),
        parameters=parameters,
        roles=roles,
        sites=tuple(block.sites),
        prediction=Prediction(block.shared.total_bytes, barriers_used(program), registers, exact),
        report_words=blocks * len(roles) * REPORT_WORDS if block.bounded else 0,
        workspace=tuple(map(_tensor, program.workspace)),
        tickets=ticket_shares(program) * workspace_tiles(program),
    )


def _tensor(buffer: Buffer) -> TensorSpec:
    shape = tuple(fixed(extent, f"the shape of '{buffer.name}'") for extent in buffer.shape)
    return TensorSpec(buffer.name, buffer.dtype.name, shape)


def barriers_used(program: Program) -> int:
    """Named barriers up to the highest; the block's own, 0, where it starts without a cluster."""
    roles = named_barriers(program)
    return 1 + roles if roles or program.launch.cluster == 1 else 0


def named_barriers(program: Program) -> int:
    """Roles whose warps meet at a barrier of their own."""
    return sum(
        role.role.warps > 1
        and any(isinstance(s, RoleSync | Ticket) for s in every_step(role.body))
        for role in program.roles
    )
