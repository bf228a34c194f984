"""Arguments and options that several commands share."""

from __future__ import annotations

import re

import typer

from explorer.errors import InputError

SPACE = typer.Argument(metavar="SPACE", help="a name of search_spaces/, or FILE.py:NAME")
MACHINE = typer.Option(help="cpu or h200")
SIZE = typer.Option(metavar="NAME=N", help="a problem size; repeat for several")
DTYPE = typer.Option(help="element type of the inputs")
INTERRUPTED = 130
WHOLE = re.compile(r"-?[0-9]{1,18}")
JSON = typer.Option("--json", help="print one JSON object on stdout")


def parse_sizes(given: list[str]) -> dict[str, int]:
    """Sizes from NAME=N; InputError for anything else."""
    sizes: dict[str, int] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--size {text!r} is not NAME=N, such as M=1024")
        if not WHOLE.fullmatch(value):
            raise InputError(f"size {name}={value!r} must be a positive integer")
        if name in sizes:
            raise InputError(f"--size {name} is given twice: {sizes[name]} and {value}")
        sizes[name] = int(value)
    return sizes
