"""The runtime's C text, as it is pasted in front of a kernel.

Headers with type parameters are instantiated here by replacing NUM, IN and OUT; the result is
plain C that is complete by itself.

Invariant: a header is pasted at most once per set of types, after those that it builds on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from explorer.codegen.cpu.elements import c_type

_ALWAYS = ("base", "barrier", "launch", "arithmetic", "convert")
# What vectors of a type are made of: integers of its size, and the size.
_VECTORS = {"f32": ("int32_t", "4"), "f64": ("int64_t", "8")}
_NARROW_LOADS = {"f16": "load16", "bf16": "load16", "e4m3": "load8"}


@cache
def header(name: str) -> str:
    """The text of a header of the runtime."""
    return (files(__package__) / "runtime" / name).read_text()


def instance(name: str, **types: str) -> str:
    """A header with its type parameters replaced by short names of types."""
    text = header(name)
    for parameter, short in types.items():
        integer, size = _VECTORS.get(short, ("", ""))
        text = text.replace(f"{parameter}_INT_T", integer).replace(f"{parameter}_BYTES", size)
        text = text.replace(f"{parameter}_T", c_type(short))
        text = re.sub(rf"(?<![A-Za-z0-9]){parameter}(?![A-Za-z0-9])", short, text)
    return text


def runtime_text(needed: Iterable[str]) -> str:
    """All headers that a kernel needs, in order; `needed` as recorded by `Helpers.need`."""
    wanted = [each.split() for each in needed]
    numbers = sorted({each[1] for each in wanted if each[0] in ("vector", "copy")})
    parts = [header(f"{name}.h") for name in _ALWAYS]
    for number in numbers:
        parts += [instance("vector.h", NUM=number), instance("load.h", NUM=number)]
    loads = {_NARROW_LOADS.get(each[2]) for each in wanted if each[0] == "copy"}
    parts += [header(f"{name}.h") for name in ("load16", "load8") if name in loads]
    for kind, number, other in (each for each in wanted if len(each) == 3):
        parameter = "IN" if kind == "copy" else "OUT"
        parts.append(instance(f"{kind}.h", **{"NUM": number, parameter: other}))
    return "\n".join(parts)
