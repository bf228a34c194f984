"""Every kernel and every feature as compiled C under ThreadSanitizer, on small extents.

A case is a program, its inputs and what it must leave; the sanitizer sees all of it, since the
executable holds nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve, frozen

from explorer.expr import Var
from explorer.ir.interpreter import run
from explorer.ir.nodes import Kernel
from explorer.machine import CPU
from explorer.passes import materialize
from explorer.program.nodes import Program
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import Extensions, Launch
from explorer.space import build_space
from tests import kernels
from tests.kernels.attention import attention
from tests.kernels.dequant import dequant_gemm
from tests.kernels.epilogue import gemm_epilogue
from tests.kernels.gemm import gemm
from tests.kernels.grouped import grouped_gemm
from tests.kernels.rmsnorm import rmsnorm
from tests.property.test_mutations import chain, in_turn, nested
from tests.support import fixed_trips
from tests.support.cpu_candidates import Arrays, draw
from tests.support.fixed_trips import Case, Features
from tests.support.nested import guarded_kernel
from tests.support.programs import (
    acquire,
    commit,
    gemm_inputs,
    gemm_kernel,
    gemm_schedule,
    program_of,
    relay_inputs,
    relay_kernel,
    release,
    wait,
)
from tests.support.sanitizer import run_sanitized, sanitizer_works
from tests.support.schedules import Draft, flash_attention_3, ping_pong_gemm
from tests.unit.passes.test_while import shifted_inputs, shifted_kernel, shifted_program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sanitizer_works(), reason="no ThreadSanitizer here"),
]
FOUR = evolve(CPU, units=4)
WIDE = evolve(CPU, units=16)
TILES = {"block_M": (32,), "block_N": (32,), "block_K": (32,)}
# Module of tests/kernels: a kernel of it, its tile sizes, and how many of its skeletons to draw.
DERIVED: dict[str, tuple[Kernel, int]] = {
    "gemm": (gemm(70, 60, 80), 20),
    "gemm transposed": (gemm(50, 70, 40, transpose_a=True, transpose_b=True), 4),
    "gemm half": (gemm(50, 70, 40, "float16"), 4),
    "epilogue": (gemm_epilogue(70, 60, 50, "gelu"), 4),
    "rmsnorm": (rmsnorm(40, 77), 4),
    "attention": (attention(1, 2, 1, 40, 50, 32, True), 6),
    "dequant": (dequant_gemm(40, 64, 96), 6),
    "grouped": (grouped_gemm(100, 3, 64, 64), 4),
}
# Written for other machines: pipes instead of roles, places in a GPU's shared memory.
ELSEWHERE = {"ascend", "pooled"}


@frozen
class Run:
    """What the sanitizer gets to see; nothing is expected of a result that is written in part."""

    program: Program
    inputs: Arrays
    expected: Arrays


def random_inputs(kernel: Kernel) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    arrays = {}
    for tensor in kernel.tensors[:-1]:
        shape = tuple(map(int, tensor.shape))
        if tensor.name == "offsets":
            arrays[tensor.name] = np.array([0, 30, 30, 100], np.int32)
        elif tensor.dtype.is_float:
            arrays[tensor.name] = rng.standard_normal(shape).astype(tensor.dtype.numpy)
        else:
            arrays[tensor.name] = rng.integers(0, 255, shape).astype(tensor.dtype.numpy)
    return arrays


def derived(name: str) -> Iterator[Run]:
    """A legal schedule of each of the first skeletons of a kernel's space."""
    kernel, most = DERIVED[name]
    tiles = {"block_M": (8,), "block_N": (32,)} if name == "rmsnorm" else TILES
    space = build_space(kernel, FOUR, {n: t for n, t in tiles.items() if n in kernel.params})
    inputs = random_inputs(kernel)
    some = range(min(most, len(space.skeletons)))
    for _, schedule in draw(space, 1, seed=4, skeletons=some):
        expected = run(kernel.at(**schedule.params), inputs)
        yield Run(materialize(kernel, schedule, FOUR), inputs, expected)


def of_draft(draft: Draft, inputs: Callable[[Kernel], Arrays]) -> Run:
    kernel = draft.kernel.at(**dict(draft.sizes))
    given = inputs(kernel)
    program = materialize(draft.kernel, draft.schedule, draft.machine)
    return Run(program, given, run(kernel, given))


def of_gemm(sizes: tuple[int, int, int], **options: object) -> Run:
    kernel, inputs = gemm_kernel(*sizes), gemm_inputs(*sizes)
    schedule: Schedule = gemm_schedule(kernel, FOUR, **options)  # type: ignore[arg-type]
    expected = run(kernel.at(**schedule.params), inputs)
    return Run(materialize(kernel, schedule, FOUR), inputs, expected)


def of_trips(kind: str, trips: int, features: Features = Features()) -> Run:
    case = Case(kind, trips, 2, features)
    inputs = fixed_trips.inputs(case.kernel)
    return Run(case.program(FOUR), inputs, run(case.kernel, inputs))


def of_while(shift: int, trips: int) -> Run:
    inputs = shifted_inputs(trips)
    whole = trips == len(inputs["Z"])
    return Run(shifted_program(shift, 2), inputs, run(shifted_kernel(), inputs) if whole else {})


def of_guard(loop_inside: bool) -> Run:
    """Epochs that a guard skips, over two tiles of one block."""
    kernel = guarded_kernel(tiles=2, trips=4, limit=2, loop_inside=loop_inside)
    bodies = {
        "P": [acquire("x"), "load", commit("x")],
        "C": [wait("x"), "use", release("x")],
    }
    inner = {"loop_k": {"P": ["loop_g"], "C": ["loop_g"]}, "loop_g": bodies}
    program = program_of(
        kernel,
        {"P": (0, 1), "C": (1, 2)},
        {"x": (["S"], 2)},
        {
            "root": {"P": ["loop_k"], "C": ["loop_k"]},
            **(inner if loop_inside else {"loop_k": bodies}),
        },
        extensions=Extensions(launch=Launch(1)),
    )
    inputs = {"X": np.arange(16, dtype="f4").reshape(8, 2), "Z": np.zeros((8, 2), "f4")}
    return Run(program, inputs, {})


def of_triangle() -> Run:
    """An inner loop as long as the outer index, its cycles counted as they run."""
    kernel = relay_kernel((5, Var("i0") + 1))
    program = program_of(
        kernel,
        {"P": (0, 1), "C": (1, 2)},
        {"x": (["S_0"], 3)},
        {
            "root": {"P": ["loop_0"], "C": ["loop_0"]},
            "loop_0": {"P": ["loop_1"], "C": ["loop_1"]},
            "loop_1": {
                "P": [acquire("x"), "load_0", commit("x")],
                "C": [wait("x"), "use_0", release("x")],
            },
        },
    )
    return Run(program, relay_inputs(kernel), {})


FEATURES: dict[str, Callable[[], Run]] = {
    "stages": lambda: of_draft(chain(6), relay_inputs),
    "fewer iterations than stages": lambda: of_draft(chain(1), relay_inputs),
    "nested pipelines": lambda: of_draft(nested(), relay_inputs),
    "alternating iterations": lambda: of_draft(in_turn(), relay_inputs),
    "order tokens, stages inside a role": lambda: of_draft(
        flash_attention_3(attention(1, 2, 1, 64, 80, 32), FOUR, 64, 16).extended(launch=Launch(1)),
        random_inputs,
    ),
    "alternating tiles": lambda: of_draft(
        ping_pong_gemm(gemm(160, 64, 64, "float16"), FOUR, (32, 64, 16)), random_inputs
    ),
    "two consumers": lambda: of_gemm((30, 20, 40), consumers=2, tile=(12, 8, 8)),
    "several warps a role": lambda: of_gemm(
        (30, 20, 40), producer_warps=2, consumer_warps=2, tile=(12, 8, 8)
    ),
    "staged store": lambda: of_trips("gemm", 3, Features(consumers=2, staged=True)),
    "persistent": lambda: of_trips("gemm", 3, Features(persistent=1)),
    "no iteration": lambda: of_trips("gemm", 0),
    "copies": lambda: of_trips("copy", 5),
    "copies through registers": lambda: of_trips("copy", 5, Features("fragment", persistent=1)),
    "while": lambda: of_while(0, 8),
    "shifted while": lambda: of_while(2, 8),
    "shifted while of one trip": lambda: of_while(2, 1),
    "guarded ops": lambda: of_guard(False),
    "guarded loops": lambda: of_guard(True),
    "triangular nest": of_triangle,
}


def assert_clean(case: Run, folder: Path) -> None:
    # Half precision rounds where NumPy rounds, but sums in another order.
    done = run_sanitized(case.program, WIDE, case.inputs, case.expected, folder, tolerance=2e-3)
    assert done.returncode == 0, f"{done.stdout[-1000:]}{done.stderr[:3000]}"


@pytest.mark.parametrize("name", DERIVED)
def test_schedules_of_every_kernel_are_free_of_races(name: str, tmp_path: Path) -> None:
    ran = 0
    for case in derived(name):
        assert_clean(case, tmp_path)
        ran += 1
    assert ran


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_is_free_of_races(feature: str, tmp_path: Path) -> None:
    assert_clean(FEATURES[feature](), tmp_path)


def test_every_kernel_of_the_tests_is_among_them() -> None:
    (folder,) = kernels.__path__
    modules = {path.stem for path in Path(folder).glob("*.py")} - {"__init__"}
    covered = {name.split()[0] for name in DERIVED} | {"copy_pipeline"}
    assert modules - ELSEWHERE == covered
