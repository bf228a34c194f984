"""The C source of a program: constants, runtime, tails, helpers, one function a role, the entry.

The library has `int ex_run(void *const *tensors)`, tensors in the kernel's order (0: done, 1: a
wait gave up), `const char *ex_report(void)` for what the wait was, `int ex_wait_limit_ms`, and
`ex_close`, which ends its threads.

Invariant: the text is a pure function of the program and the machine; every number in it is a
literal, and names of users stand in it only as `c_name` lets them, or in comments and strings.
"""

from __future__ import annotations

from collections.abc import Mapping

from explorer.codegen.cpu.context import ProgramContext
from explorer.codegen.cpu.headers import header, runtime_text
from explorer.codegen.cpu.helpers import Helpers
from explorer.codegen.cpu.layout import Layout, layout_of
from explorer.codegen.cpu.roles import RoleEmitter, Site, role_name
from explorer.codegen.cpu.scalars import c_name
from explorer.codegen.cpu.tails import Tail, tails_of
from explorer.errors import KernelError
from explorer.machine import Machine
from explorer.program.launch import tile_count
from explorer.program.nodes import Program


def emit_c(program: Program, machine: Machine) -> str:
    """The C source of a program for the cpu; KernelError for what the cpu backend cannot run."""
    if program.workspace:
        raise KernelError("the cpu backend has no workspace that blocks share")
    context = ProgramContext(
        machine=machine,
        layout=layout_of(program, machine),
        tails=tails_of(program),
        matrix={op: (m, n) for op, m, n in program.matrix},
        helpers=Helpers(),
    )
    sites: list[Site] = []
    roles = [
        RoleEmitter(program, index, context, sites).function()
        for index in range(len(program.roles))
    ]
    parts = [
        _constants(program, context.layout, machine),
        runtime_text(context.helpers.headers),
        _state(program, context.tails),
        context.helpers.source(),
        *roles,
        _entry(program, context.layout),
        _report(sites),
    ]
    return "\n".join(parts)


def block_count(program: Program, machine: Machine) -> int:
    """Resident blocks: those of a persistent launch, else one a core, never more than tiles."""
    return max(1, min(program.launch.blocks or machine.units, tile_count(program)))


def _constants(program: Program, layout: Layout, machine: Machine) -> str:
    return (
        f"/* Kernel {c_name('k', program.name)[2:]}, {program.num_warps} warps a block. */\n"
        f"#define EX_BLOCKS {block_count(program, machine)}\n"
        f"#define EX_WARPS {program.num_warps}\n"
        f"#define EX_BLOCK_BYTES {layout.block_bytes}\n"
        f"#define EX_BARRIER_BYTES {machine.barrier_bytes}\n"
    )


def _state(program: Program, tails: Mapping[str, Tail]) -> str:
    lines = ["static void *const *ex_tensors;"]
    for index, role in enumerate(program.roles):
        if role.role.warps > 1:
            lines.append(f"static ex_barrier ex_meeting_{index}[EX_BLOCKS];")
    cut = [tail for tail in tails.values() if any(tail.partial)]
    if cut:
        lines.append("/* Rows and columns of each slot that are inside its tensor. */")
        lines.append("typedef struct { _Alignas(64) long rows, columns; } ex_live;")
    for tail in cut:
        versions = program.ring(tail.buffer.name).versions
        lines.append(f"static ex_live {tail.array}[EX_BLOCKS][{versions}];")
    return "\n".join(lines) + "\n"


def _entry(program: Program, layout: Layout) -> str:
    create, prepare = [], []
    for number, barriers in enumerate(program.barriers):
        count = 2 * barriers.depth
        create.append(f"for (int i = 0; i < {count}; i++) ex_barrier_create(barrier++);")
        for side, arrivals in (("full", barriers.full_count), ("empty", barriers.empty_count)):
            prepare.append(
                f"for (int i = 0; i < {barriers.depth}; i++) "
                f"ex_barrier_init(barrier++, {arrivals}); /* pipeline {number} {side} */"
            )
    for index, role in enumerate(program.roles):
        if role.role.warps > 1:
            create.append(f"ex_barrier_create(&ex_meeting_{index}[block]);")
            prepare.append(f"ex_barrier_init(&ex_meeting_{index}[block], {role.role.warps});")
    offset = layout.shared.barriers_offset_bytes
    branches = [
        f"    if (warp >= {role.role.warps_lo} && warp < {role.role.warps_hi}) "
        f"{role_name(index)}(block, warp);\n"
        for index, role in enumerate(program.roles)
    ]
    return (
        _each_block("ex_create", offset, create)
        + _each_block("ex_prepare", offset, prepare)
        + "static void ex_warp(int block, int warp) {\n"
        + "".join(branches)
        + "}\n"
        + "int ex_run(void *const *tensors) {\n    ex_tensors = tensors;\n"
        + "    return ex_launch();\n}\n"
    )


def _each_block(name: str, offset: int, lines: list[str]) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return (
        f"static void {name}(void) {{\n"
        "    for (int block = 0; block < EX_BLOCKS; block++) {\n"
        "        ex_barrier *barrier = (ex_barrier *)(ex_arena + (size_t)block * EX_BLOCK_BYTES + "
        f"{offset});\n        (void)barrier;\n{body}    }}\n}}\n"
    )


def _report(sites: list[Site]) -> str:
    rows = [f'{{"{s.role}", "{s.pipeline or s.role}", "{s.side}"}},' for s in sites]
    table = "".join(f"    {row}\n" for row in [*rows, '{"", "", ""},'])
    return (
        "static const struct { const char *role, *pipeline, *side; } ex_sites[] = {\n"
        f"{table}}};\n" + header("report.h")
    )
