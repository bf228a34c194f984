"""Element types and epilogues for sm_90a: the instructions they become, compiled as predicted."""

from __future__ import annotations

import pytest

from explorer.codegen.cuda import CudaKernel, generate
from explorer.constraints import check
from explorer.errors import NoLegalCandidate, ScheduleError
from explorer.machine import H200
from explorer.passes import materialize
from explorer.runtime import load_workload
from explorer.runtime.cuda.compile import compile_source
from explorer.runtime.cuda.model import changed_schedule, compare
from explorer.space import SearchSpace, space_of
from explorer.tune import first_legal
from explorer.tune.prior import prior_targets
from tests.support.cuda_candidates import GOOD, candidate, gemm_space

pytest.importorskip("cuda.bindings")

SIZES = {"M": 520, "N": 504, "K": 1008}


def h200_space(name: str, kind: str) -> SearchSpace:
    workload = load_workload(name)
    sizes = SIZES | ({"Z": 3} if "Z" in workload.sizes else {})
    return space_of(workload, workload.problem(sizes, kind, H200.name), H200)


def hinted(space: SearchSpace, name: str, kind: str) -> CudaKernel:
    """The kernel of the first hint for many tiles, as it is."""
    workload = load_workload(name)
    large = workload.problem({"M": 4096, "N": 4096}, kind, H200.name)
    hints = workload.suggestions(H200.name, large)
    target = space.canonical(prior_targets(space, hints)[0] | {"cluster": 1, "split": 1})
    report = check(space.kernel, space.candidate(target), H200)
    assert report.ok, report
    return generate(materialize(space.kernel, space.candidate(target), H200), H200)


@pytest.mark.parametrize(
    ("name", "kind", "instruction"),
    [
        ("gemm_nt", "float8_e4m3", "n256k32.f32.e4m3.e4m3"),
        ("gemm_nt", "float32", "n256k8.f32.tf32.tf32"),
        ("gemm_promoted", "float8_e4m3", "n128k32.f32.e4m3.e4m3"),
        ("gemm_gelu", "bfloat16", "n256k16.f32.bf16.bf16"),
        ("gemm_residual", "float16", "n128k16.f32.f16.f16"),
        ("gemm_batched", "bfloat16", "n256k16.f32.bf16.bf16"),
        ("gemm_strided", "bfloat16", "n256k16.f32.bf16.bf16"),
    ],
)
def test_inputs_and_epilogues_compile_as_predicted(name: str, kind: str, instruction: str) -> None:
    kernel = hinted(h200_space(name, kind), name, kind)
    assert f"wgmma.mma_async.sync.aligned.m64{instruction}" in kernel.source
    found = compile_source(kernel.source, kernel.plan.arch)
    compare(kernel.plan, found.resources)
    assert changed_schedule(found.resources) == ""


@pytest.mark.parametrize(("layout", "kind"), [("gemm", "float8_e4m3"), ("gemm_tn", "float32")])
def test_narrow_and_wide_operands_lie_along_the_reduction(layout: str, kind: str) -> None:
    with pytest.raises(NoLegalCandidate, match=r"operand-order: .*store A as M x K"):
        first_legal(gemm_space(layout, (512, 512, 512), kind))


def test_the_emitter_refuses_what_the_rule_refuses() -> None:
    space = gemm_space("gemm", (512, 512, 512), "float32")
    values = {choice.name: choice.domain[0] for choice in space.choices} | GOOD | {"block_K": 32}
    values |= {"block_N": 128}
    titles = [skeleton.title for skeleton in space.skeletons]
    direct = "roles producer+consumer_0+consumer_1; rings A_shared+B_shared; direct epilogue"
    schedule = space.candidate(values | {"skeleton": titles.index(direct)})
    with pytest.raises(ScheduleError, match="operand-order: gemm_C_local: float32 operands lie"):
        generate(materialize(space.kernel, schedule, H200), H200)


def test_steps_of_a_reduction_follow_the_element_width() -> None:
    """Two steps of 32 bytes in a row of 64 bytes, whatever the type."""
    title = "roles producer+consumer; rings A_shared+B_shared; direct epilogue"
    small = {"block_M": 64, "block_N": 64, "warps_consumer": 4, "nreg_consumer": 168}
    for kind, block_k in (("float8_e4m3", 64), ("bfloat16", 32)):
        space = gemm_space("gemm_nt", (512, 512, 512), kind)
        schedule = candidate(space, title, **GOOD | small | {"block_K": block_k})
        source = generate(materialize(space.kernel, schedule, H200), H200).source
        assert "a + 0u, b + 0u" in source
        assert "a + 2u, b + 2u, 1)" in source
        assert "a + 4u" not in source


def test_a_leading_dimension_is_the_pitch_of_maps_and_addresses() -> None:
    workload = load_workload("gemm_strided")
    title = "roles producer+consumer; rings A_shared+B_shared; direct epilogue"
    small = {"block_M": 64, "block_N": 64, "warps_consumer": 4, "nreg_consumer": 168}
    for gap, mapped in ((8, True), (3, False)):
        problem = workload.problem({"M": 520, "N": 505, "K": 1008, "gap": gap}, "bfloat16")
        space = space_of(workload, problem, H200)
        registers = {} if mapped else {"nreg_producer": 88, "warps_producer": 4}
        schedule = candidate(space, title, **GOOD | small | registers)
        kernel = generate(materialize(space.kernel, schedule, H200), H200)
        pitches = {each.tensor: each.pitches_bytes for each in kernel.plan.maps}
        assert pitches == ({"A": (2032,), "B": (2032,)} if mapped else {})
        assert f"row * {505 + gap}ll" in kernel.source
        assert mapped or f"{1008 + gap}ll, " in kernel.source
        # An odd length of rows splits no pair of columns, whatever the pitch.
        assert "*(u32*)&at" not in kernel.source
        compare(kernel.plan, compile_source(kernel.source, kernel.plan.arch).resources)
