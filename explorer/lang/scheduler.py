"""A persistent tile scheduler for `while sched.valid()` loops.

Parameters, traversal orders and methods follow tilelang 0.1.15's PersistentTileScheduler.

Invariant: the map from a linear tile index to (m, n) is a bijection onto the tile grid for every
size, panel width and order.
"""

from __future__ import annotations

from typing import Any

from explorer.expr import Cond, Expr, Var, ceildiv, maximum, minimum
from explorer.lang.context import current, located
from explorer.lang.values import as_index

_STATE = ("linear_idx", "m_idx", "n_idx", "current_iter")


class PersistentTileScheduler:
    """Hands the tiles of a grid to `num_workers` resident blocks, a worker's tiles apart.

    `swizzle_size` is the width of a panel along the slow axis; `column_major` makes m the fast
    one. With `cluster_size` above 1 the rows are handed out in clusters of that many.
    """

    def __init__(
        self,
        num_m_tiles: Any,
        num_n_tiles: Any,
        num_workers: Any = None,
        swizzle_size: int = 1,
        column_major: bool = True,
        cluster_size: int = 1,
        stateful: bool = True,
        name: str | None = None,
    ) -> None:
        current("T.PersistentTileScheduler")
        if num_workers is None:
            raise located("T.PersistentTileScheduler needs num_workers, the resident blocks")
        self._rows = ceildiv(as_index(num_m_tiles), cluster_size)
        self._columns = as_index(num_n_tiles)
        self.num_workers = as_index(num_workers)
        self._swizzle = swizzle_size
        self._column_major = column_major
        self._stateful = stateful
        self._name = name or ""
        self._vars: dict[str, Var] = {}

    def bind_name(self, name: str) -> None:
        """Take the name of the variable that it is assigned to."""
        self._name = self._name or name

    def coord(self, tile: Any) -> tuple[Expr, Expr]:
        """(m, n) of a linear tile index."""
        index = as_index(tile)
        fast_size, slow_size = (
            (self._rows, self._columns) if self._column_major else (self._columns, self._rows)
        )
        panel = index // (fast_size * self._swizzle)
        base = panel * self._swizzle
        width = maximum(1, minimum(self._swizzle, slow_size - base))
        offset = index - panel * (fast_size * self._swizzle)
        fast, slow = offset // width, base + offset % width
        return (fast, slow) if self._column_major else (slow, fast)

    def init(self, worker_id: Any) -> None:
        """Start at this worker's first tile."""
        builder = current("a tile scheduler")
        if not self._stateful:
            raise located("the tile scheduler has stateful=False: use coord(...)")
        if not self._vars:
            stem = self._name or "sched"
            self._vars = {each: Var(builder.claim(f"{stem}_{each}", "scalar")) for each in _STATE}
        self._set("current_iter", 0)
        self._move(as_index(worker_id))

    def next_tile(self) -> None:
        """Go on to this worker's next tile."""
        self._set("current_iter", self.current_iter + 1)
        self._move(self.linear_idx + self.num_workers)

    def valid(self) -> Cond:
        """Whether the current tile exists."""
        return self.linear_idx < self._rows * self._columns

    @property
    def linear_idx(self) -> Expr:
        """The linear index of the current tile."""
        return self._get("linear_idx")

    @property
    def m_idx(self) -> Expr:
        """The row of the current tile, or its cluster's."""
        return self._get("m_idx")

    @property
    def n_idx(self) -> Expr:
        """The column of the current tile."""
        return self._get("n_idx")

    @property
    def current_iter(self) -> Expr:
        """How many tiles this worker has left behind."""
        return self._get("current_iter")

    def _get(self, name: str) -> Expr:
        if name not in self._vars:
            raise located("the tile scheduler was not started: call init(worker) first")
        return self._vars[name]

    def _set(self, name: str, value: Any) -> None:
        current("a tile scheduler").set_scalar(self._vars[name].name, value)

    def _move(self, linear: Expr) -> None:
        self._set("linear_idx", linear)
        m, n = self.coord(self.linear_idx)
        self._set("m_idx", m)
        self._set("n_idx", n)
