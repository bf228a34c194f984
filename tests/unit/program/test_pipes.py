"""Pipe schedules: selected versions, flags, and their execution at random speeds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from attrs import evolve

import explorer.lang as T
from explorer.data import dumps, loads
from explorer.errors import IllegalSchedule, InputError, KernelError, ScheduleError
from explorer.export.ascend import export_ascend, export_kernel_ascend
from explorer.expr import evaluate
from explorer.ir.access import inputs
from explorer.ir.annotations import BufferVersions, IndexMode
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import ASCEND950, CPU, Pipe, Scope, machine_named
from explorer.passes.schedule_pipes import PipeResult, schedule_pipes
from explorer.program.pipe_simulator import PipeOutcome, simulate_pipes
from explorer.schedule.pipe import Flag, PipeSchedule, show_pipe_schedule
from tests.kernels.ascend import CORPUS, carried, claimed, guarded, rowwise, scale, two_owners


def _arrays(kernel: Kernel) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    read = {tensor.name for tensor in inputs(kernel)}
    result = {}
    for tensor in kernel.tensors:
        shape = [evaluate(size) for size in tensor.shape]
        values = draw.standard_normal(shape) if tensor.name in read else np.zeros(shape)
        result[tensor.name] = values.astype(tensor.dtype.numpy)
    return result


def _simulate(kernel: Kernel, result: PipeResult, seed: int) -> PipeOutcome:
    return simulate_pipes(kernel, result.schedule, dict(result.pipes), _arrays(kernel), seed)


def _right(kernel: Kernel, outcome: PipeOutcome) -> bool:
    reference = run(kernel, _arrays(kernel))
    return outcome.problem is None and all(
        np.allclose(outcome.outputs[name], values) for name, values in reference.items()
    )


@pytest.mark.parametrize("name", CORPUS)
def test_every_interleaving_gives_the_result(name: str) -> None:
    kernel = CORPUS[name]()
    result = schedule_pipes(kernel, ASCEND950)
    assert result.proven
    for seed in range(5):
        assert _right(kernel, _simulate(kernel, result, seed)), seed


NEEDED = ("scale_2", "scale_ragged", "in_place_2", "add_4", "guarded_auto", "nested_fixed")
NEEDED += ("two_owners_auto", "manual_3", "carried", "matmul_2", "through_l0", "filled_after")
NEEDED += ("filled_l1", "triangular")


@pytest.mark.parametrize("name", NEEDED)
def test_each_flag_and_each_initial_set_is_needed(name: str) -> None:
    kernel = CORPUS[name]()
    result = schedule_pipes(kernel, ASCEND950)
    for at, flag in enumerate(result.schedule.flags):
        others = (result.schedule.flags[:at], result.schedule.flags[at + 1 :])
        changes: list[tuple[Flag, ...]] = [()]
        if flag.initial and not flag.barrier:
            changes.append((evolve(flag, initial=False),))
        for change in changes:
            flags = (*others[0], *change, *others[1])
            broken = evolve(result, schedule=evolve(result.schedule, flags=flags))
            outcomes = (_right(kernel, _simulate(kernel, broken, seed)) for seed in range(40))
            assert not all(outcomes), (flag, change)


def test_a_flag_that_is_not_waited_for_is_left_set() -> None:
    kernel = scale(2)
    result = schedule_pipes(kernel, ASCEND950)
    (last,) = (flag for flag in result.schedule.flags if flag.target == Pipe.MTE2)
    # The initial sets of a flag that no loop uses are taken back at the end; its own are not.
    early = evolve(last, loop="", initial=False, before=last.loop, after="nowhere")
    flags = (*result.schedule.flags, evolve(early, event=7, versions=1))
    broken = evolve(result, schedule=evolve(result.schedule, flags=flags))
    problem = _simulate(kernel, broken, 0).problem
    assert problem is not None and "is left set at the end" in problem


def test_a_flag_with_too_few_ids_is_set_twice() -> None:
    kernel = scale(2, a=2, b=2)
    result = schedule_pipes(kernel, ASCEND950)
    flags = tuple(
        flag if flag.initial else evolve(flag, versions=1) for flag in result.schedule.flags
    )
    broken = evolve(result, schedule=evolve(result.schedule, flags=flags))
    problems = {_simulate(kernel, broken, seed).problem for seed in range(40)}
    assert any(problem and "is set twice" in problem for problem in problems)


def _rings(kernel: Kernel) -> dict[str, tuple[int, IndexMode, int]]:
    schedule = schedule_pipes(kernel, ASCEND950).schedule
    return {ring.buffer: (ring.versions, ring.mode, len(ring.owners)) for ring in schedule.rings}


def test_modes_that_auto_chooses() -> None:
    assert _rings(scale(2))["a"] == (2, IndexMode.ITERATION, 1)
    assert _rings(scale(2, tiles=15))["a"] == (2, IndexMode.COUNTER, 1)
    assert _rings(guarded(2))["a"] == (2, IndexMode.COUNTER, 1)
    assert _rings(two_owners(2))["a"] == (2, IndexMode.COUNTER, 2)


def test_one_owner_each_and_the_outer_loop_where_it_reads_after_the_inner() -> None:
    schedule = schedule_pipes(rowwise(2), ASCEND950).schedule
    ring = schedule.ring("a")
    assert ring is not None
    assert ring.owners == ("i",)


def test_what_is_read_first_has_no_versions() -> None:
    assert _rings(carried(2))["s"] == (1, IndexMode.ITERATION, 0)


def test_iteration_with_two_owners_is_refused() -> None:
    with pytest.raises(ScheduleError, match="2 owner loops and asks for mode 'iteration'"):
        schedule_pipes(two_owners(2, a=(2, "iteration")), ASCEND950)


def test_opting_out_of_a_claim_warns_once() -> None:
    kernel = claimed(2, a=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rings = schedule_pipes(kernel, ASCEND950).schedule.rings
    assert [str(each.message) for each in caught] == [
        "buffer 'a': {a: 1} overrides the multi_buffer_eligible claim of loop 'i'"
    ]
    assert [ring.versions for ring in rings] == [1, 2]
    assert not rings[0].owners


def test_annotations_that_disagree_are_refused() -> None:
    kernel = evolve(scale(2), annotations=(BufferVersions("a", 2), BufferVersions("a", 3)))
    with pytest.raises(ScheduleError, match="version counts 2 and 3"):
        schedule_pipes(kernel, ASCEND950)


def test_the_map_is_replaced_by_what_was_selected() -> None:
    result = schedule_pipes(scale(3, a="counter", b=1), ASCEND950)
    assert result.kernel_annotations == (
        BufferVersions("a", 2, IndexMode.COUNTER),
        BufferVersions("b", 1, IndexMode.ITERATION, opted_out=True),
    )
    replaced = evolve(scale(3), annotations=result.kernel_annotations)
    again = schedule_pipes(replaced, ASCEND950)
    assert again.schedule.rings == result.schedule.rings


def test_memory_that_does_not_hold_one_version() -> None:
    @T.prim_func
    def big(A: T.Tensor((4096, 1024), T.float32), B: T.Tensor((4096, 1024), T.float32)):
        with T.Kernel(1) as core:
            a = T.alloc_shared((64, 1024), T.float32)
            for i in T.Pipelined(8, num_stages=2):
                T.copy(A[i * 64, 0], a)
                T.copy(a, B[i * 64, 0])

    with pytest.raises(IllegalSchedule, match=r"262144 B > 253952 B of shared"):
        schedule_pipes(big, ASCEND950)


def test_machines_and_ops_that_have_no_pipes() -> None:
    with pytest.raises(InputError, match="machine 'cpu' has no pipes"):
        schedule_pipes(scale(2), CPU)

    @T.prim_func
    def stray(A: T.Tensor((64, 64), T.float16), B: T.Tensor((64, 64), T.float16)):
        with T.Kernel(1) as core:
            a = T.alloc_l0a((64, 64), T.float16)
            T.copy(A, a)
            T.copy(a, B)

    with pytest.raises(KernelError, match="no pipe of ascend950 copies from global to"):
        schedule_pipes(stray, ASCEND950)


def test_the_manual_annotation_needs_a_constant_leading_dimension() -> None:
    with pytest.raises(KernelError, match=r"not a constant: pass \{buf: n\}"):

        @T.prim_func
        def symbolic(A: T.Tensor((64,), T.float32), versions: T.int32):
            with T.Kernel(1) as core:
                buf = T.alloc_shared((versions, 64), T.float32)
                T.annotate_manual_multi_buffer(buf)


def test_schedules_are_stored_and_shown() -> None:
    kernel = scale(2)
    result = schedule_pipes(kernel, ASCEND950)
    assert loads(dumps(result.schedule), PipeSchedule) == result.schedule
    text = show_pipe_schedule(result.schedule)
    assert "(predicted)" in text
    assert "buffer a: 2 version(s), by iteration of wave" in text
    assert 'a: (2, "iteration")' in export_ascend(kernel, result.schedule)
    assert "T.Persistent([16], 4, core, num_stages=2)" in export_kernel_ascend(
        kernel, result.schedule
    )


def test_the_machine() -> None:
    machine = machine_named("ascend950")
    assert not machine.timed
    sizes = {memory.scope: memory.capacity_bytes for memory in machine.memories}
    assert sizes[Scope.SHARED] - machine.simt_reserved_bytes == 216 * 1024
    assert len(sizes) == 5
    assert set(machine.pipes) == set(Pipe)
