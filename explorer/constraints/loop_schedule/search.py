"""Is there a schedule at a given interval: propagation over differences, and branching.

The tasks' earliest starts are tried first. Each thing that they violate is a choice between two
bounds (or a few) of which one holds in every schedule: two tasks meet on a resource, so one is
early or the other late; a ring needs more versions than fit, so it has fewer or the other rings
do; a stage or a phase is out of order. The choice with the least slack is made first.

Invariant: `FOUND` comes with starts that break nothing; `NONE` is a proof: every branch ended in a
contradiction.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np
from attrs import define, frozen

from explorer.constraints.loop_schedule.layout import Layout
from explorer.constraints.loop_schedule.network import Bound, Matrix, Network, known

_FAR = 1 << 40


class Verdict(StrEnum):
    """What is known about one interval."""

    FOUND = "found"
    NONE = "none"
    OPEN = "open"


@frozen
class Verdicted:
    """A verdict, and the starts where it is FOUND."""

    verdict: Verdict
    starts: tuple[int, ...] = ()
    nodes: int = 0


@define(eq=False)
class Node:
    """A network, and the versions that every ring has at least and at most."""

    network: Network
    least: Matrix
    most: Matrix

    def copy(self) -> Node:
        return Node(self.network.copy(), self.least.copy(), self.most.copy())


@frozen
class _Choice:
    """Alternatives of which one holds: bounds on starts, or a ring's least or most versions."""

    bounds: tuple[Bound, ...] = ()
    ring: int = -1
    versions: int = 0


@define(eq=False)
class IntervalSearch:
    """The search at one interval; `makespan` bounds the ends of all tasks where it is given."""

    layout: Layout
    interval: int
    makespan: int | None = None
    noise: np.random.Generator | None = None

    # ------------------------------------------------------------ the root

    def root(self) -> Node | None:
        """All bounds that hold in every schedule, propagated; None where they conflict."""
        problem = self.layout.problem
        network = Network.of(len(problem.tasks), self._bounds())
        if network is None:
            return None
        rings = len(problem.rings)
        node = Node(
            network,
            np.ones(rings, dtype=np.int64),
            np.full(rings, problem.num_stages, dtype=np.int64),
        )
        for ring in range(rings):
            if not self._post_ring(node, ring):
                return None
        return node if self._propagate(node) else None

    def _bounds(self) -> Iterator[Bound]:
        layout, interval = self.layout, self.interval
        origin = len(layout.components)
        for index, task in enumerate(layout.problem.tasks):
            if task.stage is not None:
                yield origin, index, task.stage * interval
                yield index, origin, 1 - (task.stage + 1) * interval
            elif layout.anchored:
                yield origin, index, 0
            elif layout.components.index(layout.components[index]) == index:
                yield origin, index, 0
                yield index, origin, 1 - interval
            if self.makespan is not None:
                yield index, origin, task.latency - self.makespan
        edges = layout.inner
        gaps = edges.latency - interval * edges.distance
        yield from zip(edges.before.tolist(), edges.after.tolist(), gaps.tolist(), strict=True)
        for first, second in (*layout.same_pipe, *layout.stage_order):
            yield first, second, 1 - interval
        for first, second in layout.problem.pipe_order:
            one, two = (layout.problem.tasks[each].stage for each in (first, second))
            if one is not None and two is not None:
                yield first, second, (two - one) * interval

    # ------------------------------------------------------------ propagation

    def _post_ring(self, node: Node, ring: int) -> bool:
        edges = self.layout.rings[ring]
        gaps = edges.latency - self.interval * int(node.most[ring])
        return not len(gaps) or node.network.post_all(edges.before, edges.after, gaps)

    def _propagate(self, node: Node) -> bool:
        while True:
            changed = self._tighten_pairs(node.network)
            if changed is None:
                return False
            fitted = self._fit_rings(node)
            if fitted is None:
                return False
            if not changed and not fitted:
                return True

    def _tighten_pairs(self, network: Network) -> bool | None:
        """Move differences out of the gaps that two tasks of a pair leave; None on a conflict."""
        pairs, interval, matrix = self.layout.pairs, self.interval, network.matrix
        if not len(pairs.first):
            return False
        low = matrix[pairs.first, pairs.second]
        turn = (low + pairs.before - 1) // interval
        up = turn * interval + pairs.after
        raised = known(low) & (low < up)
        reverse = matrix[pairs.second, pairs.first]
        high = -reverse
        turn = (high - pairs.after + interval) // interval
        down = turn * interval - pairs.before
        lowered = known(reverse) & (high > down)
        if not raised.any() and not lowered.any():
            return False
        before = np.concatenate((pairs.first[raised], pairs.second[lowered]))
        after = np.concatenate((pairs.second[raised], pairs.first[lowered]))
        gaps = np.concatenate((up[raised], -down[lowered]))
        return True if network.post_all(before, after, gaps) else None

    def _fit_rings(self, node: Node) -> bool | None:
        """Bring least and most versions in line with starts and capacities."""
        changed = False
        sizes = self.layout.sizes
        for ring, edges in enumerate(self.layout.rings):
            if len(edges.before):
                reverse = node.network.matrix[edges.after, edges.before]
                need = -(-(edges.latency + reverse) // self.interval)
                node.least[ring] = max(int(node.least[ring]), int(need.max()))
        for group in self.layout.problem.groups:
            members = list(group.rings)
            if not members:
                continue
            taken = node.least[members] * sizes[members]
            free = group.capacity_bytes - int(taken.sum())
            if free < 0:
                return None
            for ring in group.rings:
                size = int(sizes[ring])
                most = int(node.least[ring]) + free // size if size else int(node.most[ring])
                if most < node.most[ring]:
                    node.most[ring] = most
                    changed = True
                    if not self._post_ring(node, ring):
                        return None
        return None if bool((node.least > node.most).any()) else changed

    # ------------------------------------------------------------ branching

    def run(self, limit: int) -> Verdicted:
        """Search at most `limit` nodes."""
        root = self.root()
        if root is None:
            return Verdicted(Verdict.NONE)
        stack = [root]
        nodes = 0
        while stack:
            if nodes >= limit:
                return Verdicted(Verdict.OPEN, nodes=nodes)
            nodes += 1
            node = stack.pop()
            choices = self._choices(node)
            if not choices:
                placed = self.layout.delayed(node.network.earliest, self.interval)
                starts = tuple(int(start) for start in placed)
                return Verdicted(Verdict.FOUND, starts, nodes)
            children = (self._child(node, choice) for choice in reversed(choices))
            stack += [child for child in children if child is not None]
        return Verdicted(Verdict.NONE, nodes=nodes)

    def _child(self, node: Node, choice: _Choice) -> Node | None:
        child = node.copy()
        if choice.ring >= 0:
            if choice.versions > 0:
                child.least[choice.ring] = max(int(child.least[choice.ring]), choice.versions)
            else:
                child.most[choice.ring] = min(int(child.most[choice.ring]), -choice.versions)
                if not self._post_ring(child, choice.ring):
                    return None
        if not all(child.network.post(*bound) for bound in choice.bounds):
            return None
        return child if self._propagate(child) else None

    def _choices(self, node: Node) -> tuple[_Choice, ...]:
        """The alternatives at the most urgent violation, the most promising first."""
        starts = node.network.earliest
        return (
            self._ring_choice(node, starts)
            or self._order_choice(starts)
            or self._pair_choice(node.network, starts)
        )

    def versions_of(self, starts: Matrix) -> Matrix:
        """The versions that the starts need, per ring."""
        result = np.ones(len(self.layout.rings), dtype=np.int64)
        for ring, edges in enumerate(self.layout.rings):
            if len(edges.before):
                gaps = starts[edges.after] - starts[edges.before] - edges.latency
                result[ring] = max(1, -int((gaps // self.interval).min()))
        return result

    def _ring_choice(self, node: Node, starts: Matrix) -> tuple[_Choice, ...]:
        need = self.versions_of(starts)
        for group in self.layout.problem.groups:
            members = list(group.rings)
            if int((need[members] * self.layout.sizes[members]).sum()) <= group.capacity_bytes:
                continue
            excess = (need - node.least) * self.layout.sizes
            ring = max(members, key=lambda each: int(excess[each]))
            count = int(need[ring])
            return _Choice(ring=ring, versions=1 - count), _Choice(ring=ring, versions=count)
        return ()

    def _order_choice(self, starts: Matrix) -> tuple[_Choice, ...]:
        interval, origin = self.interval, len(self.layout.components)
        stage, phase = starts // interval, starts % interval
        for first, second in self.layout.stage_order:
            if stage[first] > stage[second]:
                edge = int(stage[first]) * interval
                return (
                    _Choice(bounds=((origin, second, edge),)),
                    _Choice(bounds=((first, origin, 1 - edge),)),
                )
        for first, second in self.layout.problem.pipe_order:
            if phase[first] > phase[second]:
                one, two = int(stage[first]) * interval, int(stage[second]) * interval
                return (
                    _Choice(
                        bounds=(
                            (first, second, two - one),
                            (origin, first, one),
                            (first, origin, 1 - one - interval),
                            (origin, second, two),
                            (second, origin, 1 - two - interval),
                        )
                    ),
                    _Choice(bounds=((origin, second, two + interval),)),
                    _Choice(bounds=((origin, first, one + interval),)),
                    _Choice(bounds=((first, origin, 1 - one),)),
                    _Choice(bounds=((second, origin, 1 - two),)),
                )
        return ()

    def _pair_choice(self, network: Network, starts: Matrix) -> tuple[_Choice, ...]:
        pairs, interval = self.layout.pairs, self.interval
        if not len(pairs.first):
            return ()
        apart = starts[pairs.second] - starts[pairs.first]
        turn = (apart + pairs.before - 1) // interval
        up = turn * interval + pairs.after
        meeting = np.flatnonzero(apart < up)
        if not len(meeting):
            return ()
        first, second = pairs.first[meeting], pairs.second[meeting]
        up = up[meeting]
        down = turn[meeting] * interval - pairs.before[meeting]
        low, reverse = network.matrix[first, second], network.matrix[second, first]
        above = np.where(known(reverse), -reverse - up, _FAR)
        below = np.where(known(low), down - low, _FAR)
        move = np.minimum(up - apart[meeting], apart[meeting] - down)
        slack = np.minimum(above, below)
        if self.noise is not None:
            slack = slack * self.noise.uniform(0.5, 1.5, len(slack))
        at = int(np.lexsort((move, slack))[0])
        one, two = int(first[at]), int(second[at])
        later = _Choice(bounds=((one, two, int(up[at])),))
        earlier = _Choice(bounds=((two, one, -int(down[at])),))
        if above[at] == below[at]:
            up_first = up[at] - apart[meeting][at] <= apart[meeting][at] - down[at]
        else:
            up_first = above[at] > below[at]
        return (later, earlier) if up_first else (earlier, later)
