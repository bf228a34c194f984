"""The step-by-step listing of a block's roles."""

from __future__ import annotations

from collections.abc import Callable

from explorer.machine import H200
from explorer.passes.show import offset_lines, show_schedule
from explorer.program.listing import show_roles
from explorer.schedule.extensions import Extensions, Launch
from tests.kernels.attention import attention
from tests.kernels.gemm import gemm
from tests.support.programs import gemm_program
from tests.support.schedules import flash_attention_3, ping_pong_gemm


def test_roles_side_by_side_with_slots_and_parities(golden: Callable[[str, str], None]) -> None:
    golden("gemm_cpu_step_by_step.txt", show_roles(gemm_program(4, 4, 6, depth=2), lines=7))


def test_skips_and_tiles_of_roles_that_take_turns() -> None:
    draft = ping_pong_gemm(gemm(320, 64, 64, "float16"), H200, (64, 64, 16))
    text = show_schedule(draft.kernel, draft.schedule, H200, lines=40)
    assert "skip 4 of ab.full" in text
    assert "tile 2: bx 0, by 2" in text
    assert "iteration offsets" not in text


def test_iteration_offsets_of_a_shifted_loop() -> None:
    kernel = attention(1, 2, 1, 128, 64, 32)
    draft = flash_attention_3(kernel, H200, 128, 32)
    lines = list(offset_lines(kernel, draft.schedule))
    assert [line.split(":")[0] for line in lines] == ["C0 in k", "C1 in k"]
    assert "gemm_S +0" in lines[0] and "map_S +1" in lines[0] and "gemm_acc +1" in lines[0]
    assert "iteration offsets" in show_schedule(kernel, draft.schedule, H200)


def test_a_persistent_block_lists_all_its_tiles() -> None:
    program = gemm_program(4, 12, 2, depth=2, extensions=Extensions(launch=Launch(1)))
    text = show_roles(program, lines=100)
    assert [f"tile {n}:" in text for n in range(4)] == [True, True, True, False]
    assert "..." not in text
