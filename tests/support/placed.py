"""Programs whose buffers share bytes, and placements that are wrong on purpose."""

from __future__ import annotations

from attrs import evolve

from explorer.ir.nodes import Kernel
from explorer.machine import H200, Machine
from explorer.memory.placement import Placement
from explorer.passes import PASSES, assemble, materialize
from explorer.passes.plan import Plan
from explorer.program.nodes import Program
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import CopyRoute, Extensions, Launch, Route, StagedStore
from tests.kernels.attention import attention
from tests.support.programs import gemm_program
from tests.support.schedules import CONSUMERS, ROOT, Draft, R, flash_attention_3

STAGING = "O_stage"
TOKENS = ("qk", "pv")


def staged_attention(
    machine: Machine,
    launch: Launch,
    *,
    release_last: bool = True,
    tokens: bool = True,
    sizes: tuple[int, int, int] = (32, 16, 16),
    length: int = 80,
) -> Draft:
    """FlashAttention-3 whose consumers stage their rows of O; `sizes` are rows, keys, head dim.

    Q is released after the store, or, without `release_last`, before the staging. Without `tokens`
    nothing orders the gemms of the consumers among each other.
    """
    rows, keys, dim = sizes
    kernel = attention(1, 2, 1, length, length, dim, False, "bfloat16")
    draft = flash_attention_3(kernel, machine, rows, keys).extended(
        launch=launch, staged=(StagedStore("copy_O", STAGING),)
    )
    for role in CONSUMERS:
        body = [each for each in draft.body(ROOT, role) if each not in ("copy_O", R("q"))]
        stored = ["copy_O_stage", "copy_O"]
        tail = [*stored, R("q")] if release_last else [R("q"), *stored]
        draft = draft.with_body(ROOT, role, (*body, *tail))
    return draft if tokens else _without_tokens(draft)


def _without_tokens(draft: Draft) -> Draft:
    for role in CONSUMERS:
        kept = tuple(
            each for each in draft.body("k", role) if getattr(each, "pipeline", "") not in TOKENS
        )
        draft = draft.with_body("k", role, kept)
    return evolve(draft, pipelines=tuple(p for p in draft.pipelines if p[0] not in TOKENS))


def attention_program(machine: Machine, launch: Launch, **options: object) -> Program:
    draft = staged_attention(machine, launch, **options)
    return materialize(draft.kernel, draft.schedule, machine)


def staged_gemm(machine: Machine = H200, launch: Launch = Launch(), consumers: int = 1) -> Program:
    """A small GEMM whose consumers stage their rows of C."""
    routes = tuple(Route(op, CopyRoute.BULK) for op in ("copy_A", "copy_B"))
    return gemm_program(
        12,
        8,
        10,
        machine,
        consumers=consumers,
        consumer_warps=machine.warps_per_group,
        staged=True,
        extensions=Extensions(
            launch=launch,
            routes=routes if machine is H200 else (),
            staged=(StagedStore("store", "C_stage"),),
        ),
    )


def moved(placement: Placement, buffer: str, onto: str) -> Placement:
    """The placement with one buffer at another's offset."""
    offset = placement.buffer(onto).offset_bytes
    return evolve(
        placement,
        buffers=tuple(
            evolve(each, offset_bytes=offset) if each.buffer == buffer else each
            for each in placement.buffers
        ),
    )


def unplaced(kernel: Kernel, schedule: Schedule, machine: Machine) -> Program:
    """The program as it is before its buffers get their places."""
    plan = Plan(kernel, schedule, machine)
    for step in PASSES:
        plan = step(plan)
    return assemble(plan)
