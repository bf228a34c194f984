"""What fast kernels need and the seeds' classes cannot say.

Each extension states whether TileLang 0.1.15 can express it. An absent extension has the seed's
meaning: one role a side, every release right after the last use, one block, no raster.

Invariant: extensions add to a WSSchedule and never change what its classes mean.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from attrs import field, frozen

from explorer.errors import ScheduleError
from explorer.schedule.ws import _int, _name, _scope_name

E = TypeVar("E", bound=StrEnum)
# Each piece is two ops of the kernel; no tile has as many groups of columns.
PIECES_MOST = 64


class SideMode(StrEnum):
    """How several roles stand on one side of a pipeline.

    SHARED: each role waits and signals every cycle; the arrive count is the sum over the roles.
    ALTERNATING: the roles take turns, iteration by iteration; the count is one role's.
    """

    SHARED = "shared"
    ALTERNATING = "alternating"


def _positive(instance: Any, attribute: Any, value: Any) -> None:
    _int(instance, attribute, value)
    if value < 1:
        raise ScheduleError(
            f"{type(instance).__name__}.{attribute.name} must be at least 1, got {value}"
        )


def _bool(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, bool):
        raise ScheduleError(
            f"{type(instance).__name__}.{attribute.name} must be true or false, got {value!r}"
        )


def _pieces(instance: Any, attribute: Any, value: Any) -> None:
    _positive(instance, attribute, value)
    if value > PIECES_MOST:
        raise ScheduleError(f"{type(instance).__name__}.pieces {value} > {PIECES_MOST}")


def _member(kind: type[E], value: Any) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise ScheduleError(f"unknown {kind.__name__} {value!r}: known are {known}") from None


def _mode(value: Any) -> SideMode:
    return _member(SideMode, value)


def _name_or_none(instance: Any, attribute: Any, value: Any) -> None:
    if value:
        _scope_name(instance, attribute, value)


@frozen
class Side:
    """Several roles on the consumer (or producer) side of a pipeline. Not in TileLang 0.1.15.

    Roles of an ALTERNATING side take turns: iteration i of the scope `over` is run by role i mod n
    alone. `over` is the pipeline's own scope (empty), a loop around it, or `WSScope.ROOT` for the
    tiles of a persistent block.
    """

    pipeline: str = field(validator=_name)
    producer: bool
    mode: SideMode = field(converter=_mode)
    roles: tuple[str, ...]
    over: str = field(default="", validator=_name_or_none)


@frozen
class Split:
    """Roles that execute the same ops, each on an equal share of the rows (leading dimension).

    Every fragment they touch is divided along its rows. TileLang 0.1.15 expresses it only as one
    role with more warps.
    """

    roles: tuple[str, ...]


@frozen
class OpStage:
    """The iteration offset of an op inside its role. In TileLang 0.1.15 only through its syncs."""

    role: str = field(validator=_name)
    op: str = field(validator=_name)
    stage: int = field(validator=_int)


@frozen
class MatrixLag:
    """An asynchronous gemm completes, and frees its slots, `lag` iterations after its issue.

    Not in TileLang 0.1.15, whose wgmma completes in place.
    """

    op: str = field(validator=_name)
    lag: int = field(validator=_int)


class Raster(StrEnum):
    """The order in which tiles are handed to blocks: which grid axis moves fastest.

    GROUPED walks strips, HILBERT a curve that keeps near in the order what is near in the grid.
    """

    ROW = "row"
    COLUMN = "column"
    GROUPED = "grouped"
    HILBERT = "hilbert"


def _raster(value: Any) -> Raster:
    return _member(Raster, value)


@frozen
class Launch:
    """How blocks walk the grid.

    `blocks` resident blocks stride over all tiles (persistent); 0 launches one block a tile.
    `raster` orders the tiles; `group` is the width of a grouped raster in tiles. TileLang 0.1.15
    expresses persistence as a loop of the kernel, and the raster as `T.use_swizzle`, but for the
    Hilbert one.

    `cluster` blocks work in lock-step on tiles that are neighbours along the grid axis
    `cluster_axis`, and the raster orders these groups of tiles; a bulk copy that is the same for
    all of them is fetched once, a share a block, and multicast. Not in TileLang 0.1.15.

    `split` parts of a tile's reduction are worked on as tiles of their own (`schedule.reduction`);
    each leaves its sums in memory, and the last to come adds them up. TileLang 0.1.15 expresses it
    as another kernel.

    `stream` lets the blocks share the iterations of the last tiles in equal ranges, instead of
    leaving some idle in the last wave (`schedule.stream`). Not in TileLang 0.1.15.
    """

    blocks: int = field(default=0, validator=_int)
    raster: Raster = field(default=Raster.ROW, converter=_raster)
    group: int = field(default=1, validator=_positive)
    cluster: int = field(default=1, validator=_positive)
    cluster_axis: int = field(default=0, validator=_int)
    split: int = field(default=1, validator=_positive)
    stream: bool = field(default=False, validator=_bool)


class CopyRoute(StrEnum):
    """How a global-to-shared copy travels; arrive counts follow it.

    BULK: the tensor copy engine, counted in bytes. ASYNC: cp.async, a deferred arrive a thread.
    ELEMENT: loads and stores of the role's threads, a proxy fence, an arrive a thread.
    """

    BULK = "bulk"
    ASYNC = "async"
    ELEMENT = "element"


def _route(value: Any) -> CopyRoute:
    return _member(CopyRoute, value)


@frozen
class Route:
    """The route of one copy. TileLang 0.1.15 chooses it by itself."""

    op: str = field(validator=_name)
    route: CopyRoute = field(converter=_route)


@frozen
class StagedStore:
    """A fragment-to-global copy that passes through a shared buffer named `staging`.

    The kernel gets one more buffer and one more op (`<op>_stage`). TileLang 0.1.15 expresses it as
    two copies in the kernel.

    With several `pieces` the buffer holds that part of the columns, and they pass one after the
    other (`<op>_stage_1`, `<op>_1`, ...): what it does not take is left to deeper rings. Not in
    TileLang 0.1.15.
    """

    op: str = field(validator=_name)
    staging: str = field(validator=_name)
    pieces: int = field(default=1, validator=_pieces)


@frozen
class Swapped:
    """A gemm computed transposed: its accumulator is held as N x M (`ir.swapped`).

    The matrix instruction then has N along its rows, and few rows of the result waste nothing.
    TileLang 0.1.15 expresses it as another gemm and element-wise stores in the kernel.
    """

    op: str = field(validator=_name)


@frozen
class MatrixTile:
    """The instruction shape m x n chosen for a gemm. TileLang 0.1.15 chooses it by itself."""

    op: str = field(validator=_name)
    m: int = field(validator=_positive)
    n: int = field(validator=_positive)


@frozen
class Extensions:
    """All extensions of one schedule; empty means the seed's meaning throughout."""

    sides: tuple[Side, ...] = ()
    splits: tuple[Split, ...] = ()
    stages: tuple[OpStage, ...] = ()
    lags: tuple[MatrixLag, ...] = ()
    launch: Launch = Launch()
    routes: tuple[Route, ...] = ()
    staged: tuple[StagedStore, ...] = ()
    matrix: tuple[MatrixTile, ...] = ()
    swapped: tuple[Swapped, ...] = ()

    def side(self, pipeline: str, producer: bool) -> Side | None:
        """The extended side of a pipeline, or None where one role stands there."""
        return next(
            (s for s in self.sides if s.pipeline == pipeline and s.producer == producer), None
        )

    def split_of(self, role: str) -> Split | None:
        """The split that a role takes part in, or None."""
        return next((split for split in self.splits if role in split.roles), None)

    def lag(self, op: str) -> int:
        """The lag of a gemm in iterations; 0 where it completes in place."""
        return next((lag.lag for lag in self.lags if lag.op == op), 0)
