"""Sessions on the card, and kernels that misbehave on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from attrs import evolve

from explorer.codegen.cuda import CudaKernel, generate
from explorer.machine import H200
from explorer.program.nodes import Program
from explorer.records import CompileFailed, Measured
from explorer.runtime import Built, Session, load_workload
from explorer.runtime.cuda.build import build_kernel
from explorer.runtime.cuda.compilers import Compilers
from explorer.runtime.cuda.toolchain import CudaToolchain
from explorer.schedule.bound import Schedule
from tests.support.cuda_candidates import one_arrival_too_many


@contextmanager
def session(
    layout: str, sizes: tuple[int, int, int], kind: str = "bfloat16", limit_s: float = 4.0
) -> Iterator[Session]:
    workload = load_workload(layout)
    problem = workload.problem(dict(zip("MNK", sizes, strict=True)), kind)
    bound = workload.bound(H200.name, problem.dtype)
    with Session(layout, problem, H200, bound, limit_s) as opened:
        yield opened


def built(opened: Session, schedule: Schedule) -> Built:
    found = opened.build(schedule)
    assert isinstance(found, Built), found
    return found


def is_spilled(found: Built | CompileFailed) -> bool:
    """Whether ptxas ran out of registers: how many an epilogue needs is the compiler's to say."""
    return isinstance(found, CompileFailed) and "register-spill" in found.message


def all_are_right(opened: Session, drawn: Iterable[tuple[str, Schedule]]) -> None:
    """Every drawn schedule computes what it should.

    What the compiler spills is no candidate, which may be the fate of less than half.
    """
    right = spilled = 0
    for title, schedule in drawn:
        found = opened.build(schedule)
        if is_spilled(found):
            spilled += 1
            continue
        assert isinstance(found, Built), f"{title}: {found}\n{schedule}"
        outcome = opened.measure(found, repeats=1)
        assert isinstance(outcome, Measured), f"{title}: {outcome}\n{schedule}"
        right += 1
    assert right > spilled


def hanging(program: Program) -> Built:
    """A kernel whose consumers wait for an arrival that nobody makes."""
    toolchain = CudaToolchain(H200)
    try:
        found = toolchain.build_program(one_arrival_too_many(program))
    finally:
        toolchain.close()
    assert isinstance(found, Built), found
    return found


def crashing(program: Program) -> Built:
    """A kernel that stores to address 64."""
    kernel = generate(program, H200)
    marker = "const u32 lane = threadIdx.x % 32u;"
    assert marker in kernel.source
    wild = f"{marker}\n  if (lane == 0u) *(volatile u32*)64ull = 1u;"
    broken: CudaKernel = evolve(kernel, source=kernel.source.replace(marker, wild))
    compilers = Compilers(1)
    try:
        found = build_kernel(broken, compilers)
    finally:
        compilers.close()
    assert isinstance(found, Built), found
    return found
