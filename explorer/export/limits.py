"""What TileLang 0.1.15 cannot express, and hence what an export refuses.

Invariant: a schedule with no refusal means to TileLang what it means here; extensions that only
change speed (raster, matrix tile) never cause one.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.errors import ScheduleError
from explorer.machine import machine_named
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import OpStage, SideMode
from explorer.schedule.ws import RoleBody, WSSync

RELEASE = "0.1.15"
WARP_THREADS = 32


def refusals(schedule: Schedule) -> tuple[str, ...]:
    """One clause for each part of a schedule that TileLang cannot express, with its remedy."""
    return (
        *_machine(schedule),
        *_sides(schedule),
        *_tokens(schedule),
        *_stages(schedule),
        *_lags(schedule),
        *_cluster(schedule),
        *_pieces(schedule),
        *_parts(schedule),
        *_stream(schedule),
    )


def require_expressible(schedule: Schedule) -> None:
    """ScheduleError that names everything in the schedule that TileLang cannot express."""
    found = refusals(schedule)
    if found:
        raise ScheduleError(f"TileLang {RELEASE} cannot express this schedule: {'; '.join(found)}")


def _machine(schedule: Schedule) -> Iterator[str]:
    machine = machine_named(schedule.binding.machine)
    if machine.threads_per_warp != WARP_THREADS:
        yield (
            f"machine '{machine.name}' has {machine.threads_per_warp} thread(s) a warp, "
            f"TileLang's roles have {WARP_THREADS}; tune for a GPU machine"
        )


def _sides(schedule: Schedule) -> Iterator[str]:
    split = {role for each in schedule.extensions.splits for role in each.roles}
    for side in schedule.extensions.sides:
        if len(side.roles) < 2:
            continue
        word = "producer" if side.producer else "consumer"
        what = f"{side.mode} {word} side of pipeline '{side.pipeline}' ({', '.join(side.roles)})"
        if side.mode == SideMode.SHARED and split.issuperset(side.roles):
            warps = sum(schedule.ws.role(role).warps for role in side.roles)
            yield f"{what}; one role with {warps} warps can be expressed"
        else:
            yield f"{what}; one role a side can be expressed"
    for each in schedule.extensions.splits:
        if not any(set(each.roles) <= set(side.roles) for side in schedule.extensions.sides):
            yield f"row split over roles {', '.join(each.roles)}; one role can be expressed"


def _tokens(schedule: Schedule) -> Iterator[str]:
    for pipeline in schedule.ws.pipelines:
        if not pipeline.buffers:
            yield f"order token '{pipeline.name}', a pipeline without buffers; leave it out"


def _lags(schedule: Schedule) -> Iterator[str]:
    for lag in schedule.extensions.lags:
        if lag.lag:
            yield f"lag {lag.lag} of gemm '{lag.op}', which completes in place there; use lag 0"


def _cluster(schedule: Schedule) -> Iterator[str]:
    size = schedule.extensions.launch.cluster
    if size > 1:
        yield f"clusters of {size} blocks with multicast beside roles; use clusters of 1"


def _pieces(schedule: Schedule) -> Iterator[str]:
    for store in schedule.extensions.staged:
        if store.pieces > 1:
            yield (
                f"store '{store.op}' through {store.staging} in {store.pieces} pieces of a "
                "fragment's columns; use 1 piece"
            )


def _parts(schedule: Schedule) -> Iterator[str]:
    parts = schedule.extensions.launch.split
    if parts > 1:
        yield (
            f"reduction in {parts} parts, whose sums the last block adds up: that is another "
            "kernel there; use split 1"
        )


def _stream(schedule: Schedule) -> Iterator[str]:
    if schedule.extensions.launch.stream:
        yield "last tiles whose iterations the blocks share; leave out the stream"


def _stages(schedule: Schedule) -> Iterator[str]:
    for each in schedule.extensions.stages:
        spans = _open_stages(schedule, each)
        if each.stage not in spans:
            there = f"its spans are at stage {spans[0]}" if spans else "it is in no span"
            yield (
                f"stage {each.stage} of op '{each.op}' in role '{each.role}': {there}, "
                "and an op takes the stage of its spans"
            )


def _open_stages(schedule: Schedule, each: OpStage) -> tuple[int, ...]:
    """The stages of the spans that are open where a role runs an op."""
    for scope in schedule.ws.scopes:
        body: RoleBody = scope.body(each.role)
        spans: dict[str, int] = {}
        for entry in body:
            if isinstance(entry, WSSync):
                if entry.kind.opens:
                    spans[entry.pipeline] = entry.stage
                else:
                    spans.pop(entry.pipeline, None)
            elif entry.id == each.op:
                return tuple(sorted(spans.values()))
    return ()
