"""The command line: thin commands over the public parts.

Invariant: exit code 0 done, 1 the answer is no, 2 the user's input is at fault, 3 the environment
is, 130 interrupted. A failure is one line on stderr, never a traceback.
"""

from explorer.cli.app import main, run

__all__ = ["main", "run"]
