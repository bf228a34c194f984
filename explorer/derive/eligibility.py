"""Which buffers may have versions, in which loops, and how a version is chosen.

A loop *owns* a buffer if every iteration writes it before it reads it; then each iteration may use
a version of its own. The rules are tilelang 0.1.15's, so that what is chosen here is honoured
there: any loop is taken to run, and any write to cover what is read after it. A kernel that
carries part of a buffer from one iteration to the next opts out with {buffer: 1}.

Invariant: owners of one buffer are disjoint loops that cover all its accesses but plain fills.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from attrs import define, evolve, field, frozen

from explorer.derive.ranges import Span, always, implied, opposite, spans_of
from explorer.errors import ScheduleError
from explorer.expr import Cond, symbols
from explorer.ir.access import elements
from explorer.ir.annotations import BufferVersions, IndexMode, ManualMultiBuffer, UnlimitedMemory
from explorer.ir.nodes import Buffer, Define, Fill, Kernel, ops
from explorer.ir.task_tree import LoopNode, PipeNode, TaskNode, loop_nodes, tasks
from explorer.ir.values import value_exprs
from explorer.machine import Scope


@frozen
class Request:
    """What the author asks for one buffer; `manual` versions are indexed by the kernel."""

    versions: int | None = None
    mode: IndexMode = IndexMode.AUTO
    opted_out: bool = False
    manual: int | None = None


@frozen
class Ownership:
    """A buffer and its owners, outermost statement order; no owners: one version."""

    buffer: Buffer
    owners: tuple[LoopNode, ...]
    request: Request
    reason: str = ""


def requests(kernel: Kernel) -> dict[str, Request]:
    """The requests of all annotations by storage; ScheduleError where two disagree on one."""
    found: dict[str, Request] = {}
    for note in kernel.annotations:
        match note:
            case BufferVersions(buffer, versions, mode, opted_out):
                home = kernel.buffer(buffer).home
                found[home] = _merged(home, found.get(home), Request(versions, mode, opted_out))
            case ManualMultiBuffer(buffer, versions):
                home = kernel.buffer(buffer).home
                found[home] = _merged(home, found.get(home), Request(manual=versions))
    return found


def _merged(buffer: str, before: Request | None, now: Request) -> Request:
    if before is None or before == now:
        return now
    for one, other, what in (
        (before.versions, now.versions, "version count"),
        (before.manual, now.manual, "manual version count"),
    ):
        if one is not None and other is not None and one != other:
            raise ScheduleError(
                f"buffer '{buffer}' is annotated with the {what}s {one} and {other}: "
                "all views of one storage take the same"
            )
    modes = {each for each in (before.mode, now.mode) if each != IndexMode.AUTO}
    if len(modes) > 1:
        raise ScheduleError(
            f"buffer '{buffer}' is annotated with the modes {' and '.join(sorted(modes))}: "
            "all views of one storage take the same"
        )
    return Request(
        before.versions if now.versions is None else now.versions,
        modes.pop() if modes else IndexMode.AUTO,
        before.opted_out or now.opted_out,
        before.manual if now.manual is None else now.manual,
    )


def unlimited(kernel: Kernel) -> frozenset[Scope]:
    """The memories whose capacity the author leaves out."""
    return frozenset(
        scope
        for note in kernel.annotations
        if isinstance(note, UnlimitedMemory)
        for scope in note.scopes
    )


def ownership(kernel: Kernel, nodes: tuple[PipeNode, ...]) -> tuple[Ownership, ...]:
    """The owners of every on-chip buffer of a kernel, views with their storage, in order of
    allocation."""
    asked = requests(kernel)
    return tuple(
        _Owners(kernel, nodes, buffer, asked.get(buffer.name, Request())).find()
        for buffer in kernel.buffers
        if not buffer.scope.private and not buffer.storage
    )


@define(eq=False)
class _Owners:
    kernel: Kernel
    nodes: tuple[PipeNode, ...]
    buffer: Buffer
    request: Request

    def find(self) -> Ownership:
        claims = self._claims()
        if self.request.manual is not None:
            return self._unversioned("its versions are indexed by hand")
        if self.request.opted_out:
            if claims:
                names = ", ".join(f"'{node.loop.var}'" for node in claims)
                warnings.warn(
                    f"buffer '{self.buffer.name}': {{{self.buffer.name}: 1}} overrides the "
                    f"multi_buffer_eligible claim of loop {names}",
                    stacklevel=2,
                )
            return self._none("opted out with {buffer: 1}")
        owners = tuple(claims or self._covering(self.nodes) or ())
        if not owners:
            return self._unversioned("no loop writes it first in every iteration")
        self._verify(owners)
        return Ownership(self.buffer, owners, self._limited(owners))

    def _none(self, reason: str) -> Ownership:
        return Ownership(self.buffer, (), self.request, reason)

    def _unversioned(self, reason: str) -> Ownership:
        asked = self.request.versions or 1
        if asked > 1:
            warnings.warn(
                f"buffer '{self.buffer.name}' asks for {asked} versions and gets none: {reason}",
                stacklevel=2,
            )
        return self._none(reason)

    def _limited(self, owners: tuple[LoopNode, ...]) -> Request:
        """The request; one version in L1 where a fill outside the owners initialises all."""
        outside = [task for task in self._touching(self.nodes) if not _owner_of(owners, task)]
        if self.buffer.scope != Scope.L1 or not outside:
            return self.request
        asked = self.request.versions or 1
        if asked > 1:
            raise ScheduleError(
                f"buffer '{self.buffer.name}' asks for {asked} versions and is filled outside its "
                f"owner loops, by '{outside[0].id}': in L1 that takes one version; fill it in the "
                "loop"
            )
        return evolve(self.request, versions=1)

    def _claims(self) -> tuple[LoopNode, ...]:
        return tuple(
            node
            for node in loop_nodes(self.nodes)
            if self.buffer.name in map(self._home, node.loop.multi_buffer_eligible)
        )

    def _home(self, name: str) -> str:
        return self.kernel.buffer(name).home

    def _touching(self, nodes: tuple[PipeNode, ...]) -> list[TaskNode]:
        return [
            task
            for task in tasks(nodes)
            if any(
                region.buffer.home == self.buffer.name
                for region in (*task.access.reads, *task.access.writes)
            )
        ]

    def _covering(self, nodes: Iterable[PipeNode]) -> list[LoopNode] | None:
        """The deepest owners of every access below `nodes` but plain fills; None without them."""
        found: list[LoopNode] = []
        for node in nodes:
            if all(map(self._initialises, self._touching((node,)))):
                continue
            if isinstance(node, TaskNode):
                return None
            inner = self._covering(node.children)
            if inner:
                found += inner
            elif self._writes_first(node):
                found.append(node)
            else:
                return None
        return found

    def _initialises(self, task: TaskNode) -> bool:
        """A plain fill, which may stand outside every owner: it initialises each version."""
        return isinstance(task.op, Fill) and not any(
            element.buffer.home == self.buffer.name for element in elements(task.op.value)
        )

    def _writes_first(self, loop: LoopNode) -> bool:
        state = _Epoch(self.buffer.name, spans_of(self.kernel, (*loop.loops, loop.loop)))
        return state.run(loop.children) and state.wrote

    def _verify(self, owners: tuple[LoopNode, ...]) -> None:
        name = self.buffer.name
        for inner in owners:
            outer = _owner_of(owners, inner)
            if outer is not None:
                raise ScheduleError(
                    f"buffer '{name}' has nested owners, loop '{inner.loop.var}' inside "
                    f"'{outer.loop.var}': claim it in one of them"
                )
        for task in self._touching(self.nodes):
            if not _owner_of(owners, task) and not self._initialises(task):
                loops = " and ".join(f"'{owner.loop.var}'" for owner in owners)
                raise ScheduleError(
                    f"buffer '{name}' is owned by loop {loops} and accessed outside, by "
                    f"'{task.id}': only fills may stand there; claim it in a loop around all of "
                    f"its accesses, or opt out with {{{name}: 1}}"
                )
        self._verify_steering(owners)

    def _verify_steering(self, owners: tuple[LoopNode, ...]) -> None:
        """A value of a version steers no loop, and only what stands in its owner."""
        name, taken = self.buffer.name, self._values()
        for loop in loop_nodes(self.nodes):
            used = symbols(loop.loop.start) | symbols(loop.loop.extent)
            if any(symbol.name in taken for symbol in used):
                raise ScheduleError(
                    f"buffer '{name}' has versions and steers loop '{loop.loop.var}': "
                    f"opt out with {{{name}: 1}}"
                )
        every: list[PipeNode] = [*loop_nodes(self.nodes), *tasks(self.nodes)]
        for node in every:
            owner = _owner_of(owners, node)
            outside = node.guards if owner is None else owner.guards
            if any(symbol.name in taken for guard in outside for symbol in symbols(guard)):
                raise ScheduleError(
                    f"buffer '{name}' has versions and guards '{node.id}' outside its owner "
                    f"loops: opt out with {{{name}: 1}}"
                )

    def _values(self) -> frozenset[str]:
        """The scalars that depend on what the buffer holds."""
        found: set[str] = set()
        for task in tasks(self.nodes):
            if isinstance(task.op, Define):
                held = any(r.buffer.home == self.buffer.name for r in task.access.reads)
                used = {s.name for expr in value_exprs(task.op.value) for s in symbols(expr)}
                if held or used & found:
                    found.add(task.op.name)
        return frozenset(found)


def _owner_of(owners: tuple[LoopNode, ...], node: PipeNode) -> LoopNode | None:
    """The owner in whose body a node stands, or None."""
    return next((owner for owner in owners if owner.loop in node.loops), None)


@define(eq=False)
class _Epoch:
    """One iteration, statement by statement: the guards under which the buffer was written."""

    buffer: str
    spans: Mapping[str, Span]
    written: list[tuple[Cond, ...]] = field(factory=list)
    wrote: bool = False

    def run(self, nodes: Iterable[PipeNode]) -> bool:
        """Whether no read comes before a write that covers it."""
        for task in tasks(tuple(nodes)):
            touched = task.access
            reads = any(region.buffer.home == self.buffer for region in touched.reads)
            if reads and not self._covered(task.guards):
                return False
            if any(region.buffer.home == self.buffer for region in touched.writes):
                self._write(task.guards)
        return True

    def _write(self, guards: tuple[Cond, ...]) -> None:
        self.wrote = True
        needed = tuple(guard for guard in guards if not always(guard, self.spans))
        for other in self.written:
            same = needed and len(other) == len(needed) and other[:-1] == needed[:-1]
            if same and opposite(other[-1], needed[-1]):
                self.written.append(needed[:-1])
                break
        self.written.append(needed)

    def _covered(self, guards: tuple[Cond, ...]) -> bool:
        return any(
            all(implied(guard, guards, self.spans) for guard in written)
            for written in self.written
        )


def index_mode(kernel: Kernel, owned: Ownership) -> IndexMode:
    """How a version of an owned buffer is chosen; 'auto' is decided.

    A counter is needed where two loops own the buffer, where its epoch is conditional, and where
    the flattened index is not affine. ScheduleError where an explicit request cannot be met.
    """
    name, asked = owned.buffer.name, owned.request.mode
    if asked == IndexMode.ITERATION and len(owned.owners) > 1:
        raise ScheduleError(
            f"buffer '{name}' has {len(owned.owners)} owner loops and asks for mode 'iteration': "
            "use 'counter' or 'auto'"
        )
    if asked == IndexMode.ITERATION:
        return asked
    counted = len(owned.owners) > 1 or any(
        _conditional(kernel, owner, name) or not _flat(kernel, owner) for owner in owned.owners
    )
    return IndexMode.COUNTER if counted or asked == IndexMode.COUNTER else IndexMode.ITERATION


def epoch_guards(kernel: Kernel, owner: LoopNode, buffer: str) -> tuple[Cond, ...]:
    """The guards that all accesses of one epoch share, those that always hold left out.

    Accesses under different guards make the epoch unconditional.
    """
    spans = spans_of(kernel, (*owner.loops, owner.loop))
    outside = owner.guards
    found: tuple[Cond, ...] | None = None
    for task in tasks((owner,)):
        touched = (*task.access.reads, *task.access.writes)
        if not any(region.buffer.home == buffer for region in touched):
            continue
        inside = task.guards[len(outside) :]
        kept = tuple(guard for guard in inside if not always(guard, spans))
        found = kept if found is None else tuple(g for g in found if g in kept)
    return found or ()


def _conditional(kernel: Kernel, owner: LoopNode, buffer: str) -> bool:
    spans = spans_of(kernel, owner.loops)
    outer = any(not always(guard, spans) for guard in owner.guards)
    return outer or bool(epoch_guards(kernel, owner, buffer))


def _flat(kernel: Kernel, owner: LoopNode) -> bool:
    """Whether all loops around an epoch have trip counts that depend on no loop and on no data."""
    around = (*owner.loops, owner.loop)
    varying = {loop.var for loop in around}
    varying |= {op.name for op in ops(kernel.body) if isinstance(op, Define)}
    return not any(symbol.name in varying for loop in around for symbol in symbols(loop.extent))
