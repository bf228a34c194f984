"""What candidates are compared with on the h200: its calls, and that it computes the same."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from explorer.errors import InputError
from explorer.ir.dtypes import dtype
from explorer.machine import H200
from explorer.runtime import bundled_workloads, load_workload
from explorer.runtime.cuda.arrays import DeviceArray, bits_dtype
from explorer.runtime.cuda.bench import CudaBench
from explorer.runtime.cuda.compile import compile_source
from explorer.runtime.cuda.elementwise import source
from explorer.space import Problem
from tests.support import host_cublas
from tests.support.host_cupy import HostArray, host_modules

KINDS = ("bfloat16", "float16", "float32")
PRODUCTS = [
    (name, kind)
    for name in bundled_workloads()
    for kind in KINDS
    if "h200" in load_workload(name).tiles and kind in load_workload(name).dtypes
]
EXTRA = {"Z": 3, "gap": 8}


@pytest.fixture
def _host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in host_modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(host_cublas, "calls", [])


def problem_of(name: str, kind: str, columns: int = 24) -> Problem:
    workload = load_workload(name)
    sizes = {"M": 40, "N": columns, "K": 32} | EXTRA
    return workload.problem({n: sizes[n] for n in workload.sizes}, kind, "h200")


@pytest.mark.usefixtures("_host")
@pytest.mark.parametrize(("name", "kind"), PRODUCTS)
@pytest.mark.parametrize("columns", [24, 21])
def test_peers_agree_with_the_reference(name: str, kind: str, columns: int) -> None:
    workload, problem = load_workload(name), problem_of(name, kind, columns)
    bound = workload.bound("h200", problem.dtype)
    bench: Any = CudaBench(workload, problem, "h200", bound, 4.0, 1, lambda _: None)
    peer = workload.peer("h200", problem.dtype)
    assert peer is not None
    assert peer.name.startswith("cublas tf32" if kind == "float32" else "cublas")
    runs = bench._peer_runs()
    assert runs is not None, "its result was wrong"
    host_cublas.calls.clear()
    runs[0]()
    assert host_cublas.calls == ["gemmStridedBatchedEx" if name == "gemm_batched" else "gemmEx"], (
        "one call does the whole product"
    )


def array(shape: tuple[int, ...], kind: str) -> DeviceArray:
    return DeviceArray(np.zeros(shape, bits_dtype(kind)).view(HostArray), dtype(kind))


@pytest.mark.usefixtures("_host")
def test_products_and_kernels_that_do_not_fit_are_refused() -> None:
    a, b, c = (array(shape, "float16") for shape in ((4, 8), (6, 8), (4, 6)))
    with pytest.raises(InputError, match=r"cublas: no product of \(4, 8\) and \(6, 8\) into"):
        a.reduced_product(b, c)
    with pytest.raises(InputError, match="cublas: no product of float16 arrays into bfloat16"):
        a.reduced_product(b.T, array((4, 6), "bfloat16"))
    with pytest.raises(InputError, match="cublas: no product of float8_e4m3 arrays"):
        array((4, 8), "float8_e4m3").reduced_product(b.T, c)
    batch = array((2, 4, 8), "float16")
    assert batch.swapaxes(1, 2).shape == (2, 8, 4)
    with pytest.raises(InputError, match="exchanges its last two axes only"):
        _ = batch.T
    with pytest.raises(InputError, match="takes whole arrays"):
        c.assign("a", a=a)
    gaps = DeviceArray(np.zeros((4, 8), np.uint16)[:, :6].view(HostArray), dtype("float16"))
    with pytest.raises(InputError, match="takes whole arrays"):
        c.assign("a", a=gaps)
    with pytest.raises(InputError, match="no element-wise kernel on float8_e4m3"):
        array((4, 6), "float8_e4m3").assign("0.0f")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 16])
def test_element_wise_kernels_compile(kind: str, width: int) -> None:
    pytest.importorskip("cuda.bindings")
    operands = (("c", False), ("bias", True))
    each = max(1, width // bits_dtype(kind).itemsize)
    text = source(dtype(kind), "(c + bias) / (1.0f + expf(-(c + bias)))", operands, each)
    found = compile_source(text, H200.arch)
    assert found.resources.spill_bytes == 0
