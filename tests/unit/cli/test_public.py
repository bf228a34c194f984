"""The public surface: lazy, complete, and not shadowed by the packages of the same names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import explorer


@pytest.mark.parametrize("name", explorer.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(explorer, name).__name__
    assert name in dir(explorer)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = explorer.colour  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["explorer.tune", "explorer.derive", "explorer"])
def test_functions_stay_functions_and_import_is_cheap(first: str) -> None:
    code = (
        f"import importlib, sys; import explorer; cheap = set(sys.modules)\n"
        f"assert not cheap & {{'numpy', 'z3', 'optuna', 'pandas'}}\n"
        f"importlib.import_module({first!r})\n"
        "assert callable(explorer.tune) and callable(explorer.derive)\n"
        "import explorer.tune.result, explorer.derive\n"
        "assert callable(explorer.tune) and callable(explorer.derive)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
