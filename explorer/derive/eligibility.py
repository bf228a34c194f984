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

from attrs import define, field, frozen

from explorer.derive.ranges import Span, always, implied, opposite, spans_of
from explorer.errors import ScheduleError
from explorer.expr import Cond, symbols
from explorer.ir.access import elements
from explorer.ir.annotations import BufferVersions, IndexMode, ManualMultiBuffer, UnlimitedMemory
from explorer.ir.nodes import Buffer, Fill, Kernel
from explorer.ir.task_tree import LoopNode, PipeNode, TaskNode, loop_nodes, tasks
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
    """The requests of all annotations; ScheduleError where two disagree on one buffer."""
    found: dict[str, Request] = {}
    for note in kernel.annotations:
        match note:
            case BufferVersions(buffer, versions, mode, opted_out):
                found[buffer] = _merged(
                    buffer, found.get(buffer), Request(versions, mode, opted_out)
                )
            case ManualMultiBuffer(buffer, versions):
                found[buffer] = _merged(buffer, found.get(buffer), Request(manual=versions))
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
    """The owners of every on-chip buffer of a kernel, in order of allocation."""
    asked = requests(kernel)
    return tuple(
        _Owners(kernel, nodes, buffer, asked.get(buffer.name, Request())).find()
        for buffer in kernel.buffers
        if not buffer.scope.private
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
            return self._none("its versions are indexed by hand")
        if self.request.opted_out:
            if claims:
                names = ", ".join(f"'{node.loop.var}'" for node in claims)
                warnings.warn(
                    f"buffer '{self.buffer.name}': {{{self.buffer.name}: 1}} overrides the "
                    f"multi_buffer_eligible claim of loop {names}",
                    stacklevel=2,
                )
            return self._none("opted out with {buffer: 1}")
        owners = claims or self._covering(self.nodes)
        if owners is None:
            return self._none("no loop writes it first in every iteration")
        owners = tuple(owners)
        self._verify(owners)
        return Ownership(self.buffer, owners, self.request)

    def _none(self, reason: str) -> Ownership:
        return Ownership(self.buffer, (), self.request, reason)

    def _claims(self) -> tuple[LoopNode, ...]:
        return tuple(
            node
            for node in loop_nodes(self.nodes)
            if self.buffer.name in node.loop.multi_buffer_eligible
        )

    def _touches(self, node: PipeNode) -> bool:
        return any(
            region.buffer.name == self.buffer.name
            for task in tasks((node,))
            for region in (*task.access.reads, *task.access.writes)
        )

    def _covering(self, nodes: Iterable[PipeNode], root: bool = True) -> list[LoopNode] | None:
        """The deepest owners that cover every access below `nodes`; None where some is left."""
        found: list[LoopNode] = []
        for node in nodes:
            if not self._touches(node):
                continue
            if isinstance(node, TaskNode):
                if root and self._initialises(node):
                    continue
                return None
            inner = self._covering(node.children, root=False)
            if inner:
                found += inner
            elif self._writes_first(node):
                found.append(node)
            else:
                return None
        return found or None

    def _initialises(self, task: TaskNode) -> bool:
        """A plain fill, which may stand outside every owner: it initialises each version."""
        return isinstance(task.op, Fill) and not any(
            element.buffer.name == self.buffer.name for element in elements(task.op.value)
        )

    def _writes_first(self, loop: LoopNode) -> bool:
        state = _Epoch(self.buffer.name, spans_of(self.kernel, (*loop.loops, loop.loop)))
        return state.run(loop.children) and state.wrote

    def _verify(self, owners: tuple[LoopNode, ...]) -> None:
        name = self.buffer.name
        for owner in owners:
            if any(owner.loop in other.loops for other in owners):
                raise ScheduleError(
                    f"buffer '{name}' has nested owners, loop '{owner.loop.var}' inside another: "
                    "claim it in one of them"
                )
            for node in loop_nodes(self.nodes):
                sizes = (*symbols(node.loop.start), *symbols(node.loop.extent))
                if any(str(symbol).startswith(f"{name}_") for symbol in sizes):
                    raise ScheduleError(
                        f"buffer '{name}' has versions and steers loop '{node.loop.var}': "
                        f"opt out with {{{name}: 1}}"
                    )


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
            reads = any(region.buffer.name == self.buffer for region in touched.reads)
            if reads and not self._covered(task.guards):
                return False
            if any(region.buffer.name == self.buffer for region in touched.writes):
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
        _conditional(kernel, owner, name) or not _flat(owner) for owner in owned.owners
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
        if not any(region.buffer.name == buffer for region in touched):
            continue
        inside = task.guards[len(outside) :]
        kept = tuple(guard for guard in inside if not always(guard, spans))
        found = kept if found is None else tuple(g for g in found if g in kept)
    return found or ()


def _conditional(kernel: Kernel, owner: LoopNode, buffer: str) -> bool:
    spans = spans_of(kernel, owner.loops)
    outer = any(not always(guard, spans) for guard in owner.guards)
    return outer or bool(epoch_guards(kernel, owner, buffer))


def _flat(owner: LoopNode) -> bool:
    """Whether all loops around an epoch have trip counts that depend on no other loop."""
    around = (*owner.loops, owner.loop)
    inner = {loop.var for loop in around}
    return not any(
        getattr(symbol, "name", "") in inner for loop in around for symbol in symbols(loop.extent)
    )
