"""The cpu machine of this host, and of hosts that say little about themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.errors import EnvironmentFault
from explorer.ir.dtypes import dtype
from explorer.machine import CPU, Scope
from explorer.runtime import compiler, cpu_machine, device_name, host, machine_here


def test_this_host_fills_in_units_memory_and_shapes() -> None:
    machine = machine_here(CPU, dtype("float32"))
    memory = machine.memory(Scope.SHARED)
    assert machine.units == host.usable_cores()
    assert memory is not None
    assert memory.capacity_bytes >= 4 << 20
    assert machine.matrix_shapes


def test_a_wider_accumulator_has_fewer_lanes() -> None:
    single, double = cpu_machine(dtype("float32")), cpu_machine(dtype("float64"))
    assert [s.n for s in single.matrix_shapes] == [2 * s.n for s in double.matrix_shapes]
    assert machine_here(CPU, dtype("bfloat16")) == single
    assert machine_here(CPU, dtype("float64")) == double


@pytest.mark.parametrize(
    ("macro", "name", "shape"),
    [
        ("__AVX512F__", "avx512", (8, 32)),
        ("__AVX__", "avx2", (6, 16)),
        ("__ARM_NEON", "neon", (8, 8)),
    ],
)
def test_shapes_follow_the_instruction_set(
    macro: str, name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = compiler.Compiler(("cc",), "cc 1", (), frozenset({macro}))
    monkeypatch.setattr(host, "find_compiler", lambda: fake)
    host.instruction_set.cache_clear()
    machine = cpu_machine(dtype("float32"))
    host.instruction_set.cache_clear()
    assert machine.arch == name
    assert (machine.matrix_shapes[0].m, machine.matrix_shapes[0].n) == shape


def test_a_host_without_proc_and_sys_still_has_a_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler() -> compiler.Compiler:
        raise EnvironmentFault("no C compiler")

    monkeypatch.setattr(host, "_CACHES", tmp_path / "cache")
    monkeypatch.setattr(host, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(host, "find_compiler", no_compiler)
    host.last_cache_bytes.cache_clear()
    host.instruction_set.cache_clear()
    machine = cpu_machine(dtype("float32"))
    assert host.last_cache_bytes() == 8 << 20
    assert device_name()
    host.last_cache_bytes.cache_clear()
    host.instruction_set.cache_clear()
    assert machine.matrix_shapes


def test_the_last_cache_is_the_highest_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("3", "Unified", "32M")]
    for index, values in enumerate(caches):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in zip(("level", "type", "size"), values, strict=True):
            (folder / name).write_text(value + "\n")
    monkeypatch.setattr(host, "_CACHES", tmp_path)
    host.last_cache_bytes.cache_clear()
    assert host.last_cache_bytes() == 32 << 20
    host.last_cache_bytes.cache_clear()
