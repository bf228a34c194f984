"""Reading ptxas' log, and comparing it with the rules' figures."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.runtime.cuda.log import LogError, Resources, needed_registers, read_log
from explorer.runtime.cuda.model import ModelMismatch, changed_schedule, compare
from tests.support.cuda_candidates import GOOD, STAGED, candidate, gemm_space, source_of

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k_gemm' for 'sm_90a'
ptxas info    : Function properties for k_gemm
ptxas . {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used {barriers} barriers{smem}
"""


def log(**figures: object) -> str:
    usual = {"stack": 0, "stores": 0, "loads": 0, "registers": 168, "barriers": 3, "smem": ""}
    return LOG.format(**(usual | figures))


def test_resources() -> None:
    assert read_log(log()) == Resources(168, 0, 0, 3)
    found = read_log(log(stores=108, loads=124, smem=", 16 bytes smem"))
    assert (found.spill_bytes, found.shared_bytes) == (232, 16)


def test_a_log_without_figures_is_an_error() -> None:
    with pytest.raises(LogError, match="no line about used registers"):
        read_log("nothing of use")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "(C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine "
            "register count at entry.",
            "register-plan: not applied (C7508",
        ),
        (
            "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized "
            "due to wgmma pipeline crossing function boundary",
            "matrix-serialized: C7510",
        ),
        ("(C7517) wgmma.wait_group is injected in around line 264", "matrix-serialized: C7517"),
    ],
)
def test_what_changes_the_schedule(line: str, expected: str) -> None:
    found = read_log(f"ptxas info    : {line}\n{log()}")
    assert expected in changed_schedule(found)


def test_spills_are_named() -> None:
    assert "register-spill: 12 B" in changed_schedule(read_log(log(stores=4, loads=8)))
    assert changed_schedule(read_log(log())) == ""


def test_the_register_target_of_a_refusal() -> None:
    """C26."""
    line = "Insufficient registers (128) to compile instruction at line 161 in function gemm. "
    assert needed_registers(line + "Try to compile with register target of 154 or higher.") == 154


def test_a_mismatch_names_both_figures() -> None:
    space = gemm_space("gemm", (1024, 1024, 1024))
    plan = source_of(space, candidate(space, STAGED, **GOOD)).plan
    right = Resources(168, 0, 0, 3)
    compare(plan, right)
    with pytest.raises(ModelMismatch, match=r"registers at entry: rules 168, compiler 152"):
        compare(plan, evolve(right, registers=152))
    with pytest.raises(ModelMismatch, match=r"named barriers: rules 3, compiler 16"):
        compare(plan, evolve(right, barriers=16))
    with pytest.raises(ModelMismatch, match=r"rules 213040 B, compiler 213056 B"):
        compare(plan, evolve(right, shared_bytes=16))
