"""The application: commands by name, and what becomes of their failures.

Invariant: commands raise; only `run` turns exceptions into exit codes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from explorer.cli import inspect_commands, tune_command
from explorer.cli.options import INTERRUPTED
from explorer.errors import ExplorerError

# The class of all usage errors, wherever this release of typer takes it from.
_CommandError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="explorer",
    help="Finds the fastest legal schedule of a tile kernel on the hardware at hand.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("tune")(tune_command.tune)
app.command("show")(inspect_commands.show)
app.command("check")(inspect_commands.check)
app.command("export")(inspect_commands.export)
app.command("report")(inspect_commands.report)
app.command("replay")(inspect_commands.replay)
app.command("doctor")(inspect_commands.doctor)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments, prog_name="explorer", standalone_mode=False)
    except ExplorerError as problem:
        return _fail(str(problem), problem.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _CommandError as problem:
        text = getattr(problem, "format_message", problem.__str__)()
        return _fail(text, getattr(problem, "exit_code", 2))
    if code == INTERRUPTED:
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def main() -> None:
    """The entry point of the `explorer` command."""
    sys.exit(run())


def _fail(message: str, code: int) -> int:
    print(f"explorer: {' '.join(message.split())}", file=sys.stderr)
    return code
