"""Gemms computed transposed, for sm_90a: narrow instructions, and stores that turn them back."""

from __future__ import annotations

import re

import pytest

from explorer.codegen.cuda import CudaKernel
from explorer.constraints import check
from explorer.machine import H200
from explorer.runtime import load_workload
from explorer.runtime.cuda.compile import compile_source
from explorer.runtime.cuda.model import changed_schedule, compare
from explorer.space import SearchSpace, space_of
from explorer.tune.prior import hinted_target
from tests.support.cuda_candidates import ONE_CONSUMER, candidate, gemm_space, source_of

SWAPPED = "roles producer+consumer; rings A_shared+B_shared; swapped {} epilogue"
FAST = {
    "block_M": 16,
    "block_N": 128,
    "block_K": 64,
    "blocks": 132,
    "depth_A_B": 8,
    "lag_gemm_C_local": 1,
    "nreg_producer": 40,
    "nreg_consumer": 232,
    "warps_producer": 1,
    "warps_consumer": 4,
}


def kernel(space: SearchSpace, epilogue: str, **choices: int) -> CudaKernel:
    return source_of(space, candidate(space, SWAPPED.format(epilogue), **(FAST | choices)))


def compiles_as_asked(kernel: CudaKernel) -> None:
    pytest.importorskip("cuda.bindings")
    found = compile_source(kernel.source, kernel.plan.arch)
    compare(kernel.plan, found.resources)
    assert changed_schedule(found.resources) == ""
    assert found.resources.spill_bytes == 0


@pytest.mark.parametrize("blocks", [0, 132])
@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize(("rows", "columns"), [(16, 64), (32, 128), (64, 128)])
def test_few_rows_are_the_columns_of_narrow_instructions(
    rows: int, columns: int, split: int, blocks: int
) -> None:
    """Tiles that hold whole rows of C too: nothing guards their stores."""
    space = gemm_space("gemm_nt", (rows, 4096, 4096))
    tile = {"block_M": rows, "block_N": columns, "split": split, "blocks": blocks}
    for epilogue in ("direct", "staged"):
        found = kernel(space, epilogue, **tile)
        assert f"wgmma.mma_async.sync.aligned.m64n{rows}k16.f32.bf16.bf16" in found.source
        assert found.source.count(f"mma_n{rows}_bf16_kk<0>(f_C_local_0, a + 0u") == 2
        compiles_as_asked(found)


@pytest.mark.parametrize(
    ("layout", "order"), [("gemm", "mk"), ("gemm_nt", "kk"), ("gemm_tn", "mn"), ("gemm_tt", "kn")]
)
def test_operands_are_read_as_they_lie(layout: str, order: str) -> None:
    """The first operand is B, which lies along the reduction where it is stored N x K."""
    found = kernel(gemm_space(layout, (8, 1000, 520)), "staged", block_K=64, depth_A_B=4)
    assert re.findall(r"mma_n16_bf16_(\w\w)<0>", found.source)[0] == order
    compiles_as_asked(found)


def test_a_direct_store_follows_the_rows_of_the_tensor() -> None:
    source = kernel(gemm_space("gemm_nt", (7, 1000, 520)), "direct").source
    line = next(each for each in source.splitlines() if "] = to_bf16" in each)
    assert "((v_by * 16) + v_copy_C_0) * 1000ll" in line
    assert "((v_bx * 128) + v_copy_C_1) * 1ll" in line
    assert "< 7" in line
    assert "< 1000" in line


def test_a_staged_store_is_turned_by_stmatrix() -> None:
    space = gemm_space("gemm_nt", (32, 4096, 4096))
    found = kernel(space, "staged", block_M=32, warps_consumer=8)
    stores = [line for line in found.source.splitlines() if "store_matrix_turned(base" in line]
    # 64 rows of N a warp group, 32 columns of M in two instructions of 16.
    assert len(stores) == 2
    assert "(16u + row, byte)" in stores[1]
    assert "* 64u + 0u" in next(x for x in found.source.splitlines() if "const u32 byte" in x)
    assert "bulk_store_2d" in found.source
    compiles_as_asked(found)


def test_elements_of_other_widths_are_staged_one_by_one() -> None:
    space = gemm_space("gemm_nt", (16, 512, 512), "float32")
    found = kernel(space, "staged", block_K=32)
    assert "store_matrix_turned(base" not in found.source
    assert "tile_at<128, 2048, 7>(v_copy_C_stage_0, (v_copy_C_stage_1 * 4))" in found.source
    compiles_as_asked(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gemm_nt", "float8_e4m3"),
        ("gemm_nt", "float32"),
        ("gemm_gelu", "bfloat16"),
        ("gemm_residual", "float16"),
        ("gemm_alpha_beta", "bfloat16"),
        ("gemm_batched", "bfloat16"),
        ("gemm_strided", "bfloat16"),
    ],
)
def test_hints_for_few_rows_compile_as_they_are(name: str, kind: str) -> None:
    workload = load_workload(name)
    problem = workload.problem({"M": 16, "N": 1000, "K": 1040}, kind)
    space = space_of(workload, problem, H200)
    hints = [h for h in workload.suggestions("h200", problem) if "swapped" in h.skeleton]
    assert len(hints) == {"float8_e4m3": 3, "float32": 0}.get(kind, 5)
    for hint in hints:
        target = hinted_target(space, hint)
        assert target is not None
        schedule = space.candidate(space.canonical(target))
        assert check(space.kernel, schedule, H200).ok
        compiles_as_asked(source_of(space, schedule))


@pytest.mark.parametrize("columns", [16, 32])
def test_few_columns_need_no_swap(columns: int) -> None:
    space = gemm_space("gemm", (4096, columns, 512))
    narrow = FAST | {"block_M": 128, "block_N": columns, "depth_A_B": 4}
    found = source_of(space, candidate(space, ONE_CONSUMER, **narrow))
    assert f".m64n{columns}k16." in found.source
    compiles_as_asked(found)
