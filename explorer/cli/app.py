"""The application: commands by name, and what becomes of their failures.

Invariant: commands raise; only `run` turns exceptions into exit codes.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from explorer.cli import bench_command, doctor, inspect_commands, tune_command
from explorer.cli.options import INTERRUPTED
from explorer.cli.streams import abandon_stdout, open_missing
from explorer.errors import EnvironmentFault, ExplorerError, InputError
from explorer.settings import settings

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
app.command("bench")(bench_command.bench)
app.command("show")(inspect_commands.show)
app.command("check")(inspect_commands.check)
app.command("why")(inspect_commands.why)
app.command("export")(inspect_commands.export)
app.command("report")(inspect_commands.report)
app.command("replay")(inspect_commands.replay)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"explorer {version('explorer')}")
        except PackageNotFoundError:
            print("explorer, not installed: run from a checkout")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="print the version and exit"
        ),
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        code = _invoke(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except ExplorerError as problem:
        return _fail(str(problem), problem.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except _CommandError as problem:
        text = getattr(problem, "format_message", problem.__str__)()
        return _fail(text, getattr(problem, "exit_code", InputError.exit_code))
    except BrokenPipeError:
        abandon_stdout()
        return 0
    except SystemExit:
        return _fail("the workload's file called sys.exit", InputError.exit_code)
    except Exception as problem:
        return _unforeseen(problem)
    return _fail("interrupted", INTERRUPTED) if code == INTERRUPTED else code


def main() -> None:
    """The entry point of the `explorer` command."""
    open_missing()
    code = run()
    abandon_stdout()
    sys.exit(code)


def _invoke(arguments: Sequence[str]) -> int:
    """The code of a command. Not through click's `main`, which exits on a closed pipe."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("explorer", list(arguments)) as context:
            code = command.invoke(context)
    except typer.Exit as ended:
        code = ended.exit_code
    return code if isinstance(code, int) else 0


def _unforeseen(problem: Exception) -> int:
    """The last resort: a device that takes no output, or a fault of this package."""
    if settings().traceback:
        traceback.print_exception(problem)
    if isinstance(problem, OSError):
        abandon_stdout()
        named = f"{problem.filename}: " if problem.filename else ""
        return _fail(f"{named}{problem.strerror or problem}", EnvironmentFault.exit_code)
    return _fail(
        f"internal error: {type(problem).__name__}: {problem}; EXPLORER_TRACEBACK=1 shows where",
        EnvironmentFault.exit_code,
    )


def _fail(message: str, code: int) -> int:
    with suppress(OSError):
        print(f"explorer: {' '.join(message.split())}", file=sys.stderr)
    return code
