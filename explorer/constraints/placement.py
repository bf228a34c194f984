"""Offsets of all on-chip buffers, chosen by the solver: the smallest footprint, with its proof.

Blocks of bytes that may not share (`program.sharing`) lie apart; those that may share row by row
lie apart or start together; the rest is free. The total is at least the weight of any set of
blocks of which no two may share, and the search stops there; above it the solver is asked for less
until it refuses. What the solver leaves open within its effort is `not proven`, never infeasible.

Invariant: the answer depends on the requests and the effort alone, and every answer passes
`broken_pair`. It never takes more than the buffers one behind the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import z3

from explorer.machine import Machine
from explorer.memory.footprint import aligned
from explorer.memory.placement import Placement
from explorer.program.arrange import (
    Packing,
    Shared,
    in_order,
    least_bytes,
    overlapping,
    packed_in_order,
    placement_of,
    settled,
    sunk_orders,
)
from explorer.program.nodes import Program
from explorer.program.requests import Request, Requests, requests_of
from explorer.program.sharing import Sharing

# Deterministic effort of the solver for one memory: about a second. What follows is for the looks
# of the answer and may take a share of that for each wish.
RESOURCES = 1_000_000
WISHES = 40


def place(
    program: Program,
    machine: Machine,
    requests: Requests | None = None,
    resources: int = RESOURCES,
) -> Placement:
    """Where every on-chip buffer of a program lies."""

    def packer(items: tuple[Request, ...], shared: Shared, pooled_bytes: int) -> Packing:
        return pack(items, shared, pooled_bytes, resources)

    asked = requests or requests_of(program, machine)
    placement = placement_of(program, machine, asked, packer)
    assert placement is not None
    return placement


def pack(
    items: tuple[Request, ...], shared: Shared, pooled_bytes: int = 0, resources: int = RESOURCES
) -> Packing:
    """The offsets of some requests of one memory; free ones lie behind `pooled_bytes`."""
    simple = packed_in_order(items, shared, pooled_bytes)
    if simple is not None:
        return simple
    start = in_order(items, pooled_bytes)
    offsets, total = min((start, *sunk_orders(items, shared, pooled_bytes)), key=lambda p: p[1])
    model = _Model(items, shared, resources, pooled_bytes)
    bound = max(least_bytes(items, shared), pooled_bytes)
    offsets, total, proven = model.minimum(offsets, total, bound)
    offsets = model.plainest(offsets, total)
    offsets = settled(items, overlapping(items, shared, offsets), offsets, pooled_bytes)
    return Packing(offsets, max(total, pooled_bytes), proven)


class _Model:
    """The solver's view: an offset in units of its alignment for every request."""

    def __init__(
        self,
        items: Sequence[Request],
        shared: Shared,
        resources: int,
        floor: int = 0,
    ) -> None:
        self.items = items
        self.resources = resources
        self.context = z3.Context()
        self.solver = z3.SolverFor("QF_LIA", ctx=self.context)
        self.solver.set("random_seed", 0)
        self.total = z3.Int("total", self.context)
        self.offsets = [self._offset(item) for item in items]
        for item, offset in zip(items, self.offsets, strict=True):
            least = 0 if item.fixed is not None else floor
            self.solver.add(offset >= least, offset + item.size_bytes <= self.total)
        self.sharing: list[tuple[int, int]] = []
        for one, other in combinations(range(len(items)), 2):
            self._pair(one, other, shared.get(frozenset((items[one].name, items[other].name))))

    def _offset(self, item: Request) -> Any:
        if item.fixed is not None:
            return z3.IntVal(item.fixed, self.context)
        return z3.Int(f"at:{item.name}", self.context) * item.form.alignment_bytes

    def _pair(self, one: int, other: int, how: Sharing | None) -> None:
        if how is not None:
            self.sharing.append((one, other))
        if how == Sharing.ROWS:
            level = self.offsets[one] == self.offsets[other]
            self.solver.add(z3.Or(self._apart(one, other), level))
        elif how is None:
            self.solver.add(self._apart(one, other))

    def _apart(self, one: int, other: int) -> Any:
        a, b = self.offsets[one], self.offsets[other]
        return z3.Or(a + self.items[one].size_bytes <= b, b + self.items[other].size_bytes <= a)

    def minimum(
        self, offsets: tuple[int, ...], total: int, bound: int
    ) -> tuple[tuple[int, ...], int, bool]:
        """The best arrangement found, its total, and whether less was refuted."""
        unit = self._unit()
        low, refuted, left = aligned(bound, unit), True, self.resources
        while low < total:
            goal = low if low <= bound else low + (total - low - 1) // (2 * unit) * unit
            self.solver.push()
            self.solver.add(self.total <= goal)
            spent = self._spent()
            answer = self._check(left)
            left = max(1, left - (self._spent() - spent))
            if answer == z3.sat:
                offsets = self._read()
                total = max(
                    at + item.size_bytes for at, item in zip(offsets, self.items, strict=True)
                )
            self.solver.pop()
            if answer != z3.sat:
                low = goal + unit
                refuted = refuted and answer == z3.unsat
        return offsets, total, refuted

    def _unit(self) -> int:
        """What every total is a multiple of."""
        numbers = (n for i in self.items for n in (i.size_bytes, i.form.alignment_bytes, i.fixed))
        return math.gcd(*(n for n in numbers if n)) or 1

    def _check(self, resources: int) -> Any:
        self.solver.set("rlimit", resources)
        return self.solver.check()

    def _spent(self) -> int:
        """The effort of the context so far."""
        found = self.solver.statistics()
        names = found.keys()
        return int(found.get_key_value("rlimit count")) if "rlimit count" in names else 0

    def plainest(self, offsets: tuple[int, ...], total: int) -> tuple[int, ...]:
        """An arrangement of the same total with few overlaps, those of buffers alike in size and
        with a common start where that is possible."""
        self.solver.add(self.total <= total)
        pairs = sorted(self.sharing, key=self._difference)
        for one, other in reversed(pairs):
            offsets = self._prefer(self._apart(one, other), offsets)
        for one, other in pairs:
            offsets = self._prefer(self.offsets[one] == self.offsets[other], offsets)
        return offsets

    def _prefer(self, wish: Any, offsets: tuple[int, ...]) -> tuple[int, ...]:
        """Keep to a wish from here on if it can be had."""
        self.solver.push()
        self.solver.add(wish)
        if self._check(max(1, self.resources // WISHES)) == z3.sat:
            return self._read()
        self.solver.pop()
        return offsets

    def _difference(self, pair: tuple[int, int]) -> int:
        one, other = pair
        return abs(self.items[one].size_bytes - self.items[other].size_bytes)

    def _read(self) -> tuple[int, ...]:
        model = self.solver.model()
        return tuple(
            int(model.eval(offset, model_completion=True).as_long()) for offset in self.offsets
        )


__all__ = ["pack", "place"]
