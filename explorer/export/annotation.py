"""A warp-specialization schedule as the call that attaches it to a TileLang kernel.

Invariant: the printed constructors, evaluated with TileLang's or this package's classes, give back
the schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.export.statements import INDENT, quoted
from explorer.export.text import variable
from explorer.schedule.ws import (
    RoleBody,
    WSInstr,
    WSRole,
    WSSchedule,
    WSScope,
    WSSync,
    WSSyncKind,
)

WIDTH = 99
_SYNCS = {
    WSSyncKind.PRODUCER_ACQUIRE: "producer_acquire",
    WSSyncKind.PRODUCER_COMMIT: "producer_commit",
    WSSyncKind.CONSUMER_WAIT: "consumer_wait",
    WSSyncKind.CONSUMER_RELEASE: "consumer_release",
}


def annotation_lines(ws: WSSchedule, indent: str) -> Iterator[str]:
    """The lines of `T.annotate_ws_schedule(T.WSSchedule(...))`."""
    one, two, three = (indent + INDENT * depth for depth in (1, 2, 3))
    yield f"{indent}T.annotate_ws_schedule("
    yield f"{one}T.WSSchedule("
    yield f"{two}num_warps={ws.num_warps},"
    yield f"{two}roles=["
    yield from (f"{three}{_role(role)}," for role in ws.roles)
    yield f"{two}],"
    yield from _pipelines(ws, two)
    yield f"{two}scopes=["
    for scope in ws.scopes:
        yield from _scope(scope, three)
    yield f"{two}],"
    yield f"{one})"
    yield f"{indent})"


def _pipelines(ws: WSSchedule, indent: str) -> Iterator[str]:
    if not ws.pipelines:
        yield f"{indent}pipelines=[],"
        return
    yield f"{indent}pipelines=["
    for ring in ws.pipelines:
        buffers = ", ".join(variable(name, "buffer") for name in ring.buffers)
        ring_text = f"{quoted(ring.name)}, [{buffers}], depth={ring.depth}"
        yield f"{indent}{INDENT}T.WSPipeline({ring_text}),"
    yield f"{indent}],"


def _role(role: WSRole) -> str:
    registers = f", max_nreg={role.max_nreg}" if role.max_nreg else ""
    warps = f"warps_lo={role.warps_lo}, warps_hi={role.warps_hi}"
    return f"T.WSRole({quoted(role.name)}, {warps}{registers})"


def _scope(scope: WSScope, indent: str) -> Iterator[str]:
    name = "T.WSScope.ROOT" if scope.id == WSScope.ROOT else quoted(scope.id)
    yield f"{indent}T.WSScope("
    yield f"{indent}{INDENT}{name},"
    yield f"{indent}{INDENT}{{"
    for role, body in scope.bodies:
        yield from _body(role, body, indent + INDENT * 2)
    yield f"{indent}{INDENT}}},"
    yield f"{indent}),"


def _body(role: str, body: RoleBody, indent: str) -> Iterator[str]:
    entries = [_entry(entry) for entry in body]
    line = f"{indent}{quoted(role)}: [{', '.join(entries)}],"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{indent}{quoted(role)}: ["
    yield from (f"{indent}{INDENT}{entry}," for entry in entries)
    yield f"{indent}],"


def _entry(entry: WSInstr) -> str:
    if isinstance(entry, WSSync):
        stage = f", {entry.stage}" if entry.stage else ""
        return f"T.WSSync.{_SYNCS[entry.kind]}({quoted(entry.pipeline)}{stage})"
    return quoted(entry.id)
