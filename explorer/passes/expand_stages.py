"""Pass: the trees of entries become steps; loops with offsets get a prologue and an epilogue.

With shift = the largest offset: prologue step t in 0..shift-1 runs the entries of offset <= t for
iteration t - offset where the extent has it; the steady loop covers shift..extent-1; epilogue step
t in 1..shift runs the entries of offset >= t for iteration extent + t - 1 - offset, if the extent
is above shift - t, since the prologue has done the rest. A while loop has no extent
to compare with: its iterations are counted as they run, and its prologue is part of it.

Invariant: every entry runs once for each iteration, in iteration order, for every extent from 0
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from attrs import evolve, frozen

from explorer.errors import ScheduleError
from explorer.expr import Const, Expr, Var, ceildiv, compare, const, equal
from explorer.ir.access import access
from explorer.ir.nodes import Define, Index, Loop, While
from explorer.passes.alternate_sides import in_turn
from explorer.passes.plan import Entry, Item, Nest, Plan, RoleDraft
from explorer.passes.version_private import version_name
from explorer.program.nodes import Exec, For, Repeat, Step
from explorer.program.steps import (
    executed,
    map_ops,
    merge_guards,
    rename_buffers,
    substitute_steps,
    when,
)


def expand_stages(plan: Plan) -> Plan:
    """The steps of every role."""

    def change(role: RoleDraft) -> RoleDraft:
        return evolve(role, steps=in_turn(role.tree, tuple(_flat(role.tree.entries))))

    return plan.map_roles(change)


def _flat(items: tuple[Item, ...]) -> Iterator[Step]:
    for item in items:
        yield from _item_steps(item)


def _item_steps(item: Item) -> tuple[Step, ...]:
    if isinstance(item, Entry):
        return item.steps
    return when(item.guard, (*_loop_steps(item), *item.after))


def _loop_steps(nest: Nest) -> tuple[Step, ...]:
    loop = nest.loop
    assert loop is not None, "only the root has no loop, and the root is not nested"
    shift = max((item.stage or 0 for item in nest.entries), default=0)
    if isinstance(loop, While):
        if shift == 0 and not _names(nest, nest.counter):
            return (Repeat(loop.cond, tuple(_flat(nest.entries))),)
        return _Repeated(nest, loop, shift).steps()
    if shift == 0:
        steady = in_turn(nest, tuple(_flat(nest.entries)))
        return (For(loop.var, loop.start, loop.start + loop.extent, steady, _unrolled(loop)),)
    if nest.passed:
        raise ScheduleError(f"turns: the iterations of '{loop.id}' are handed out at one stage")
    return _Shifted(nest, loop, shift).steps()


def _unrolled(loop: Loop) -> bool:
    return loop.kind == "unrolled"


def _names(nest: Nest, scalar: str) -> bool:
    """Whether a step of a scope or behind its loop names a scalar."""
    steps = (*_flat(nest.entries), *nest.after)
    return substitute_steps(steps, {scalar: 0}) != steps


@frozen
class _Iterations:
    """The entries of a loop for single iterations."""

    nest: Nest

    @property
    def copies(self) -> int:
        """Iterations after which the versions of all private buffers repeat."""
        return lcm(*(count for _, count in self.nest.versions))

    def entry(self, item: Item, iteration: Expr, residue: int | None = None) -> tuple[Step, ...]:
        """An entry's steps for one iteration; `residue` is the iteration modulo `copies`."""
        loop, index = self.nest.loop, self.nest.index
        value = loop.start + iteration if isinstance(loop, Loop) else iteration
        steps = _item_steps(item)
        if value != Var(index):
            steps = substitute_steps(steps, {index: value})
        if isinstance(iteration, Const):
            residue = iteration.value
        if not self.nest.versions or not _touches(steps, dict(self.nest.versions)):
            return steps
        if residue is not None:
            return self.renamed(steps, residue)
        copies = self.copies
        return tuple(
            step
            for r in range(copies)
            for step in when(equal(iteration % copies, r), self.renamed(steps, r))
        )

    def renamed(self, steps: tuple[Step, ...], iteration: int) -> tuple[Step, ...]:
        names = {n: version_name(n, iteration % count) for n, count in self.nest.versions}
        return tuple(map_ops(step, lambda op: rename_buffers(op, names)) for step in steps)


@frozen
class _Shifted(_Iterations):
    """A counted loop whose entries have offsets up to `shift`."""

    loop: Loop
    shift: int

    def steps(self) -> tuple[Step, ...]:
        parts: list[Step] = []
        for t in range(self.shift):
            parts += merge_guards(self.prologue(t))
        parts += self.steady()
        for t in range(1, self.shift + 1):
            parts += self.epilogue(t)
        return tuple(parts)

    def prologue(self, t: int) -> Iterator[Step]:
        for item in self.nest.entries:
            iteration = t - (item.stage or 0)
            if iteration >= 0:
                body = self.entry(item, const(iteration))
                yield from when(compare("<", iteration, self.loop.extent), body)

    def epilogue(self, t: int) -> tuple[Step, ...]:
        steps: list[Step] = []
        for item in self.nest.entries:
            offset = item.stage or 0
            if offset >= t:
                steps += self.entry(item, self.loop.extent + (t - 1 - offset))
        return when(compare("<", self.shift - t, self.loop.extent), tuple(steps))

    def steady(self) -> tuple[Step, ...]:
        """Steps shift .. extent - 1; in rounds of `copies` where private buffers have versions."""
        loop, copies = self.loop, self.copies
        count = loop.extent - self.shift
        if isinstance(count, Const) and count.value <= 0:
            return ()
        if copies == 1:
            body = self.iteration(Var(loop.var) - loop.start, 0)
            start, stop = loop.start + self.shift, loop.start + loop.extent
            return (For(loop.var, start, stop, body, _unrolled(loop)),)
        first = Var(f"{loop.var}_round") * copies
        if not isinstance(count, Const):
            body = tuple(
                step
                for v in range(copies)
                for step in when(first + v < count, self.iteration(first + v + self.shift, v))
            )
            return (For(f"{loop.var}_round", const(0), ceildiv(count, copies), body),)
        rounds = count.value // copies
        body = tuple(s for v in range(copies) for s in self.iteration(first + v + self.shift, v))
        whole = For(f"{loop.var}_round", const(0), const(rounds), body)
        rest = range(rounds * copies, count.value)
        peeled = tuple(s for n in rest for s in self.iteration(const(n + self.shift), n))
        return (*((whole,) if rounds else ()), *peeled)

    def iteration(self, at: Expr, residue: int) -> tuple[Step, ...]:
        """All entries of one steady step `at`, which is shift + residue modulo `copies`."""
        steps: list[Step] = []
        for item in self.nest.entries:
            offset = item.stage or 0
            steps += self.entry(item, at - offset, self.shift + residue - offset)
        return tuple(steps)


@frozen
class _Repeated(_Iterations):
    """A while loop whose iterations are counted, with offsets up to `shift`.

    The prologue is part of the loop, since it is under the same condition: an entry of offset d
    runs from the step on that d iterations precede.
    """

    loop: While
    shift: int

    def steps(self) -> tuple[Step, ...]:
        parts = [self.count(const(0)), Repeat(self.loop.cond, self.step(0))]
        for t in range(1, self.shift + 1):
            parts += merge_guards(self.epilogue(t))
        return tuple(parts)

    def count(self, value: Expr) -> Step:
        """The counter of iterations gets a value."""
        return Exec(Define(self.nest.counter, self.nest.counter, Index(value)))

    def step(self, residue: int) -> tuple[Step, ...]:
        """One step of the loop, and those behind it until the versions repeat."""
        done = Var(self.nest.counter)
        entries: list[Step] = []
        for item in self.nest.entries:
            offset = item.stage or 0
            body = self.entry(item, done - offset, residue - offset)
            entries += when(compare("<=", offset, done), body) if offset else body
        following: tuple[Step, ...] = ()
        if residue + 1 < self.copies:
            following = when(self.loop.cond, self.step(residue + 1))
        return (*merge_guards(entries), self.count(done + 1), *following)

    def epilogue(self, t: int) -> Iterator[Step]:
        """The t-th step behind the last iteration, as far as the loop ran so often."""
        done = Var(self.nest.counter)
        for item in self.nest.entries:
            offset = item.stage or 0
            if offset >= t:
                body = self.entry(item, done + (t - 1 - offset))
                yield from when(compare("<=", offset - t + 1, done), body)


def _touches(steps: tuple[Step, ...], names: dict[str, int]) -> bool:
    return any(
        region.buffer.name in names
        for step in executed(steps)
        for region in (*access(step.op).reads, *access(step.op).writes)
    )
