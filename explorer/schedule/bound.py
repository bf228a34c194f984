"""A schedule bound to what it was made for: kernel, sizes, machine.

Invariant: a bound schedule is never applied to another kernel; `verify_binding` names the first
difference.
"""

from __future__ import annotations

from attrs import field, frozen

from explorer.data import digest, identifier
from explorer.errors import ScheduleError
from explorer.ir.nodes import Kernel, walk
from explorer.ir.printer import kernel_digest
from explorer.schedule.extensions import Extensions
from explorer.schedule.ws import WSSchedule


def _sizes(values: object) -> tuple[tuple[str, int], ...]:
    items = values.items() if isinstance(values, dict) else values
    return tuple((identifier(n, "size", ScheduleError), v) for n, v in items)  # type: ignore[attr-defined]


@frozen
class Binding:
    """What a schedule belongs to: the kernel with its Params open, and the names it uses."""

    kernel: str
    kernel_digest: str
    machine: str
    params: tuple[tuple[str, int], ...] = field(converter=_sizes)
    buffers: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()


@frozen
class Schedule:
    """A complete schedule: the seed's WSSchedule, its extensions, and what it is bound to."""

    binding: Binding
    ws: WSSchedule
    extensions: Extensions = Extensions()

    @property
    def params(self) -> dict[str, int]:
        """The Param values it was made for."""
        return dict(self.binding.params)

    @property
    def digest(self) -> str:
        """Twelve hex digits that identify the schedule by content."""
        return digest(self)


def bind(kernel: Kernel, machine: str, params: dict[str, int]) -> Binding:
    """The binding of a schedule for `kernel` (its Params still open) at those Param values."""
    return Binding(
        kernel=kernel.name,
        kernel_digest=kernel_digest(kernel),
        machine=machine,
        params=tuple(sorted(params.items())),
        buffers=tuple(buffer.name for buffer in kernel.buffers),
        statements=tuple(statement.id for statement, _ in walk(kernel.body)),
    )


def verify_binding(binding: Binding, kernel: Kernel, machine: str) -> None:
    """ScheduleError that names the first difference between a binding and its use."""
    now = bind(kernel, machine, dict(binding.params))
    for what, bound, used in (
        ("kernel", binding.kernel, now.kernel),
        ("machine", binding.machine, now.machine),
        ("list of buffers", binding.buffers, now.buffers),
        ("list of statements", binding.statements, now.statements),
        ("kernel digest", binding.kernel_digest, now.kernel_digest),
    ):
        if bound != used:
            first = _first_difference(bound, used)
            raise ScheduleError(f"the schedule is bound to another {what}: {first}")
    names = [name for name, _ in binding.params]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ScheduleError(f"the schedule gives Params twice: {', '.join(twice)}")
    open_now, given = set(kernel.params), set(names)
    if open_now != given:
        differing = ", ".join(sorted(open_now ^ given))
        raise ScheduleError(f"the schedule and the kernel differ in Params: {differing}")


def _first_difference(bound: object, used: object) -> str:
    if isinstance(bound, tuple) and isinstance(used, tuple):
        for one, other in zip(bound, used, strict=False):
            if one != other:
                return f"{one!r} there, {other!r} here"
        longer, where = (bound, "there") if len(bound) > len(used) else (used, "here")
        return f"{longer[min(len(bound), len(used))]!r} only {where}"
    return f"{bound!r} there, {used!r} here"
