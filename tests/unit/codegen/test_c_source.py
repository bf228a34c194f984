"""The C source of programs: what may stand in it, and what it holds."""

from __future__ import annotations

import re

import pytest
from attrs import evolve

from explorer.codegen import emit_c
from explorer.codegen.cpu.layout import layout_of
from explorer.errors import KernelError
from explorer.ir.nodes import Kernel
from explorer.machine import CPU
from explorer.memory.footprint import shared_layout, slot_bytes
from explorer.passes import materialize
from explorer.program.nodes import Exec, For, Program, Step
from explorer.schedule.extensions import Extensions, Launch
from explorer.space import SearchSpace, build_space
from tests.kernels.gemm import gemm
from tests.support.programs import gemm_program

TILES = {"block_M": (64,), "block_N": (64,), "block_K": (32,)}
SINGLE, PAIR, TWO_RINGS = 0, 1, 2


def _space(kernel: Kernel) -> SearchSpace:
    return build_space(kernel, CPU, TILES)


def _program(
    skeleton: int, sizes: tuple[int, int, int] = (256, 256, 256), **choices: int
) -> Program:
    space = _space(gemm(*sizes))
    assignment = {choice.name: choice.domain[0] for choice in space.choices}
    assignment |= {"skeleton": skeleton, "raster": 0, "group": 1, "mma_m": 8} | choices
    schedule = space.candidate(space.canonical(assignment))
    return materialize(space.kernel, schedule, CPU)


def _map_ops(program: Program, change) -> Program:
    def steps(body: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            evolve(step, op=change(step.op))
            if isinstance(step, Exec)
            else evolve(step, body=steps(step.body))
            if isinstance(step, For)
            else step
            for step in body
        )

    return evolve(
        program, roles=tuple(evolve(role, body=steps(role.body)) for role in program.roles)
    )


def test_the_source_is_a_pure_function_of_the_program() -> None:
    assert emit_c(_program(PAIR), CPU) == emit_c(_program(PAIR), CPU)


def test_an_op_id_reaches_comments_without_its_harmful_characters() -> None:
    program = _map_ops(_program(SINGLE), lambda op: evolve(op, id='x */ "; int evil; /*'))
    source = emit_c(program, CPU)
    assert "int?evil" in source
    assert "int evil" not in source


def test_a_tensor_name_that_is_no_identifier_is_refused() -> None:
    program = _program(SINGLE)
    first = evolve(program.tensors[0], name="A[0]; evil()")
    with pytest.raises(KernelError, match="cannot stand in generated source"):
        emit_c(
            _map_ops(
                evolve(program, tensors=(first, *program.tensors[1:])),
                lambda op: (
                    evolve(op, src=evolve(op.src, buffer=first))
                    if getattr(getattr(op, "src", None), "buffer", None) == program.tensors[0]
                    else op
                ),
            ),
            CPU,
        )


def test_blocks_never_outnumber_tiles() -> None:
    one_tile = emit_c(_program(SINGLE, (20, 20, 20), blocks=2), CPU)
    assert "#define EX_BLOCKS 1\n" in one_tile
    assert "#define EX_BLOCKS 2\n" in emit_c(_program(SINGLE, blocks=2), CPU)


def test_ops_repeated_by_a_prologue_are_compiled_once() -> None:
    staged = emit_c(_program(TWO_RINGS, depth_A=2, depth_B=2, stage_B=2), CPU)
    helpers = re.findall(r"^static __attribute__\(\(noinline\)\) void (ex_copy_\d+)", staged, re.M)
    assert len(helpers) == 2
    assert all(staged.count(f"{name}(") > 2 for name in helpers)


def test_tails_are_noted_only_where_a_tile_can_leave_its_tensor() -> None:
    assert "ex_live" not in emit_c(_program(PAIR, (256, 256, 256)), CPU)
    assert "ex_live" in emit_c(_program(PAIR, (256, 256, 250)), CPU)


def test_what_is_allocated_is_what_the_capacity_rule_counts() -> None:
    program = _program(PAIR, depth_A_B=3)
    layout = layout_of(program, CPU)
    rings = [(ring.buffer, ring.versions) for ring in program.rings]
    assert layout.shared == shared_layout(rings, [3], CPU, layout.turned)
    for buffer, _ in rings:
        pitch = layout.shared.ring(buffer.name).pitch_bytes
        place = layout.slot(buffer)
        assert pitch == slot_bytes(buffer, CPU, layout.turned).__index__()
        assert place.strides[0] * place.shape[0] * 4 == pitch
    assert layout.block_bytes >= layout.shared.total_bytes


def test_an_n_by_k_operand_is_stored_k_by_n() -> None:
    space = _space(gemm(256, 256, 256, transpose_b=True))
    schedule = space.candidate(
        space.canonical({choice.name: choice.domain[0] for choice in space.choices})
    )
    program = materialize(space.kernel, schedule, CPU)
    layout = layout_of(program, CPU)
    assert layout.turned == {"B_shared"}
    assert layout.slot(program.ring("B_shared").buffer).strides == (1, 64 + 16)
    assert layout.slot(program.ring("A_shared").buffer).strides == (32 + 16, 1)


@pytest.mark.parametrize("sizes", [(256, 256, 256)])
def test_an_asynchronous_op_is_refused(sizes: tuple[int, int, int]) -> None:
    program = _program(SINGLE, sizes)
    role = program.roles[0]

    def asynchronous(body: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(evolve(s, asynchronous=True) if isinstance(s, Exec) else s for s in body)

    broken = evolve(program, roles=(evolve(role, body=asynchronous(role.body)),))
    with pytest.raises(KernelError, match="no asynchronous matrix ops"):
        emit_c(broken, CPU)


def test_a_hilbert_raster_is_a_table_beside_the_loop_over_tiles() -> None:
    source = emit_c(_program(PAIR, (128, 192, 64), raster=3), CPU)
    (name,) = set(re.findall(r"static const unsigned short (table_\w+)\[\] = ", source))
    assert f"const long v_bx = ex_div({name}[tile], 2);" in source
    assert f"const long v_by = ex_mod({name}[tile], 2);" in source


def test_parts_of_a_reduction_are_refused() -> None:
    program = gemm_program(8, 8, 8, extensions=Extensions(launch=Launch(2, split=2)))
    with pytest.raises(KernelError, match="no workspace that blocks share"):
        emit_c(program, CPU)
