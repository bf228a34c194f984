"""Differences of start times: the longest paths that a set of lower bounds implies.

Node n of a network over n tasks is the origin, time 0 of iteration 0. `gap(u, v)` is the largest
known w with start_v - start_u >= w.

Invariant: the matrix is closed under longest paths and has no positive cycle; a bound that would
make one is refused and leaves the network as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

Matrix: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
NEVER = -(1 << 50)
_KNOWN = NEVER // 2

Bound: TypeAlias = tuple[int, int, int]


class Network:
    """A closed set of difference bounds over tasks and the origin."""

    __slots__ = ("matrix",)

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix

    @staticmethod
    def of(tasks: int, bounds: Iterable[Bound]) -> Network | None:
        """The network of `start_v - start_u >= w` for each (u, v, w); None if they conflict."""
        matrix = np.full((tasks + 1, tasks + 1), NEVER, dtype=np.int64)
        np.fill_diagonal(matrix, 0)
        for before, after, gap in bounds:
            matrix[before, after] = max(matrix[before, after], gap)
        network = Network(matrix)
        return network if network.close() else None

    def copy(self) -> Network:
        """An independent network with the same bounds."""
        return Network(self.matrix.copy())

    def close(self) -> bool:
        """Restore the longest paths after direct writes; False on a positive cycle."""
        matrix = self.matrix
        for via in range(len(matrix)):
            np.maximum(matrix, matrix[:, via, None] + matrix[via], out=matrix)
        return not bool((np.diagonal(matrix) > 0).any())

    def post(self, before: int, after: int, gap: int) -> bool:
        """Add start_after - start_before >= gap; False if that contradicts the rest."""
        matrix = self.matrix
        if matrix[before, after] >= gap:
            return True
        if matrix[after, before] + gap > 0:
            return False
        np.maximum(matrix, matrix[:, before, None] + (matrix[after] + gap), out=matrix)
        return True

    def post_all(self, before: Matrix, after: Matrix, gaps: Matrix) -> bool:
        """Add many bounds at once."""
        if len(gaps) < len(self.matrix):
            triples = zip(before.tolist(), after.tolist(), gaps.tolist(), strict=True)
            return all(self.post(*each) for each in triples)
        np.maximum.at(self.matrix, (before, after), gaps)
        return self.close()

    @property
    def earliest(self) -> Matrix:
        """The earliest start of every task."""
        return self.matrix[-1, :-1]


def known(gaps: Matrix) -> Any:
    """Where a lower bound exists at all."""
    return gaps > _KNOWN
