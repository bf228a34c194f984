"""How values are stored: JSON documents with a format version, and stable digests.

Every stored type is an attrs class. A union of classes is written with a "type" tag, so that
reading is unambiguous; `register_union` declares one. Unknown fields, wrong types and versions of
the future are errors in one line.

Invariant: `loads(dumps(x), type(x)) == x`, and `digest` of equal values is equal in every process.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import cattrs
from cattrs.strategies import configure_tagged_union

from explorer.errors import InputError, RecordError

FORMAT_VERSION = 1
WIDTH = 99
T = TypeVar("T")

_converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def _strict(kind: type, *accepted: type) -> None:
    def structure(value: Any, _: Any) -> Any:
        if (isinstance(value, bool) and kind is not bool) or not isinstance(value, accepted):
            raise ValueError(f"expected {kind.__name__}, got {value!r}")
        return kind(value)

    _converter.register_structure_hook(kind, structure)


_strict(int, int)
_strict(float, int, float)
_strict(str, str)
_strict(bool, bool)


def register_union(union: Any) -> None:
    """Declare a union of attrs classes; members are stored with their class name as "type"."""
    configure_tagged_union(union, _converter, tag_name="type")


def unstructure(value: Any) -> Any:
    """The plain JSON value of an attrs object."""
    return _converter.unstructure(value)


def _reason(problem: BaseException, kind: type | None) -> str:
    """One line for a leaf of a structuring error; messages of our own are kept."""
    if isinstance(problem, ValueError | InputError):
        return " ".join(str(problem).split())
    if isinstance(problem, AttributeError):
        return "expected an object"
    return cattrs.v.format_exception(problem, kind)


def structure(value: Any, kind: type[T], error: type[InputError] = RecordError) -> T:
    """The object of a plain JSON value; `error` in one line for anything that does not fit."""
    try:
        return _converter.structure(value, kind)
    except Exception as problem:  # cattrs raises groups of many kinds
        reasons = cattrs.transform_error(problem, format_exception=_reason)
        raise error(f"not a valid {kind.__name__}: {reasons[0] if reasons else problem}") from None


def dumps(value: Any) -> str:
    """The JSON document of an attrs object, with its format version; a line holds what fits."""
    return _folded(_document(value), 0) + "\n"


def dumps_line(value: Any) -> str:
    """The document of `dumps` as one line, without its end."""
    return json.dumps(_document(value))


def _document(value: Any) -> dict[str, Any]:
    return {
        "format": type(value).__name__,
        "version": FORMAT_VERSION,
        "value": unstructure(value),
    }


def _folded(value: Any, depth: int, before: int = 0) -> str:
    """JSON that is broken where it would be wider than `WIDTH`; a list fills its lines.

    It stands `depth` levels deep, behind `before` characters of a name.
    """
    flat = json.dumps(value)
    if 2 * depth + before + len(flat) < WIDTH or not isinstance(value, dict | list | tuple):
        return flat
    inner, outer = "\n" + "  " * (depth + 1), "\n" + "  " * depth
    if isinstance(value, dict):
        heads = [(f"{json.dumps(name)}: ", each) for name, each in value.items()]
        parts = [head + _folded(each, depth + 1, len(head)) for head, each in heads]
        return "{" + inner + f",{inner}".join(parts) + outer + "}"
    lines: list[str] = []
    for part in (_folded(each, depth + 1) for each in value):
        room = WIDTH - 2 * (depth + 1) - len(part) - len(", ,")
        if lines and "\n" not in lines[-1] + part and len(lines[-1]) <= room:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return "[" + inner + f",{inner}".join(lines) + outer + "]"


def loads(text: str, kind: type[T], error: type[InputError] = RecordError) -> T:
    """Read a document written by `dumps`; `error` in one line for anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error(f"not JSON: {problem}") from None
    if not isinstance(document, Mapping) or set(document) != {"format", "version", "value"}:
        raise error(f"not a {kind.__name__} document: expected format, version and value")
    if document["format"] != kind.__name__:
        raise error(f"expected a {kind.__name__} document, got {document['format']!r}")
    version = document["version"]
    if version != FORMAT_VERSION:
        raise error(
            f"format version {version!r} is not readable: this release reads {FORMAT_VERSION}"
        )
    return structure(document["value"], kind, error)


def digest(*parts: Any) -> str:
    """Twelve hex digits that identify values by content: strings, or attrs objects."""
    texts = [
        part
        if isinstance(part, str)
        else json.dumps(unstructure(part), sort_keys=True, separators=(",", ":"))
        for part in parts
    ]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:12]


def identifier(value: str, what: str, error: type[InputError] = InputError) -> str:
    """`value` if it can stand in generated source as a name, else `error`."""
    if not isinstance(value, str) or not IDENTIFIER.match(value):
        raise error(
            f"{what} {value!r} is not an identifier: letters, digits and underscores, "
            "at most 64, no leading digit"
        )
    return value
