"""Element types and fused epilogues on the card: right within their tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from explorer.machine import H200
from explorer.records import Measured
from explorer.runtime import Built, Host, Session, load_workload
from explorer.space import space_of
from tests.gpu.support import is_spilled
from tests.support.cpu_candidates import draw

pytestmark = pytest.mark.gpu

SIZES = {"M": 520, "N": 504, "K": 1008}
CASES = (
    ("gemm_nt", "float8_e4m3"),
    ("gemm_nt", "float32"),
    ("gemm_nt", "float16"),
    ("gemm_promoted", "float8_e4m3"),
    ("gemm_bias", "bfloat16"),
    ("gemm_gelu", "bfloat16"),
    ("gemm_silu", "float16"),
    ("gemm_residual", "bfloat16"),
    ("gemm_alpha_beta", "bfloat16"),
    ("gemm_alpha_beta", "float32"),
    ("gemm_batched", "bfloat16"),
    ("gemm_strided", "bfloat16"),
)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(H200) as opened:
        yield opened


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_random_legal_schedules(host: Host, name: str, kind: str) -> None:
    workload = load_workload(name)
    sizes = SIZES | ({"Z": 3} if "Z" in workload.sizes else {})
    problem = workload.problem(sizes, kind, H200.name)
    space = space_of(workload, problem, H200)
    bound = workload.bound(H200.name, problem.dtype)
    with Session(name, problem, H200, bound, 4.0, math.inf, host) as opened:
        drawn = list(draw(space, 2, seed=len(name) + len(kind), skeletons=(1, 3, 9)))
        with ThreadPoolExecutor(len(drawn)) as pool:
            builts = list(pool.map(opened.build, [schedule for _, schedule in drawn]))
        spilled = [each for each in builts if is_spilled(each)]
        assert len(spilled) < len(builts)
        for built, (title, schedule) in zip(builts, drawn, strict=True):
            if built in spilled:
                continue
            assert isinstance(built, Built), f"{title}: {built}\n{schedule}"
            outcome = opened.measure(built, repeats=1)
            assert isinstance(outcome, Measured), f"{title}: {outcome}\n{schedule}"
            print(f"{name} {kind} {title}: {outcome.time_us:.1f} us, error {outcome.error:.2e}")
