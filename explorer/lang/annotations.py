"""Annotations of a kernel: its schedule, buffer versions, and hints.

Names, parameters and refusals follow tilelang 0.1.15.

Invariant: an annotation is recorded and never changes what the kernel computes; a hint that could
change it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explorer.expr import Const
from explorer.ir.annotations import (
    BufferVersions,
    IndexMode,
    ManualMultiBuffer,
    RasterHint,
    UnlimitedMemory,
)
from explorer.lang.context import current, located
from explorer.lang.values import BufferRef
from explorer.machine import Scope
from explorer.schedule.ws import WSSchedule

_UNLIMITED = (Scope.SHARED, Scope.L1, Scope.L0C, Scope.L0A, Scope.L0B)


def annotate_ws_schedule(schedule: WSSchedule) -> None:
    """Attach a warp-specialization schedule to the kernel."""
    builder = current("T.annotate_ws_schedule")
    if not isinstance(schedule, WSSchedule):
        raise located(f"T.annotate_ws_schedule takes a T.WSSchedule, got {schedule!r}")
    if builder.schedule is not None:
        raise located("the kernel has a schedule already: remove one")
    builder.schedule = schedule


def annotate_buffer_versions(buffer_versions_map: Mapping[BufferRef, Any]) -> None:
    """Ask for version counts and index modes: `n`, `(n, mode)` or `mode` for each buffer."""
    builder = current("T.annotate_buffer_versions")
    for ref, request in buffer_versions_map.items():
        buffer = _on_chip(ref, "T.annotate_buffer_versions")
        mode = IndexMode.AUTO
        versions: int | None = None
        if isinstance(request, tuple) and len(request) == 2:
            versions, mode = _count(request[0], buffer), _mode(request[1], buffer)
        elif isinstance(request, str):
            mode = _mode(request, buffer)
        else:
            versions = _count(request, buffer)
        out = versions == 1 and not isinstance(request, tuple)
        builder.annotations.append(BufferVersions(buffer, versions, mode, out))


def annotate_manual_multi_buffer(*items: BufferRef | Mapping[BufferRef, int]) -> None:
    """Declare buffers whose versions the kernel indexes by hand: `buffer` or `{buffer: n}`."""
    builder = current("T.annotate_manual_multi_buffer")
    for item in items:
        if isinstance(item, Mapping):
            for ref, count in item.items():
                buffer = _on_chip(ref, "T.annotate_manual_multi_buffer")
                builder.annotations.append(ManualMultiBuffer(buffer, _count(count, buffer)))
            continue
        buffer = _on_chip(item, "T.annotate_manual_multi_buffer")
        leading = item.buffer.shape[0]
        if not isinstance(leading, Const):
            raise located(
                f"the leading dimension of '{buffer}' is '{leading}', not a constant: "
                f"pass {{{buffer}: n}}"
            )
        builder.annotations.append(ManualMultiBuffer(buffer, leading.value))


def annotate_unlimit_memory(*scopes: str) -> None:
    """Leave the capacity of these memories out of scheduling."""
    builder = current("T.annotate_unlimit_memory")
    for scope in scopes:
        if scope not in _UNLIMITED:
            known = ", ".join(_UNLIMITED)
            raise located(f"T.annotate_unlimit_memory got {scope!r}: it takes {known}")
    builder.annotations.append(UnlimitedMemory(tuple(Scope(scope) for scope in scopes)))


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Suggest that blocks run in panels of `panel_size` tiles along rows or columns."""
    builder = current("T.use_swizzle")
    if order not in ("row", "column", "mlx"):
        raise located(f"T.use_swizzle got order {order!r}: it takes row, column or mlx")
    if enable:
        builder.annotations.append(RasterHint(panel_size, order))


def annotate_layout(layout_map: Mapping[BufferRef, Any]) -> None:
    """Accepted and ignored: layouts are chosen with the schedule."""
    current("T.annotate_layout")


def annotate_l2_hit_ratio(l2_hit_ratio_map: Mapping[BufferRef, float]) -> None:
    """Accepted and ignored: a cache hint."""
    current("T.annotate_l2_hit_ratio")


def annotate_min_blocks_per_sm(n: int) -> None:
    """Accepted and ignored: occupancy is a choice of the schedule."""
    current("T.annotate_min_blocks_per_sm")


def annotate_safe_value(safe_value_map: Mapping[BufferRef, float]) -> None:
    """The value that reads outside a tensor give. It is 0 here, so any other is refused."""
    current("T.annotate_safe_value")
    for ref, value in safe_value_map.items():
        if value != 0:
            raise located(
                f"T.annotate_safe_value asks {value} for '{ref.name}': reads outside a tensor "
                "give 0, use T.if_then_else"
            )


def _on_chip(ref: Any, what: str) -> str:
    if not isinstance(ref, BufferRef) or ref.buffer.scope == Scope.GLOBAL:
        raise located(f"{what} takes on-chip buffers, got {getattr(ref, 'name', ref)!r}")
    return ref.name


def _count(value: Any, buffer: str) -> int:
    if isinstance(value, Const):
        value = value.value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise located(f"'{buffer}' asks for {value!r} versions: it takes an int of at least 1")
    return value


def _mode(value: Any, buffer: str) -> IndexMode:
    try:
        return IndexMode(value)
    except ValueError:
        raise located(
            f"'{buffer}' asks for index mode {value!r}: it takes auto, iteration or counter"
        ) from None
