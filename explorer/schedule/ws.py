"""Warp-specialization schedules: who runs what, and which rings hand buffers over.

The classes, names, parameters and meaning are those of TileLang's `ws_schedule` module, so that a
schedule written for it reads unchanged here; what it cannot say is in `schedule.extensions`.
Buffers are referred to by name; a buffer object is accepted and its name taken.

Invariant: an object holds what was written; whether it is legal for a kernel and a machine is
decided by `constraints`. Only shapes of values are checked here (types, identifiers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, TypeAlias, TypeVar

from attrs import field, frozen

from explorer.data import identifier, register_union
from explorer.errors import ScheduleError


class WSSyncKind(Enum):
    """Pipeline synchronization kind.

    The producer waits for the empty barrier (ACQUIRE) and signals the full one (COMMIT); the
    consumer waits for the full barrier (WAIT) and signals the empty one (RELEASE).
    """

    PRODUCER_ACQUIRE = "acquire"
    PRODUCER_COMMIT = "commit"
    CONSUMER_WAIT = "wait"
    CONSUMER_RELEASE = "release"

    @property
    def producer(self) -> bool:
        """Whether the producer side executes it."""
        return self in (WSSyncKind.PRODUCER_ACQUIRE, WSSyncKind.PRODUCER_COMMIT)

    @property
    def opens(self) -> bool:
        """Whether it waits and opens a span (acquire, wait), rather than signals and closes it."""
        return self in (WSSyncKind.PRODUCER_ACQUIRE, WSSyncKind.CONSUMER_WAIT)


def _name(instance: Any, attribute: Any, value: Any) -> None:
    identifier(value, f"{type(instance).__name__}.{attribute.name}", ScheduleError)


def _scope_name(instance: Any, attribute: Any, value: Any) -> None:
    if value != WSScope.ROOT:
        _name(instance, attribute, value)


def _int(instance: Any, attribute: Any, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(
            f"{type(instance).__name__}.{attribute.name} must be an int, got {value!r}"
        )


@frozen
class WSRole:
    """A contiguous warp range with a single duty.

    `name` keys the per-role bodies of every scope. The role covers warps `warps_lo` to
    `warps_hi - 1`. `max_nreg` is the setmaxnreg budget; 0 leaves registers untouched.
    """

    name: str = field(validator=_name)
    warps_lo: int = field(validator=_int, kw_only=True)
    warps_hi: int = field(validator=_int, kw_only=True)
    max_nreg: int = field(default=0, validator=_int, kw_only=True)

    @property
    def warps(self) -> int:
        """How many warps the role has."""
        return self.warps_hi - self.warps_lo


def buffer_names(buffers: Iterable[Any]) -> tuple[str, ...]:
    """The names of buffers given as names or as objects with a name."""
    if isinstance(buffers, str):
        raise ScheduleError(f"expected a list of buffers, got the string {buffers!r}")
    names = tuple(b if isinstance(b, str) else getattr(b, "name", b) for b in buffers)
    return tuple(identifier(name, "buffer", ScheduleError) for name in names)


@frozen
class WSPipeline:
    """A full/empty barrier pair per slot that protects a ring of `depth` slots of its buffers."""

    name: str = field(validator=_name)
    buffers: tuple[str, ...] = field(converter=buffer_names)
    depth: int = field(validator=_int)


@frozen
class WSOpRef:
    """Reference to a tile op or a child scope by its stable id."""

    id: str = field(validator=_scope_name)


@frozen
class WSSync:
    """A pipeline synchronization point; acquire/commit (wait/release) pair up at one stage."""

    kind: WSSyncKind
    pipeline: str = field(validator=_name)
    stage: int = field(default=0, validator=_int)

    @classmethod
    def producer_acquire(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Wait for the empty barrier; binds the stage's buffer versions."""
        return cls(WSSyncKind.PRODUCER_ACQUIRE, pipeline, stage)

    @classmethod
    def producer_commit(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Signal the full barrier; ends the producer's span."""
        return cls(WSSyncKind.PRODUCER_COMMIT, pipeline, stage)

    @classmethod
    def consumer_wait(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Wait for the full barrier; binds the stage's buffer versions."""
        return cls(WSSyncKind.CONSUMER_WAIT, pipeline, stage)

    @classmethod
    def consumer_release(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Signal the empty barrier; ends the consumer's span."""
        return cls(WSSyncKind.CONSUMER_RELEASE, pipeline, stage)


WSInstr: TypeAlias = WSOpRef | WSSync
register_union(WSInstr)

RoleBody: TypeAlias = tuple[WSInstr, ...]


def _instr(value: Any) -> WSInstr:
    if isinstance(value, str):
        return WSOpRef(value)
    if isinstance(value, WSOpRef | WSSync):
        return value
    raise ScheduleError(f"a scope body holds op ids and WSSync entries, got {value!r}")


def _bodies(bodies: Any) -> tuple[tuple[str, RoleBody], ...]:
    items = bodies.items() if isinstance(bodies, Mapping) else bodies
    result = []
    for role, body in items:
        if isinstance(body, str):
            raise ScheduleError(f"the body of role {role!r} must be a list, got {body!r}")
        result.append(
            (identifier(role, "role", ScheduleError), tuple(_instr(each) for each in body))
        )
    return tuple(result)


@frozen
class WSScope:
    """A loop, or the kernel's root, with an instruction list per role.

    `id` is the loop's id or `WSScope.ROOT`. `bodies` maps role names to instructions; plain
    strings stand for `WSOpRef`s.
    """

    ROOT: ClassVar[str] = "tl.ws_scope_root"

    id: str = field(validator=_scope_name)
    bodies: tuple[tuple[str, RoleBody], ...] = field(converter=_bodies)

    def body(self, role: str) -> RoleBody:
        """The instructions of a role; empty where it has none."""
        return next((body for name, body in self.bodies if name == role), ())


def _tuple(values: Any) -> Any:
    return tuple(values)


def _items(instance: Any, attribute: Any, values: Any) -> None:
    kind = _MEMBERS[attribute.name]
    for value in values:
        if not isinstance(value, kind):
            raise ScheduleError(
                f"WSSchedule.{attribute.name} holds {kind.__name__} objects, got {value!r}"
            )


_MEMBERS: dict[str, type] = {"roles": WSRole, "pipelines": WSPipeline, "scopes": WSScope}
_N = TypeVar("_N", WSRole, WSPipeline)


@frozen
class WSSchedule:
    """The complete warp-specialization schedule of one kernel.

    `num_warps` overrides the kernel's thread extent.
    """

    num_warps: int = field(validator=_int)
    roles: tuple[WSRole, ...] = field(converter=_tuple, validator=_items)
    pipelines: tuple[WSPipeline, ...] = field(converter=_tuple, validator=_items)
    scopes: tuple[WSScope, ...] = field(converter=_tuple, validator=_items)

    def role(self, name: str) -> WSRole:
        """The role of that name; KeyError where there is none."""
        return _named(self.roles, name)

    def pipeline(self, name: str) -> WSPipeline:
        """The pipeline of that name; KeyError where there is none."""
        return _named(self.pipelines, name)

    def scope(self, scope_id: str) -> WSScope | None:
        """The scope of that id, or None."""
        return next((scope for scope in self.scopes if scope.id == scope_id), None)


def _named(items: Iterable[_N], name: str) -> _N:
    for item in items:
        if item.name == name:
            return item
    raise KeyError(name)
