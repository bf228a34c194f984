"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import typer

from explorer.errors import InputError

if TYPE_CHECKING:
    from explorer.machine import Machine
    from explorer.space import Problem, Workload

SPACE = typer.Argument(metavar="SPACE", help="a name of search_spaces/, or FILE.py:NAME")
MACHINE = typer.Option(help="cpu or h200; ascend950 is predicted")
SIZE = typer.Option(metavar="NAME=N", help="a problem size; repeat for several")
DTYPE = typer.Option(help="element type of the inputs")
INTERRUPTED = 130
WHOLE = re.compile(r"-?[0-9]{1,18}")
JSON = typer.Option("--json", help="print one JSON object on stdout")


def parse_sizes(given: list[str]) -> dict[str, int]:
    """Sizes from NAME=N; InputError for anything else."""
    return parse_numbers(given, "--size", "M=1024")


def problem_on(
    workload: Workload, machine: Machine, sizes: list[str], dtype: str | None
) -> tuple[Problem, Machine]:
    """The problem that options name, and its machine; of the cpu the one that is here."""
    from explorer.runtime import machine_here  # noqa: PLC0415  (commands import what they use)

    problem = workload.problem(parse_sizes(sizes), dtype, machine.name)
    return problem, machine_here(machine, problem.dtype) if machine.name == "cpu" else machine


def parse_numbers(given: list[str], what: str, example: str) -> dict[str, int]:
    """Whole numbers by name from NAME=N; InputError for anything else."""
    numbers: dict[str, int] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{what} {text!r} is not NAME=N, such as {example}")
        if not WHOLE.fullmatch(value):
            raise InputError(f"{what.lstrip('-')} {name}={value!r} must be a positive integer")
        if name in numbers:
            raise InputError(f"{what} {name} is given twice: {numbers[name]} and {value}")
        numbers[name] = int(value)
    return numbers
