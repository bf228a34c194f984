"""A pipeline's stages as column ranges of one buffer in tensor memory.

Invariant: with known numbers, a region lies inside the buffer's columns.
"""

from __future__ import annotations

from typing import Any

from explorer.expr import FALSE, Expr, IntLike, const
from explorer.memory.conditions import refuse, size_of, text
from explorer.memory.records import TmemAllocation, TmemRegion


class TMEMStages:
    """Stage s takes `width` columns from `col_start + s * stride` of a (rows, columns) buffer.

    Columns count the buffer's elements; `stride` is `width` by default. `stages[s]` is a whole
    stage, `stages[s, start:stop:step]` some of its columns, either end open.
    """

    def __init__(
        self,
        buf: TmemAllocation,
        col_start: IntLike,
        width: IntLike,
        stages: int = 1,
        stride: IntLike | None = None,
    ) -> None:
        if len(buf.shape) != 2:
            refuse(
                "tmem-stages",
                f"'{buf.name}' has shape {text(buf.shape)}; stages are columns of a 2-D buffer",
            )
        self.buf = buf
        self.col_start = size_of(col_start, "col_start")
        self.width = size_of(width, "width")
        self.stages = stages
        self.stride = self.width if stride is None else size_of(stride, "stride")
        if stages > 0:
            self._region(stages - 1, 0, self.width, 1)

    def __getitem__(self, item: Any) -> TmemRegion:
        """The region of a stage, or of a slice of its columns."""
        if not isinstance(item, tuple):
            return self._region(item, 0, self.width, 1)
        if len(item) != 2 or not isinstance(item[1], slice):
            refuse("tmem-stages", f"index {item!r}; write stages[s] or stages[s, start:stop]")
        stage, columns = item
        start = 0 if columns.start is None else columns.start
        stop = self.width if columns.stop is None else columns.stop
        return self._region(stage, start, stop, 1 if columns.step is None else columns.step)

    def _region(self, stage: IntLike, start: IntLike, stop: IntLike, step: int) -> TmemRegion:
        stage, start = size_of(stage, "the stage"), size_of(start, "the slice's start")
        stop = size_of(stop, "the slice's stop")
        if not isinstance(step, int) or step < 1:
            refuse("tmem-stages", f"step {step!r}; use an integer of at least 1")
        for known_stage in (stage,) if isinstance(stage, int) else (0, self.stages - 1):
            self._require_inside(known_stage, start, stop)
        base = self._base(stage)
        return TmemRegion(self.buf, base + start, base + stop, step)

    def _base(self, stage: IntLike) -> Expr:
        return const(self.col_start) + const(stage) * self.stride

    def _require_inside(self, stage: IntLike, start: IntLike, stop: IntLike) -> None:
        """Refuse columns that certainly lie outside the buffer; open sizes are let through."""
        first, last = self._base(stage) + start, self._base(stage) + stop
        limit = self.buf.shape[1]
        if (const(start) <= stop) == FALSE or (last <= limit) == FALSE:
            refuse(
                "tmem-stages",
                f"stage {stage} columns {start}:{stop} are {first}:{last} of '{self.buf.name}', "
                f"which has {limit}; use start <= stop inside the buffer",
            )
