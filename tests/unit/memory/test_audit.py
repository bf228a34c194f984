"""What the pools grant and the hardware does not forgive."""

from typing import Any

import pytest

from explorer.expr import Param
from explorer.ir.dtypes import DType
from explorer.machine import B200
from explorer.memory.audit import Finding, audit_shared, audit_tensor, overlapping
from explorer.memory.layouts import Axis, Iter, TileLayout
from explorer.memory.smem_pool import SMEMPool
from explorer.memory.tmem_pool import TMEMPool

assert B200.tensor_memory is not None
TMEM = B200.tensor_memory
SCALE = DType("float8_e8m0fnu", 8, "float")


def rules(findings: tuple[Finding, ...]) -> list[str]:
    assert all("\n" not in finding.message for finding in findings)
    return [finding.rule for finding in findings]


def test_a_sound_plan_has_no_findings() -> None:
    smem = SMEMPool()
    smem.alloc_mma((64, 64))
    smem.alloc((3, 3), "int4")
    tmem = TMEMPool(smem)
    tmem.alloc((128, 64), datapath="D")
    tmem.alloc((64, 64), datapath="F")
    tmem.alloc_sf((128, 16), SCALE, sf_per_mma=1, sf_reuse=4)
    tmem.alloc_sf((2, 128, 4), SCALE, sf_per_mma=4)
    tmem.commit()
    tmem.dealloc()
    smem.commit()
    assert audit_shared(smem) == audit_tensor(tmem, TMEM) == ()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"shape": (4,), "dtype": "float32"}, "pool-element-alignment"),
        ({"shape": (4, 4), "dtype": "int8", "strides": (8, 1)}, "pool-extent"),
    ],
)
def test_shared(options: dict[str, Any], rule: str) -> None:
    smem = SMEMPool()
    smem.alloc((3,), "int8")
    smem.alloc(**options)
    assert rules(audit_shared(smem)) == [rule]


def test_a_swizzled_tile_needs_its_alignment() -> None:
    smem = SMEMPool()
    smem.alloc((128,), "int8")
    smem.alloc_mma((8, 64), align=128)
    (finding,) = audit_shared(smem)
    assert finding.rule == "pool-swizzle-alignment"
    assert "byte 128, its swizzle repeats every 1024 B" in finding.message


def test_an_allocation_after_commit_is_not_in_the_size() -> None:
    smem = SMEMPool()
    smem.commit()
    smem.alloc((4,))
    assert rules(audit_shared(smem)) == ["pool-late-allocation"]


@pytest.mark.parametrize("shape", [(2, 128, 16), (2, 32, 4)])
def test_stages_of_scale_factors_that_overlap(shape: tuple[int, ...]) -> None:
    tmem = TMEMPool(SMEMPool())
    tmem.alloc_sf(shape, SCALE, sf_per_mma=4)
    found = {finding.rule: finding.message for finding in audit_tensor(tmem, TMEM)}
    assert "one buffer a stage" in found["tmem-self-overlap"]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda t: t.alloc((256, 16)), ["tmem-lanes"]),
        (lambda t: t.alloc_sf((100, 4), SCALE, sf_per_mma=4), ["tmem-coverage"]),
        (lambda t: t.alloc((128, 64), cols=32), ["tmem-extent"]),
        (lambda t: t.alloc((128, 64), datapath="D", cols=64), []),
        (lambda t: t.alloc((128, Param("n"))), []),
        (lambda t: t.commit(), ["tmem-held"]),
        (
            lambda t: t.alloc(
                (2, 4),
                layout=TileLayout([Iter(2, 1, Axis.COLUMN), Iter(4, 1, Axis.COLUMN)]),
                cols=8,
            ),
            ["tmem-self-overlap"],
        ),
    ],
)
def test_tensor(build: Any, expected: list[str]) -> None:
    tmem = TMEMPool(SMEMPool())
    build(tmem)
    assert rules(audit_tensor(tmem, TMEM)) == expected


@pytest.mark.parametrize("columns", [100, 16, 1024])
def test_the_hardware_allocates_powers_of_two(columns: int) -> None:
    tmem = TMEMPool(SMEMPool(), columns)
    assert rules(audit_tensor(tmem, TMEM)) == ["tmem-power-of-two"]


def test_overlaps_are_told_in_order() -> None:
    smem = SMEMPool()
    ring = smem.alloc((64,), "int8", name="ring")
    smem.move_base_to(32)
    staging = smem.alloc((8,), "int8", name="staging")
    beside = smem.alloc((8,), "int8", name="beside")
    smem.move_base_to(64)
    smem.alloc((8,), "int8")
    assert overlapping(smem.allocations) == ((ring, staging), (ring, beside))
    tmem = TMEMPool(smem)
    first = tmem.alloc((128, 64))
    tmem.move_base_to(32)
    second = tmem.alloc((128, 64))
    tmem.alloc((128, 64))
    assert overlapping(tmem.allocations) == ((first, second),)


def test_padding_by_strides_can_reach_the_next_buffer() -> None:
    smem = SMEMPool()
    padded = smem.alloc((4, 4), "int8", strides=(8, 1))
    following = smem.alloc((4,), "int8")
    assert overlapping(smem.allocations) == ((padded, following),)
