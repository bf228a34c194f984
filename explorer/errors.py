"""The exception tree. Every failure that a user can cause or meet is one of these.

    ExplorerError
    ├── InputError               the user's input is at fault          (exit 2)
    │   ├── KernelError          a kernel outside the surface language
    │   ├── ScheduleError        a malformed schedule or annotation
    │   ├── MemoryPlanError      a pool or a layout asked for something impossible
    │   └── RecordError          a run folder or file that cannot be read
    ├── IllegalSchedule          the answer is no: rules are broken    (exit 1)
    ├── NoLegalCandidate         the answer is no: the space is empty  (exit 1)
    ├── EnvironmentFault         compiler, driver or device missing    (exit 3)
    └── Interrupted              the user ended it without an answer   (exit 130)

Invariant: a message is one line that names the rule or the value at fault, its limit and a remedy;
`exit_code` is what the command line returns for it.
"""

from __future__ import annotations


class ExplorerError(Exception):
    """Base of all errors raised on purpose by this package."""

    exit_code = 1


class InputError(ExplorerError):
    """The user's input is at fault."""

    exit_code = 2


class KernelError(InputError):
    """A kernel uses something outside the surface language; names the source line."""


class ScheduleError(InputError):
    """A schedule or an annotation is malformed, or bound to something else."""


class MemoryPlanError(InputError, ValueError):
    """A pool or a layout cannot give what was asked; a ValueError too, as in TVM's pools."""


class RecordError(InputError):
    """A run folder or a recorded file cannot be used."""


class IllegalSchedule(ExplorerError):
    """A schedule breaks rules; the message lists them."""


class NoLegalCandidate(ExplorerError):
    """No assignment of the choices is legal; the message names the rules that empty the space."""


class EnvironmentFault(ExplorerError):
    """The environment lacks a compiler, a driver or a device."""

    exit_code = 3


class Interrupted(ExplorerError):
    """The user ended a run before it had an answer."""

    exit_code = 130
