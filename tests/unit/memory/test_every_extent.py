"""C21: a tile of any inner extent and any element type gets an answer or a rule, from the check to
the source."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.codegen import emit_c
from explorer.codegen.cuda import generate
from explorer.constraints import check
from explorer.constraints.placement import place
from explorer.errors import ExplorerError
from explorer.ir.dtypes import DTYPES, DType
from explorer.ir.nodes import Copy, Kernel, Loop, Region, whole
from explorer.machine import CPU, H200, Machine
from explorer.passes import materialize
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope
from tests.support.programs import acquire, commit, relay_kernel, release, wait

ELEMENTS = tuple(DTYPES.values())


def tile_kernel(columns: int, element: DType, rows: int = 8) -> Kernel:
    """A relay through a tile of `rows` rows."""
    kernel = relay_kernel((2,), width=columns)
    tensors = tuple(
        evolve(t, dtype=element, shape=(t.shape[0] * rows, *t.shape[1:])) for t in kernel.tensors
    )
    (shared,) = kernel.buffers
    tile = evolve(shared, dtype=element, shape=(shared.shape[0] * rows, *shared.shape[1:]))
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    load, use = loop.body
    assert isinstance(load, Copy) and isinstance(use, Copy)

    def outside(region: Region) -> Region:
        buffer = next(tensor for tensor in tensors if tensor.name == region.buffer.name)
        start = (region.start[0] * rows, *region.start[1:])
        return evolve(region, buffer=buffer, start=start, extent=tile.shape)

    body = (
        evolve(load, src=outside(load.src), dst=whole(tile)),
        evolve(use, src=whole(tile), dst=outside(use.dst)),
    )
    return evolve(kernel, tensors=tensors, buffers=(tile,), body=(evolve(loop, body=body),))


def tile_schedule(kernel: Kernel, machine: Machine) -> Schedule:
    group = machine.warps_per_group
    ws = WSSchedule(
        2 * group,
        [WSRole("P", warps_lo=0, warps_hi=1), WSRole("Q", warps_lo=group, warps_hi=2 * group)],
        [WSPipeline("a", ["S_0"], 3)],
        [
            WSScope(WSScope.ROOT, {"P": ["loop_0"], "Q": ["loop_0"]}),
            WSScope(
                "loop_0",
                {
                    "P": [acquire("a"), "load_0", commit("a")],
                    "Q": [wait("a"), "use_0", release("a")],
                },
            ),
        ],
    )
    return Schedule(bind(kernel, machine.name, {}), ws)


def answer(columns: int, element: DType, machine: Machine, rows: int = 8) -> str:
    """The rule that refuses a tile, or nothing; whatever is neither raises."""
    kernel = tile_kernel(columns, element, rows)
    schedule = tile_schedule(kernel, machine)
    report = check(kernel, schedule, machine)
    if not report.ok:
        return report.violations[0].rule
    try:
        program = materialize(kernel, schedule, machine)
        placement = place(program, machine)
        assert placement.buffer("S_0").versions == 3
        if machine is CPU:
            emit_c(program, machine)
        else:
            generate(program, machine)
    except ExplorerError as refused:
        assert "\n" not in str(refused)
        return str(refused)
    return ""


@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
def test_every_extent_has_an_answer_or_a_rule(machine: Machine) -> None:
    for columns in (1, 2, 8, 16, *range(3, 257, 11), 128, 256):
        answer(columns, ELEMENTS[columns % len(ELEMENTS)], machine)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [H200, CPU], ids=lambda m: m.name)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_every_extent_and_element_has_an_answer_or_a_rule(
    element: DType, machine: Machine
) -> None:
    for columns in range(1, 257):
        for rows in (1, 8):
            answer(columns, element, machine, rows)


@pytest.mark.parametrize("columns", [8, 24, 64, 96, 256])
def test_ordinary_tiles_have_an_answer(columns: int) -> None:
    assert answer(columns, DTYPES["bfloat16"], H200) == ""
    assert answer(columns, DTYPES["float32"], CPU) == ""
