"""The order of the parts: each imports parts of earlier lines only, and has its own libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "explorer"
ORDER = """
errors settings
data
expr
machine
ir
schedule memory
lang
program
derive
space
constraints
passes codegen
records
frontend export
runtime
cost
search
tune
report
cli
__main__
"""
LINE = {part: line for line, text in enumerate(ORDER.split("\n")) for part in text.split()}
OWNERS = {"z3": "constraints", "optuna": "search", "cupy": "runtime", "cuda": "runtime"}
PUBLIC = {"explorer", "explorer.lang"}
LINES = 480
LONGER = {
    "expr.py": "one algebra and its folding",
    "ir/nodes.py": "all nodes and the one rewriting over them",
}
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, `from a import b` as both a and a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("module", [name for name in MODULES if name != "__init__.py"])
def test_a_part_imports_earlier_parts_only(module: str) -> None:
    part = module.split("/", maxsplit=1)[0].removesuffix(".py")
    assert part in LINE, f"{part} has no place in the order"
    for name in imported(PACKAGE / module):
        first, *rest = name.split(".")
        assert OWNERS.get(first, part) == part, f"only {OWNERS.get(first)} may import {first}"
        if first == "explorer" and rest and rest[0] != part and rest[0] in LINE:
            assert LINE[rest[0]] < LINE[part], f"{part} imports {rest[0]}, which comes later"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_short(module: str) -> None:
    lines = len((PACKAGE / module).read_text().splitlines())
    assert lines <= LINES or module in LONGER


@pytest.mark.parametrize("path", sorted((ROOT / "search_spaces").glob("*.py")), ids=str)
def test_a_search_space_imports_the_public_interface_only(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            assert name in PUBLIC or not str(name).startswith("explorer"), f"{name} is private"
