"""What the README shows works as it stands there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np

from explorer import Workload
from explorer.constraints import FeasibleModel, Status
from explorer.ir.interpreter import run
from explorer.machine import CPU
from explorer.space import space_of

README = (Path(__file__).parents[1] / "README.md").read_text()


def example(folder: Path) -> Workload:
    (text,) = re.findall(r"```python\n(.*?)```", README, re.S)
    path = folder / "scale.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("readme_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    workload = module.WORKLOAD
    assert isinstance(workload, Workload)
    return workload


def test_the_two_commands_stand_at_the_top() -> None:
    shown = re.findall(r"```sh\n(.*?)\n```", README, re.S)
    assert shown[:2] == ["pip install . && explorer tune gemm", "pip install '.[test]' && pytest"]


def test_the_example_is_a_search_space(tmp_path: Path) -> None:
    workload = example(tmp_path)
    problem = workload.problem({"M": 40, "N": 70})
    space = space_of(workload, problem, CPU)
    found = FeasibleModel(space).project({c.name: c.domain[0] for c in space.choices})
    assert found.status == Status.FOUND
    inputs = workload.inputs(problem, np.random.default_rng(0))
    kernel = workload.kernel(problem).at(block_M=16, block_N=64)
    np.testing.assert_array_equal(
        run(kernel, inputs)["B"], workload.reference(problem, inputs)["B"]
    )
