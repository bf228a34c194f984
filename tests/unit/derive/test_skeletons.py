"""What derive makes of a plain GEMM: partitions, pipelines, scopes, epilogues."""

from __future__ import annotations

import pytest

from explorer.derive import Skeleton, derive_skeletons
from explorer.expr import Const, Param, evaluate
from explorer.machine import B200, CPU, H200
from explorer.schedule.extensions import Swapped
from explorer.schedule.plan import PlanOp, PlanSync
from explorer.schedule.ws import WSScope, WSSyncKind
from tests.kernels.attention import attention
from tests.kernels.dequant import dequant_gemm
from tests.kernels.gemm import gemm

ACQUIRE, COMMIT, WAIT, RELEASE = WSSyncKind


def skeleton(title: str) -> Skeleton:
    found = derive_skeletons(gemm(100, 200, 300), CPU)
    return next(each for each in found if each.title == title)


def test_gemm_has_fourteen_skeletons_each_once() -> None:
    found = derive_skeletons(gemm(100, 200, 300), CPU)
    assert len({each.digest for each in found}) == len(found) == 14
    assert [each.title for each in found[:5]] == [
        "roles worker; rings none; direct epilogue",
        "roles producer+consumer; rings A_shared+B_shared; direct epilogue",
        "roles producer+consumer; rings A_shared B_shared; direct epilogue",
        "roles producer+consumer_0+consumer_1; rings A_shared+B_shared; direct epilogue",
        "roles producer+consumer_0+consumer_1; rings A_shared B_shared; direct epilogue",
    ]


def test_digests_are_stable() -> None:
    once, again = (derive_skeletons(gemm(100, 200, 300), CPU) for _ in range(2))
    assert [each.digest for each in once] == [each.digest for each in again]


def test_one_role_runs_the_kernel_as_written() -> None:
    plan = skeleton("roles worker; rings none; direct epilogue").plan
    assert plan.pipelines == ()
    root, loop = plan.scopes
    assert [entry.id for entry in root.body("worker")] == ["fill_C_local", "ko", "copy_C"]  # type: ignore[union-attr]
    assert len(loop.body("worker")) == 3


def test_a_producer_acquires_copies_and_commits() -> None:
    plan = skeleton("roles producer+consumer; rings A_shared+B_shared; direct epilogue").plan
    (ring,) = plan.pipelines
    assert (ring.name, ring.buffers, ring.depth) == (
        "A_B",
        ("A_shared", "B_shared"),
        Param("depth_A_B"),
    )
    root, loop = plan.scopes
    assert root.id == WSScope.ROOT and root.body("producer") == (PlanOp("ko"),)
    assert loop.body("producer") == (
        PlanSync(ACQUIRE, "A_B"),
        PlanOp("copy_A_shared"),
        PlanOp("copy_B_shared"),
        PlanSync(COMMIT, "A_B"),
    )
    assert loop.body("consumer") == (
        PlanSync(WAIT, "A_B"),
        PlanOp("gemm_C_local"),
        PlanSync(RELEASE, "A_B"),
    )


def test_separate_rings_let_one_run_ahead() -> None:
    plan = skeleton("roles producer+consumer; rings A_shared B_shared; direct epilogue").plan
    loop = plan.scopes[1]
    stages = [entry.stage for entry in loop.body("producer") if isinstance(entry, PlanSync)]
    assert stages == [Const(0), Const(0), Param("stage_B"), Param("stage_B")]
    assert {entry.stage for entry in loop.body("consumer")} == {Const(0)}


def test_two_consumers_split_rows_on_a_shared_side() -> None:
    title = "roles producer+consumer_0+consumer_1; rings A_shared+B_shared; direct epilogue"
    plan = skeleton(title).plan
    assert [split.roles for split in plan.splits] == [("consumer_0", "consumer_1")]
    assert [(s.pipeline, s.producer, s.mode) for s in plan.sides] == [("A_B", False, "shared")]
    assert plan.role("consumer_0").warps == plan.role("consumer_1").warps


def test_a_staged_epilogue_adds_a_buffer_and_an_op() -> None:
    plan = skeleton("roles worker; rings none; staged epilogue").plan
    assert [buffer.name for buffer in plan.kernel.buffers][-1] == "C_staging"
    ids = [entry.id for entry in plan.scopes[0].body("worker")]  # type: ignore[union-attr]
    assert ids == ["fill_C_local", "ko", "copy_C_stage", "copy_C"]


def test_gpu_roles_start_at_warp_groups_and_ask_for_registers() -> None:
    plan = derive_skeletons(gemm(100, 200, 300, "bfloat16"), H200)[1].plan
    assert plan.role("consumer").nreg == Param("nreg_consumer")
    assert plan.lag("gemm_C_local") == Param("lag_gemm_C_local")
    warps = {"warps_producer": 1, "warps_consumer": 8}
    assert [evaluate(role.lo, warps) for role in plan.roles] == [0, 4]
    assert evaluate(plan.num_warps, warps) == 12


def test_a_staged_store_may_have_a_role_of_its_own() -> None:
    title = "roles producer+storer+consumer; rings A_shared+B_shared C_staging; staged epilogue"
    plan = skeleton(title).plan
    assert plan.scopes[0].body("storer") == (
        PlanSync(WAIT, "C_staging"),
        PlanOp("copy_C"),
        PlanSync(RELEASE, "C_staging"),
    )


def test_two_consumers_may_take_turns_over_whole_tiles() -> None:
    """Ping-pong: a token around the main loop, and the staging buffer handed on likewise."""
    found = derive_skeletons(gemm(128, 200, 300, "bfloat16"), H200)
    titles = [each.title for each in found if "/" in each.title]
    assert len(found) == 22
    title = "roles producer+consumer_0/consumer_1; rings A_shared+B_shared; {} epilogue"
    epilogues = ("direct", "staged", "staged in 2", "staged in 3")
    assert titles == [title.format(epilogue) for epilogue in epilogues]
    plan = next(each.plan for each in found if each.title == titles[1])
    (side,) = plan.sides
    assert (side.pipeline, side.producer, side.mode) == ("A_B", False, "alternating")
    assert (side.roles, side.over) == (("consumer_0", "consumer_1"), WSScope.ROOT)
    assert plan.splits == ()
    assert [(ring.name, ring.buffers) for ring in plan.pipelines] == [
        ("A_B", ("A_shared", "B_shared")),
        ("order_ko", ()),
        ("C_staging", ("C_staging",)),
    ]
    assert [ring.depth for ring in plan.pipelines] == [Param("depth_A_B"), Const(1), Const(1)]
    root = plan.scopes[0]
    for role, (opens, closes) in zip(
        side.roles, ((ACQUIRE, COMMIT), (WAIT, RELEASE)), strict=True
    ):
        assert root.body(role) == (
            PlanOp("fill_C_local"),
            PlanSync(opens, "order_ko"),
            PlanOp("ko"),
            PlanSync(closes, "order_ko"),
            PlanSync(opens, "C_staging"),
            PlanOp("copy_C_stage"),
            PlanOp("copy_C"),
            PlanSync(closes, "C_staging"),
        )
    assert plan.role("consumer_0").warps == plan.role("consumer_1").warps


def test_turns_need_one_main_loop_whose_data_is_handed_over() -> None:
    """Softmax between two gemms, and a transform inside the loop, have no turns to take."""
    for kernel in (attention(1, 2, 1, 40, 56, 32, causal=True), dequant_gemm(70, 64, 64)):
        assert not any("/" in each.title for each in derive_skeletons(kernel, H200))


def test_dequantisation_may_have_a_role_of_its_own() -> None:
    """The transformed operand is handed over in a ring; its sources go with the transformer."""
    found = derive_skeletons(dequant_gemm(70, 64, 64), H200)
    plan = next(
        s.plan for s in found if s.title.startswith("roles producer+transformer+consumer;")
    )
    assert {p.name: p.buffers for p in plan.pipelines} == {
        "A": ("A_shared",),
        "W": ("W_shared",),
        "W_wide": ("W_wide",),
    }
    body = [entry.id for entry in plan.scopes[1].body("transformer") if isinstance(entry, PlanOp)]
    assert body == ["copy_scales_local", "map_W_wide"]


def test_attention_hands_q_over_in_the_root_and_k_and_v_in_the_loop() -> None:
    found = derive_skeletons(attention(1, 2, 1, 40, 56, 32, causal=True), H200)
    plan = next(s.plan for s in found if "Q_shared K_shared V_shared" in s.title)
    root = plan.scope(WSScope.ROOT)
    assert root is not None and root.body("producer") == (
        PlanSync(ACQUIRE, "Q"),
        PlanOp("copy_Q_shared"),
        PlanSync(COMMIT, "Q"),
        PlanOp("k"),
    )


def test_few_rows_have_skeletons_with_swapped_operands_behind_all_others() -> None:
    few = derive_skeletons(gemm(127, 200, 300, "bfloat16"), H200)
    many = derive_skeletons(gemm(128, 200, 300, "bfloat16"), H200)
    assert [each.title for each in few[: len(many)]] == [each.title for each in many]
    title = "roles producer+consumer; rings A_shared+B_shared; swapped {} epilogue"
    added = few[len(many) :]
    assert [each.title for each in added] == [title.format("direct"), title.format("staged")]
    for each in added:
        assert each.plan.swapped == (Swapped("gemm_C_local"),)
        ((_, rows, columns),) = each.plan.matrix
        assert (rows, evaluate(columns, {"block_M": 16})) == (Const(64), 16)
        assert each.plan.kernel.buffer("C_local").shape == (Param("block_N"), Param("block_M"))
        assert each.plan.split == Param("split")


@pytest.mark.parametrize("transpose_a", [False, True])
def test_rows_are_counted_in_either_layout(transpose_a: bool) -> None:
    def swapped(m: int, n: int) -> bool:
        kernel = gemm(m, n, 300, "bfloat16", transpose_a=transpose_a)
        return any(each.plan.swapped for each in derive_skeletons(kernel, H200))

    assert swapped(16, 512)
    assert not swapped(512, 16)


def test_what_cannot_be_swapped_or_gains_nothing_has_no_such_skeleton() -> None:
    for kernel, machine in (
        (gemm(16, 200, 300, "bfloat16"), CPU),
        (attention(1, 2, 2, 32, 64, 32), H200),
        (attention(1, 2, 2, 32, 64, 32), B200),
    ):
        assert not any(each.plan.swapped for each in derive_skeletons(kernel, machine))
