"""Finding the compiler, compiling, and the cache of compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attrs import evolve

from explorer.errors import EnvironmentFault
from explorer.records import CompileFailed
from explorer.runtime import compiler
from explorer.runtime.compiler import Built, compile_library, find_compiler
from explorer.settings import Settings, settings

SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own."""
    _use(monkeypatch, evolve(settings(), cache=tmp_path / "cache"))
    yield tmp_path / "cache"
    find_compiler.cache_clear()


def _use(monkeypatch: pytest.MonkeyPatch, changed: Settings) -> None:
    monkeypatch.setattr(compiler, "settings", lambda: changed)
    find_compiler.cache_clear()


def test_a_second_compilation_comes_from_the_cache(here: Path) -> None:
    first, second = compile_library(SOURCE), compile_library(SOURCE)
    assert isinstance(first, Built)
    assert isinstance(second, Built)
    assert first.seconds > 0
    assert second == evolve(first, seconds=0.0)
    assert second.library.exists()


def test_nothing_but_finished_files_is_left_in_the_cache(here: Path) -> None:
    compile_library(SOURCE)
    compile_library("int broken( {\n")
    left = sorted(path.suffix for path in here.rglob("*") if path.is_file())
    assert left == [".c", ".log", ".so", ".sum"]


def test_threads_may_compile_the_same_source(here: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(compile_library, [SOURCE] * 4))
    assert len({each.key for each in built if isinstance(each, Built)}) == 1


def test_source_compiler_flags_and_target_are_all_part_of_the_key(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []

    def record(
        found: compiler.Compiler, flags: tuple[str, ...], source: str, key: str, *_: object
    ):
        keys.append(key)
        return CompileFailed("not compiled")

    monkeypatch.setattr(compiler, "_compile_into", record)
    plain = find_compiler()
    for changed in (
        plain,
        evolve(plain, version="another"),
        evolve(plain, native=("-march=x86-64",)),
        evolve(plain, macros=plain.macros | {"__NEW_INSTRUCTIONS__"}),
        evolve(plain, command=(*plain.command, "-DX")),
    ):
        monkeypatch.setattr(compiler, "find_compiler", lambda changed=changed: changed)
        compile_library(SOURCE)
    compile_library(SOURCE + "\n")
    assert len(set(keys)) == 6


def test_a_refused_source_is_an_outcome_with_the_compilers_words(here: Path) -> None:
    failed = compile_library("int f(void) { return missing; }\n")
    assert isinstance(failed, CompileFailed)
    assert "missing" in failed.message
    assert "\n" not in failed.message


@pytest.mark.parametrize("command", ["no-such-compiler-anywhere", "true", "", 'cc "unbalanced'])
def test_no_compiler_is_a_fault_of_the_environment(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, evolve(settings(), cc=command, cache=here))
    with pytest.raises(EnvironmentFault, match="CC") as caught:
        compile_library(SOURCE)
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_a_fault_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    _use(monkeypatch, evolve(settings(), cache=blocked))
    with pytest.raises(EnvironmentFault, match="EXPLORER_CACHE"):
        compile_library(SOURCE)
    find_compiler.cache_clear()


@pytest.mark.parametrize("damage", [lambda whole: whole[:100], lambda whole: b"", bytes.lower])
def test_a_damaged_library_is_made_again(here: Path, damage: Callable[[bytes], bytes]) -> None:
    first = compile_library(SOURCE)
    assert isinstance(first, Built)
    whole = first.library.read_bytes()
    first.library.write_bytes(damage(whole))
    again = compile_library(SOURCE)
    assert isinstance(again, Built)
    assert again.seconds > 0
    assert again.library.read_bytes() == whole


def test_a_compiler_that_writes_nothing_is_to_blame(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "run_compiler", lambda *_: (None, ""))
    with pytest.raises(EnvironmentFault, match="reports success and writes no library; set CC"):
        compile_library(SOURCE)


def test_a_compilation_ends_at_its_limit(here: Path) -> None:
    failed = compile_library(SOURCE, limit_s=1e-4)
    assert failed == CompileFailed("the compiler took longer than 0.0001 s")
