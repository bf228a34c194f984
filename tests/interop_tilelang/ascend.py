"""TileLang's Ascend compiler, run without a device, and what its source says.

Invariant: everything is read from the generated text: buffer indices and events.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import tilelang
import tilelang.ascend.transform as ascend_transform
from attrs import frozen
from tilelang.engine.lower import lower
from tvm.target import Target

from explorer.machine import Pipe

PIPES = {
    "PIPE_MTE1": Pipe.MTE1,
    "PIPE_MTE2": Pipe.MTE2,
    "PIPE_MTE3": Pipe.MTE3,
    "PIPE_M": Pipe.CUBE,
    "PIPE_V": Pipe.VECTOR,
    "PIPE_FIX": Pipe.FIXPIPE,
    "PIPE_S": Pipe.SCALAR,
}
_EVENT = re.compile(
    r"asc_sync_(notify|wait)\((PIPE_\w+), (PIPE_\w+), static_cast<event_t>\((.*)\)\);"
)
_COUNTER = re.compile(r"int32_t (\w+)_version_counter\w* = 0;")


@frozen
class Compiled:
    """The generated source, and the versions that the scheduler settled on."""

    source: str
    versions: dict[str, int]

    @property
    def pipe_pairs(self) -> frozenset[tuple[Pipe, Pipe]]:
        """Pairs of pipes that a flag orders."""
        found = _EVENT.findall(self.source)
        return frozenset((PIPES[a], PIPES[b]) for _, a, b, _ in found)

    @property
    def forms(self) -> frozenset[tuple[int, bool]]:
        """Version counts by which an index is reduced, and whether the index is a counter."""
        masks = re.findall(r"([\w)]+) & (\d+)\)", self.source)
        divided = re.findall(r"([\w)]+) % (\d+)\)", self.source)
        counts = [(name, int(mask) + 1) for name, mask in masks]
        counts += [(name, int(modulus)) for name, modulus in divided]
        return frozenset((count, "version_counter" in name) for name, count in counts)

    @property
    def initial_sets(self) -> int:
        """Flags that are set before the first loop."""
        head = self.source.split("__global__", 1)[1].split("for (", 1)[0]
        return sum(kind == "notify" for kind, *_ in _EVENT.findall(head))

    @property
    def counters(self) -> frozenset[str]:
        """The first buffer of each group that a counter indexes."""
        return frozenset(_COUNTER.findall(self.source))


def compile_ascend(text: str, folder: Path, name: str) -> Compiled:
    """Load a module of the Ascend dialect and run the whole compiler on its kernel."""
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    selected: dict[str, int] = {}
    with Target("ascend"), _Watch(selected):
        artifact = lower(
            getattr(module, name),
            target="ascend",
            enable_device_compile=False,
            enable_host_codegen=False,
        )
    return Compiled(artifact.kernel_source, selected)


class _Watch:
    """Reads the version map that AutoSchedule leaves on the kernel's block."""

    def __init__(self, found: dict[str, int]) -> None:
        self.found = found

    def __enter__(self) -> None:
        self.original = ascend_transform.AutoSchedule
        found = self.found

        def watched() -> Any:
            inner = self.original()

            def run(module: Any) -> Any:
                result = inner(module)
                text = result.script()
                match = re.search(r'"tl.buffer_versions_map": \{([^}]*)\}', text)
                if match:
                    for name, count in re.findall(r"(\w+)(?:\.data)?: (\d+)", match[1]):
                        found[name] = int(count)
                return result

            return run

        ascend_transform.AutoSchedule = watched

    def __exit__(self, *_: object) -> None:
        ascend_transform.AutoSchedule = self.original


tilelang.disable_cache()
