"""Sources of placed programs: the addresses are the placement's, and engines are waited for."""

from __future__ import annotations

import re

import pytest

from explorer.codegen.cuda import generate
from explorer.machine import H200, Scope
from explorer.memory.placement import Placement
from explorer.passes.share_bytes import share_bytes
from explorer.program.nodes import Program
from tests.support.cuda_candidates import SMALL, candidate, gemm_space, program_of

WORKER = "roles worker; rings none; staged epilogue"
RING = "roles producer+consumer; rings A_shared+B_shared; staged epilogue"
CHOICES = {WORKER: {"blocks": 132}, RING: {"blocks": 0, "depth_A_B": 3, "lag_gemm_C_local": 1}}


def placed(title: str) -> tuple[Program, Placement, str]:
    space = gemm_space("gemm", (512, 512, 512))
    schedule = candidate(space, title, **(SMALL | CHOICES[title]))
    program = share_bytes(program_of(space, schedule), H200)
    assert program.placement is not None
    return program, program.placement, generate(program, H200).source


@pytest.mark.parametrize("title", CHOICES)
def test_the_staging_is_stored_from_where_it_was_placed(title: str) -> None:
    program, placement, source = placed(title)
    staging = placement.buffer("C_staging")
    assert placement.sharers("C_staging")
    stores = re.findall(r"bulk_store_2d\(base \+ (\d+)u", source)
    assert set(stores) == {str(staging.offset_bytes)}
    plan = generate(program, H200).plan
    assert plan.shared_bytes == placement.footprint(Scope.SHARED).total_bytes


def test_barriers_and_rings_are_where_they_were_placed() -> None:
    _, placement, source = placed(RING)
    ring = placement.buffer("A_shared")
    assert f"bulk_load_2d(base + {ring.offset_bytes}u + s_A_B * {ring.pitch_bytes}u" in source
    barriers = placement.shared.barriers_offset_bytes
    assert f"barrier_init(base + {barriers}u + 8u * i, 1u)" in source


def test_all_warps_meet_between_the_last_gemm_and_the_staging() -> None:
    _, _, source = placed(RING)
    last_gemm, staging = source.rindex("mma_wait<0>"), source.index("store_matrix(base")
    assert "role_sync(" in source[last_gemm:staging]


def test_the_next_tile_waits_until_the_store_has_read_the_bytes() -> None:
    _, _, source = placed(WORKER)
    tile = source[source.index("for (int v_tile") :]
    assert tile.index("store_wait_read()") < tile.index("role_sync(") < tile.index("copy_pieces<")


def test_a_copy_over_staged_bytes_comes_behind_a_fence() -> None:
    """Staged by threads, filled by the engine: the next bulk copy must see the writes done."""
    _, _, source = placed(RING)
    staged = source.index("store_matrix(base")
    assert "fence_async();" in source[staged : source.index("bulk_store_2d(base")]
