"""The typed value that the passes hand on: a kernel under a schedule, on its way to a program.

Role bodies stand as trees of entries: a step with its stage, or the nested body of a child scope.
They become plain steps in the stage pass and no pass after it sees an entry.

Invariant: a pass returns a new Plan and never changes what an earlier pass established.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from attrs import evolve, frozen

from explorer.expr import TRUE, Cond, Expr, Var, const
from explorer.ir.nodes import Buffer, Kernel, Loop, While
from explorer.machine import Machine
from explorer.program.nodes import Barriers, Ring, Step
from explorer.schedule.bound import Schedule
from explorer.schedule.stream import StreamedLoop
from explorer.schedule.ws import WSRole


@frozen
class Entry:
    """One instruction of a role in a scope: its steps, and its stage there."""

    steps: tuple[Step, ...]
    stage: int | None = None


@frozen
class Nest:
    """A scope as one role runs it.

    `after` are steps that follow its loop, `versions` the private buffers of several copies. Where
    roles take turns, the role runs an iteration of which `owner` holds, and `passed` instead of
    any other. `counter` is the scalar that can number the iterations of a while loop.
    """

    scope: str
    loop: Loop | While | None
    entries: tuple[Item, ...]
    guard: Cond = TRUE
    stage: int | None = None
    after: tuple[Step, ...] = ()
    versions: tuple[tuple[str, int], ...] = ()
    owner: Cond = TRUE
    passed: tuple[Step, ...] = ()
    counter: str = ""

    @property
    def index(self) -> str:
        """The scalar that numbers the iterations."""
        return self.loop.var if isinstance(self.loop, Loop) else self.counter

    @property
    def iteration(self) -> Expr:
        """The number of the current iteration, from 0."""
        start = self.loop.start if isinstance(self.loop, Loop) else const(0)
        return Var(self.index) - start

    @property
    def trips(self) -> Expr:
        """How many iterations ran, behind the loop."""
        return self.loop.extent if isinstance(self.loop, Loop) else Var(self.counter)


Item: TypeAlias = Entry | Nest


@frozen
class RoleDraft:
    """A role on its way: the tree of its root scope, or the steps that came of it."""

    role: WSRole
    tree: Nest
    steps: tuple[Step, ...] = ()
    private: tuple[Buffer, ...] = ()
    share: tuple[int, int] = (0, 1)


@frozen
class Plan:
    """What is known so far. `scopes` are (pipeline, path of scope ids from the root); `workspace`
    are global buffers that the passes add; `streamed` as in a Program."""

    kernel: Kernel
    schedule: Schedule
    machine: Machine
    scopes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    roles: tuple[RoleDraft, ...] = ()
    rings: tuple[Ring, ...] = ()
    barriers: tuple[Barriers, ...] = ()
    workspace: tuple[Buffer, ...] = ()
    streamed: StreamedLoop | None = None

    def scope_path(self, pipeline: str) -> tuple[str, ...]:
        """The scopes around a pipeline's entries, its own last; KeyError without entries."""
        return dict(self.scopes)[pipeline]

    def map_roles(self, change: Callable[[RoleDraft], RoleDraft]) -> Plan:
        """The plan with every role changed."""
        return evolve(self, roles=tuple(change(role) for role in self.roles))


Pass: TypeAlias = Callable[[Plan], Plan]


def map_nests(nest: Nest, change: Callable[[Nest], Nest]) -> Nest:
    """The tree with every scope changed, inner scopes first."""
    entries = tuple(
        map_nests(item, change) if isinstance(item, Nest) else item for item in nest.entries
    )
    return change(evolve(nest, entries=entries))


def map_steps(nest: Nest, change: Callable[[Step], Step]) -> Nest:
    """The tree with every step of every entry changed."""

    def one(each: Nest) -> Nest:
        entries = tuple(
            evolve(item, steps=tuple(change(step) for step in item.steps))
            if isinstance(item, Entry)
            else item
            for item in each.entries
        )
        return evolve(each, entries=entries)

    return map_nests(nest, one)


def nests(nest: Nest) -> Iterator[Nest]:
    """Every scope of a tree, outer ones first."""
    yield nest
    for item in nest.entries:
        if isinstance(item, Nest):
            yield from nests(item)
